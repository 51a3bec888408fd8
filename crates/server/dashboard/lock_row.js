// One row of the table of locks: what is as it should be is quiet, and what is not has a mark.

import { foreign, h, part, setAttribute, setText } from "./dom.js";
import { duration, number } from "./format.js";
import { model, now } from "./model.js";

/** Longer than most jobs take: too long while others wait. */
const LONG_HELD_MS = 15 * 60_000;
/** Keepers extend when a third has gone; with less than a third left, two extensions have failed or nobody extends. */
export const SHORT = 1 / 3;

export function lockLink(name, attributes = {}) {
  return h("a", { href: `#/locks/${encodeURIComponent(name)}`, ...attributes }, foreign(name));
}

export function makeRow(lock) {
  const cell = (label, attributes, ...children) =>
    h("td", { role: "cell", "data-label": label, ...attributes }, ...children);
  return h(
    "tr",
    { role: "row" },
    h(
      "th",
      { role: "rowheader", scope: "row", class: "lock-name" },
      lockLink(lock.name, { title: lock.name }),
      h("span", { class: "marks", "data-part": "marks" }),
    ),
    cell(
      "Holder",
      { class: "holder" },
      foreign("", { "data-part": "holder" }),
      foreign("", { class: "reason", "data-part": "reason" }),
    ),
    cell("Held for", { class: "number age", "data-part": "age" }),
    cell("Time left", { class: "number time-left", "data-part": "left" }),
    cell("Waiting here", { class: "number waiting", "data-part": "waiters" }),
    cell("Fence", { class: "fence digits", "data-part": "fence" }),
  );
}

/** `received_at`: when the server told of it. */
export function fillRow(row, lock, received_at) {
  const is_new_lease = row.lock?.fence !== lock.fence;
  row.longest_ms = Math.max(lock.expires_in_ms ?? 0, is_new_lease ? 0 : row.longest_ms);
  Object.assign(row, { lock, received_at });
  row.dataset.name = lock.name;
  setText(part(row, "holder"), lock.holder ?? (lock.state === "split" ? "nobody has a quorum" : "nobody"));
  setText(part(row, "reason"), lock.reason ?? "");
  setText(part(row, "fence"), lock.fence ?? "–");
  setText(part(row, "waiters"), lock.waiters === 0 ? "–" : number(lock.waiters));
  setAttribute(part(row, "waiters"), "data-any", lock.waiters > 0 ? "yes" : null);
  setAttribute(row, "data-state", lock.state);
  fillTimes(row);
}

export function fillTimes(row) {
  const { lock } = row;
  const passed = Math.max(0, now() - row.received_at);
  const left = lock.expires_in_ms === null ? null : Math.max(0, lock.expires_in_ms - passed);
  const held = lock.held_for_ms === null ? null : lock.held_for_ms + passed;
  setText(part(row, "age"), duration(held));
  setText(part(row, "left"), left === 0 ? "run out" : duration(left));
  const marks = marksOf(row, left, held);
  setText(part(row, "marks"), marks.join(" · "));
  setAttribute(row, "data-marked", marks.length > 0 ? "yes" : null);
}

function marksOf(row, left, held) {
  const { lock } = row;
  const marks = [];
  if (lock.state === "split") marks.push("split");
  // Where its length is not known here, the most that was seen of it is a lower bound.
  const whole = lock.ttl_ms ?? row.longest_ms;
  if (left !== null && left > 0 && left / Math.max(1, whole) < SHORT) marks.push("ends soon");
  const { available } = model.overview.cluster;
  if (lock.state === "held" && lock.votes < available) marks.push(`on ${lock.votes} of ${available} nodes that vote`);
  if (lock.waiters > 0 && held !== null && held >= LONG_HELD_MS) marks.push("held long while others wait");
  return marks;
}
