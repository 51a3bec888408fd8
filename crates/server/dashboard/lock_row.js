// One row of the table of locks: what is as it should be is quiet, and what is not has a mark.

import { foreign, h, part, setAttribute, setText } from "./dom.js";
import { duration, number } from "./format.js";
import { model, now } from "./model.js";

/** Longer than most jobs take: too long while others wait. */
const LONG_HELD_MS = 15 * 60_000;
/** Fewer nodes than vote have a lease while its grant or its release is under way. */
const SETTLED_MS = 3000;
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
  setAttribute(part(row, "holder"), "title", lock.fence === null ? "" : `fence ${lock.fence}`);
  setText(part(row, "waiters"), lock.waiters === 0 ? "" : number(lock.waiters));
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
  // Where its length is not known here, the most that was seen of it is a lower bound.
  const is_short = left !== null && left / Math.max(1, lock.ttl_ms ?? row.longest_ms) < SHORT;
  const is_long = lock.waiters > 0 && held !== null && held >= LONG_HELD_MS;
  setAttribute(part(row, "left"), "data-off", is_short ? "yes" : null);
  setAttribute(part(row, "age"), "data-off", is_long ? "yes" : null);
  setText(part(row, "marks"), marksOf(lock, held, is_short && left > 0, is_long).join(" · "));
}

function marksOf(lock, held, ends_soon, is_long) {
  const { available } = model.overview.cluster;
  const marks = [];
  if (lock.state === "split") marks.push("split");
  if (ends_soon) marks.push("ends soon");
  const is_settled = held === null || held > SETTLED_MS;
  if (is_settled && lock.votes < available) marks.push(`on ${lock.votes} of ${available} nodes`);
  if (is_long) marks.push("held long while others wait");
  return marks;
}
