// The table of locks that are held or waited for: oldest first, because a lock that somebody forgot is what
// people come here to find.

import { copyButton, foreign, h, part, reconcile, setAttribute, setText } from "./dom.js";
import { duration, number } from "./format.js";
import { age, elapsed, model, span, timeLeft } from "./model.js";
import { fillBar, isShort, makeBar } from "./time_left.js";

/** Longer than most jobs take: worth a look. */
const LONG_HELD_MS = 15 * 60_000;

const COLUMNS = [
  { key: "name", label: "Lock", of: (lock) => lock.name, up: true },
  { key: "holder", label: "Holder", of: (lock) => lock.holder ?? "", up: true },
  { key: "age", label: "Held for", of: (lock) => lock.held_for_ms ?? -1 },
  { key: "left", label: "Time left", of: (lock) => lock.expires_in_ms ?? Infinity, up: true },
  { key: "fence", label: "Fence", of: (lock) => lock.fence ?? -1 },
  { key: "votes", label: "Votes", of: (lock) => lock.votes, up: true },
  { key: "queue", label: "Waiting", of: (lock) => lock.waiters },
];

/** Rows drawn before somebody asks for all: more than a screen, and cheap. */
const FIRST = 100;

const byId = (id) => document.getElementById(id);
/** Rows out of sight are filled this seldom, not with each tick: 500 of them cost more than they tell. */
const SELDOM_MS = 2000;
const sight = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    target.in_sight = isIntersecting;
    if (isIntersecting) fillTimes(target, elapsed());
  }
});
let seldom_at = 0;
let is_all_shown = false;
let order = { key: "age", up: false };
let wanted = "";

export function startLocks() {
  for (const column of COLUMNS) {
    const button = h("button", { type: "button", class: "sort" }, column.label);
    button.addEventListener("click", () => sortBy(column));
    byId("locks-head").append(h("th", { role: "columnheader", scope: "col", "data-column": column.key }, button));
  }
  showOrder();
  byId("locks-filter").addEventListener("input", (event) => {
    wanted = event.target.value.trim().toLowerCase();
    showLocks();
  });
  byId("locks-more").addEventListener("click", () => {
    is_all_shown = true;
    showLocks();
    byId("lock-rows").children[FIRST]?.querySelector("a").focus();
  });
}

function sortBy(column) {
  order = { key: column.key, up: order.key === column.key ? !order.up : Boolean(column.up) };
  showOrder();
  showLocks();
}

function showOrder() {
  for (const head of byId("locks-head").children) {
    const sorted = head.dataset.column === order.key ? (order.up ? "ascending" : "descending") : null;
    setAttribute(head, "aria-sort", sorted);
  }
}

export function showLocks() {
  if (!model.overview) return;
  const { items, held, waiters, truncated } = model.overview.locks;
  const wanted_items = sorted(items.filter(isWanted));
  const shown = is_all_shown ? wanted_items : wanted_items.slice(0, FIRST);
  const all = wanted === "" ? Math.max(held, items.length) : wanted_items.length;
  setText(byId("locks-count"), `${number(held)} held, ${number(waiters)} waiting`);
  const cut = truncated
    ? ` The server tells of the ${number(items.length)} that are held longest; sorting and filter see these only.`
    : "";
  setText(byId("locks-note"), `Showing ${number(shown.length)} of ${number(all)}.${cut}`);
  byId("locks-note").hidden = !truncated && shown.length === wanted_items.length;
  setText(byId("locks-more"), `Show ${number(wanted_items.length - shown.length)} more`);
  byId("locks-more").hidden = shown.length === wanted_items.length;
  setText(
    byId("locks-empty"),
    items.length === 0 ? "No lock is held or waited for." : "No lock here matches the filter.",
  );
  byId("locks-empty").hidden = shown.length > 0;
  byId("locks-table").hidden = shown.length === 0;
  reconcile(byId("lock-rows"), shown, (lock) => lock.name, makeRow, fillRow);
}

function isWanted(lock) {
  return (
    wanted === "" || lock.name.toLowerCase().includes(wanted) || (lock.holder ?? "").toLowerCase().includes(wanted)
  );
}

function sorted(locks) {
  const { of } = COLUMNS.find((column) => column.key === order.key);
  const sign = order.up ? 1 : -1;
  const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  return locks.sort((a, b) => sign * compare(of(a), of(b)) || compare(a.name, b.name));
}

export function lockLink(name, attributes = {}) {
  return h("a", { href: `#/locks/${encodeURIComponent(name)}`, ...attributes }, foreign(name));
}

function makeRow(lock) {
  const cell = (label, attributes, ...children) =>
    h("td", { role: "cell", "data-label": label, ...attributes }, ...children);
  const row = h(
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
    cell("Held for", { class: "number", "data-part": "age" }),
    cell("Time left", { class: "time-left" }, makeBar()),
    cell(
      "Fence",
      { class: "fence" },
      h("span", { class: "digits", "data-part": "fence" }),
      copyButton(`the fence of ${lock.name}`, () => String(row.lock.fence)),
    ),
    cell("Votes", { class: "number", "data-part": "votes" }),
    cell("Waiting", { class: "number", "data-part": "waiters" }),
  );
  sight.observe(row);
  return row;
}

function fillRow(row, lock) {
  row.lock = lock;
  row.dataset.name = lock.name;
  setText(part(row, "holder"), lock.holder ?? (lock.state === "split" ? "nobody has a quorum" : "nobody"));
  setText(part(row, "reason"), lock.reason ?? "");
  setText(part(row, "fence"), lock.fence ?? "–");
  row.querySelector(".copy").hidden = lock.fence === null;
  setText(part(row, "votes"), `${lock.votes} of ${model.overview.cluster.configured}`);
  setText(part(row, "waiters"), lock.waiters === 0 ? "–" : number(lock.waiters));
  setAttribute(row, "data-state", lock.state);
  if (part(row, "age").textContent === "") fillTimes(row, elapsed());
}

function fillTimes(row, passed) {
  const { lock } = row;
  const left = timeLeft(lock, passed);
  const held = age(lock, passed);
  setText(part(row, "age"), duration(held));
  fillBar(row, left, span(lock));
  const marks = [];
  if (lock.state === "split") marks.push("split");
  if (left !== null && left <= 0) marks.push("run out");
  else if (isShort(left, span(lock))) marks.push("ends soon");
  if (held !== null && held >= LONG_HELD_MS) marks.push("long held");
  const words = marks.join(" · ");
  setText(part(row, "marks"), words);
  setAttribute(row, "data-stale", held !== null && held >= LONG_HELD_MS ? "yes" : null);
}

/** What goes on between two updates. */
export function tickLocks() {
  const passed = elapsed();
  const all = performance.now() - seldom_at > SELDOM_MS;
  if (all) seldom_at = performance.now();
  for (const row of byId("lock-rows").children) if (all || row.in_sight) fillTimes(row, passed);
}
