// Quorum at a glance, and how each node is.

import { announce, foreign, h, part, reconcile, setAttribute, setText, sign } from "./dom.js";
import { duration, latency, offset, plural } from "./format.js";
import { elapsed, model, quorumOf } from "./model.js";

const byId = (id) => document.getElementById(id);
const ICON_COLOUR = { ok: "%231a7f4b", degraded: "%23b87400", risk: "%23b87400", lost: "%23c0282d" };

let level_before = null;
let states_before = new Map();

/** `subject`: the lock whose page is open. */
export function showCluster(subject) {
  const { cluster, rates } = model.overview;
  const quorum = quorumOf(cluster);
  setAttribute(byId("quorum"), "data-level", quorum.level);
  setText(byId("quorum-headline"), quorum.headline);
  setText(byId("quorum-meaning"), `${quorum.word}. ${quorum.meaning}`);
  setText(byId("lost"), `${plural(rates.lost_5m, "lease")} lost in the last 5 minutes`);
  setAttribute(byId("lost"), "data-any", rates.lost_5m > 0 ? "yes" : "no");
  const short = shortNames(cluster.nodes.map((node) => node.node));
  reconcile(
    byId("lights"),
    cluster.nodes,
    (node) => node.node,
    makeLight,
    (light, node) => fillLight(light, node, short.get(node.node)),
  );
  reconcile(byId("node-rows"), cluster.nodes, (node) => node.node, makeNode, fillNode);
  setText(byId("backend"), cluster.backend);
  showInTab(quorum, subject);
  tell(quorum, cluster.nodes);
}

/** The tab says it, too, while another one is looked at. */
function showInTab(quorum, subject) {
  const trouble = quorum.level === "ok" ? null : `${quorum.word}: ${quorum.headline}`;
  document.title = [trouble, subject, "Leasehold"].filter(Boolean).join(" · ");
  const icon = `data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Ccircle cx='8' cy='8' r='6' fill='${ICON_COLOUR[quorum.level]}'/%3E%3C/svg%3E`;
  setAttribute(byId("icon"), "href", icon);
}

function tell(quorum, nodes) {
  const states = new Map(nodes.map((node) => [node.node, node.state]));
  const changes = nodes.filter((node) => (states_before.get(node.node) ?? node.state) !== node.state);
  const words = changes.map((node) => `Node ${node.node} is ${node.state}.`);
  if (level_before !== null && level_before !== quorum.level)
    words.push(`${quorum.word}: ${quorum.headline}. ${quorum.meaning}`);
  if (words.length > 0) announce(words.join(" "));
  level_before = quorum.level;
  states_before = states;
}

function makeLight() {
  return h(
    "li",
    {},
    h("span", { "data-part": "sign" }),
    foreign("", { class: "light-name", "data-part": "name" }),
    h("span", { class: "off-screen", "data-part": "words" }),
  );
}

function fillLight(light, node, short) {
  setSign(light, node.state);
  setText(part(light, "name"), short);
  setText(part(light, "words"), ` ${node.state}`);
  setAttribute(light, "title", `${node.node}: ${node.state}`);
}

/** What tells the nodes apart: the port on one host, the host on many. */
function shortNames(names) {
  const parts = names.map((name) => /^(.*):(\d+)(\/\d+)?$/.exec(name));
  const distinct = (index) => parts.every(Boolean) && new Set(parts.map((found) => found[index])).size === names.length;
  if (distinct(1)) return new Map(parts.map((found) => [found[0], found[1]]));
  if (distinct(2)) return new Map(parts.map((found) => [found[0], `:${found[2]}`]));
  return new Map(names.map((name) => [name, name]));
}

function setSign(element, state) {
  if (element.dataset.state === state) return;
  element.dataset.state = state;
  part(element, "sign").replaceChildren(sign(state));
}

function makeNode(node) {
  const cell = (name, label, attributes = {}) =>
    h("td", { role: "cell", "data-label": label, "data-part": name, ...attributes });
  return h(
    "tr",
    { role: "row", "data-node": node.node },
    h("th", { role: "rowheader", scope: "row" }, foreign(node.node)),
    h(
      "td",
      { role: "cell", "data-label": "State", class: "state" },
      h("span", { "data-part": "sign" }),
      h("span", { "data-part": "state" }),
    ),
    cell("votes", "Votes"),
    cell("round-trip", "Round trip", { class: "number" }),
    cell("offset", "Clock offset", { class: "number" }),
    cell("version", "Version"),
    cell("life", "Life"),
    cell("why", "Why", { class: "why" }),
  );
}

function fillNode(row, node) {
  setSign(row, node.state);
  const left = node.quarantine_left_ms === null ? null : node.quarantine_left_ms - elapsed();
  setText(part(row, "state"), left === null ? node.state : `${node.state}, ${duration(left)} left`);
  setText(part(row, "votes"), node.votes ? "yes" : "no");
  setText(part(row, "round-trip"), latency(node.round_trip_ms));
  setText(part(row, "offset"), offset(node.clock_offset_ms));
  setText(part(row, "version"), node.version ?? "–");
  setText(part(row, "life"), life(node));
  setAttribute(part(row, "life"), "title", node.life_since ? `life ${node.life} since ${node.life_since}` : "");
  setText(part(row, "why"), [node.why, node.warning].filter(Boolean).join("; "));
}

/** Which life of the node this is, and for how long: a new one begins whenever it may have forgotten something. */
function life(node) {
  if (!node.life || !node.life_since) return "–";
  return `${node.life.slice(0, 8)}, ${duration(Date.now() - Date.parse(node.life_since))}`;
}

/** What goes on between two updates: the countdown of a quarantine. */
export function tickCluster() {
  const waiting = model.overview.cluster.nodes.some((node) => node.quarantine_left_ms !== null);
  if (waiting) reconcile(byId("node-rows"), model.overview.cluster.nodes, (node) => node.node, makeNode, fillNode);
}
