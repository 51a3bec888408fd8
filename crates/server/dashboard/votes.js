// What each node says of one lock, row by row.

import { foreign, h, part, setText, sign } from "./dom.js";
import { duration } from "./format.js";

export function makeVote(node) {
  const cell = (name, label, attributes = {}) =>
    h("td", { role: "cell", "data-label": label, "data-part": name, ...attributes });
  return h(
    "tr",
    { role: "row" },
    h("th", { role: "rowheader", scope: "row" }, foreign(node.node)),
    h(
      "td",
      { role: "cell", "data-label": "Says", class: "state" },
      h("span", { "data-part": "sign" }),
      foreign("", { "data-part": "says" }),
    ),
    cell("left", "Time left", { class: "number" }),
  );
}

export function fillVote(row, node, lock) {
  const agrees = !node.error && node.holder !== null && node.holder === lock.holder && node.fence === lock.fence;
  const state = node.error ? "down" : agrees ? "up" : node.holder === null ? "unknown" : "refused";
  if (row.dataset.state !== state) {
    row.dataset.state = state;
    part(row, "sign").replaceChildren(sign(state));
  }
  setText(part(row, "says"), node.error ?? wordsOf(node, agrees, lock));
  setText(part(row, "left"), node.expires_in_ms === undefined ? "–" : duration(node.expires_in_ms));
}

function wordsOf(node, agrees, lock) {
  if (agrees) return "votes for the holder";
  if (node.holder === null) return "free";
  const other_fence = node.fence === lock.fence ? "" : ` with fence ${node.fence ?? "–"}`;
  return `held by ${node.holder}${other_fence}`;
}
