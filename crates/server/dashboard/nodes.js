// The table of nodes: how each is, and why.

import { foreign, h, part, reconcile, setAttribute, setText, sign } from "./dom.js";
import { duration, latency, offset } from "./format.js";
import { elapsed } from "./model.js";

export function isWell(node) {
  return node.state === "up" && !node.warning;
}

/** In brief: what is wrong and why, without what was measured. */
export function showNodes(nodes, is_brief) {
  const has_words = nodes.some((node) => node.why || node.warning);
  setAttribute(document.getElementById("nodes"), "data-why", has_words ? "yes" : "no");
  setAttribute(document.getElementById("nodes"), "data-brief", is_brief ? "yes" : null);
  reconcile(document.getElementById("node-rows"), nodes, (node) => node.node, makeNode, fillNode);
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
    cell("why", "Why", { class: "why" }),
    cell("round-trip", "Round trip", { class: "number detail" }),
    cell("offset", "Clock offset", { class: "number detail" }),
    cell("version", "Version", { class: "detail" }),
    cell("life", "Life", { class: "life detail" }),
  );
}

function fillNode(row, node) {
  if (row.dataset.state !== node.state) {
    row.dataset.state = node.state;
    part(row, "sign").replaceChildren(sign(node.state));
  }
  const left = node.quarantine_left_ms === null ? null : Math.max(0, node.quarantine_left_ms - elapsed());
  setText(part(row, "state"), left === null ? node.state : `${node.state}, ${duration(left)} left`);
  // What was measured while it answered says nothing of a node that does not.
  const is_down = node.state === "down";
  setText(part(row, "round-trip"), latency(is_down ? null : node.round_trip_ms));
  setText(part(row, "offset"), offset(is_down ? null : node.clock_offset_ms));
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
