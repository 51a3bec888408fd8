// The quorum in one sentence, and below it what is wrong. Nodes that are well are told only on request.

import { announce, h, reconcile, setAttribute, setText, sign } from "./dom.js";
import { clock, percent, plural } from "./format.js";
import { model, quorumOf } from "./model.js";
import { isWell, showNodes } from "./nodes.js";

const byId = (id) => document.getElementById(id);
const ICON_COLOUR = {
  ok: "%231a7f4b",
  degraded: "%23b87400",
  risk: "%23b87400",
  lost: "%23c0282d",
  unknown: "%23808890",
};
const SIGN = { ok: "up", degraded: "warning", risk: "warning", lost: "down", unknown: "unknown" };
/** Contention above this raises the alert RedLockHighContention. */
const ALERT = 0.1;

let all_wanted = false;
let level_before = null;
let states_before = new Map();

export function startCluster() {
  byId("nodes-toggle").addEventListener("click", () => {
    all_wanted = !all_wanted;
    tickCluster();
  });
}

/** `subject`: the lock whose page is open. */
export function showCluster(subject) {
  const { cluster, rates } = model.overview;
  const quorum = quorumOf(cluster);
  // The page of a lock tells of the cluster only what concerns the lock.
  byId("quorum").hidden = subject !== undefined && quorum.level === "ok";
  say(quorum, subject);
  reconcile(
    byId("troubles"),
    troubles(rates),
    (words) => words,
    (words) => h("li", {}, sign("warning"), words),
    () => {},
  );
  tickCluster();
  setText(byId("backend"), cluster.backend);
  tell(quorum, cluster.nodes);
}

/** Nothing is known of the cluster any more: what was told last may long be otherwise. */
export function showUnknown(since, subject) {
  byId("quorum").hidden = false;
  say(
    {
      level: "unknown",
      word: `Unknown since ${clock(since)}`,
      meaning: "The server says nothing any more. What is grey is what it said last, and may be wrong by now.",
    },
    subject,
  );
}

function say(quorum, subject) {
  if (byId("quorum").dataset.level !== quorum.level || byId("quorum-sign").childElementCount === 0)
    byId("quorum-sign").replaceChildren(sign(SIGN[quorum.level]));
  setAttribute(byId("quorum"), "data-level", quorum.level);
  setText(byId("quorum-headline"), quorum.word);
  setText(byId("quorum-meaning"), quorum.meaning);
  showInTab(quorum, subject);
}

function troubles({ lost_5m, contention_rate }) {
  const found = [];
  if (lost_5m > 0) found.push(`${plural(lost_5m, "lease")} lost in the last 5 minutes`);
  if (contention_rate > ALERT)
    found.push(
      `${percent(contention_rate)} of the attempts of the last 5 minutes met a holder, alert at ${percent(ALERT)}`,
    );
  return found;
}

/** The tab says it, too, while another one is looked at. */
function showInTab(quorum, subject) {
  const trouble = quorum.level === "ok" ? null : quorum.word;
  document.title = [trouble, subject, "Leasehold"].filter(Boolean).join(" · ");
  const icon = `data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Ccircle cx='8' cy='8' r='6' fill='${ICON_COLOUR[quorum.level]}'/%3E%3C/svg%3E`;
  setAttribute(byId("icon"), "href", icon);
}

function tell(quorum, nodes) {
  const states = new Map(nodes.map((node) => [node.node, node.state]));
  const changes = nodes.filter((node) => (states_before.get(node.node) ?? node.state) !== node.state);
  const words = changes.map((node) => `Node ${node.node} is ${node.state}.`);
  if (level_before !== null && level_before !== quorum.level) words.push(`${quorum.word}. ${quorum.meaning}`);
  if (words.length > 0) announce(words.join(" "));
  level_before = quorum.level;
  states_before = states;
}

function wordsOfToggle(all, wrong) {
  if (all_wanted) return wrong === 0 ? "Hide nodes" : wrong === all ? "Hide details" : "Hide healthy nodes";
  if (wrong === all) return "Show details";
  if (wrong > 0) return `Show all ${all} nodes`;
  return all === 1 ? "Show the node" : "Show nodes";
}

/** What goes on between two updates: the countdown of a quarantine. */
export function tickCluster() {
  const { nodes } = model.overview.cluster;
  const wrong = nodes.filter((node) => !isWell(node));
  const shown = all_wanted ? nodes : wrong;
  const button = byId("nodes-toggle");
  setText(button, wordsOfToggle(nodes.length, wrong.length));
  setAttribute(button, "aria-expanded", String(all_wanted));
  button.hidden = nodes.length === 0;
  byId("nodes").hidden = shown.length === 0;
  showNodes(shown, !all_wanted);
}
