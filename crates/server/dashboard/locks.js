// The table of locks. Without a search it shows what the stream brings: the first hundred, held longest first. A
// search, another order or a later page is asked of the server, which looks through all locks.

import { get } from "./api.js";
import { announce, h, reconcile, setAttribute, setText } from "./dom.js";
import { clock, number, plural } from "./format.js";
import { fillRow, fillTimes, makeRow } from "./lock_row.js";
import { model, now, quorumOf } from "./model.js";

/** Rows on a page: on a phone what comes after them is not a mile away. */
const PAGE = matchMedia("(max-width: 620px)").matches ? 20 : 50;
/** What was found is asked for again this often. */
const AGAIN_MS = 1000;
const TYPING_MS = 150;
/** A list older than this says so. */
const OLD_MS = 10_000;

const COLUMNS = [
  { key: "name", label: "Lock" },
  { key: "holder", label: "Holder" },
  { key: "held", label: "Held for", first: "-", number: true },
  { key: "left", label: "Time left", number: true },
  { key: "waiting", label: "Waiting here", first: "-", number: true, long: "requests that wait at this instance" },
];
const LONGEST_FIRST = "-held";

const byId = (id) => document.getElementById(id);
let wanted = { search: "", sort: LONGEST_FIRST, page: 0 };
/** What the server answered to `wanted`, and when. */
let found = null;
let asked_at = 0;
let asking = null;
let typing = null;

export function startLocks() {
  byId("locks-head").append(...COLUMNS.map(makeHead));
  showOrder();
  byId("locks-filter").addEventListener("input", (event) => {
    clearTimeout(typing);
    typing = setTimeout(() => want({ search: event.target.value.trim(), page: 0 }), TYPING_MS);
  });
  byId("locks-previous").addEventListener("click", () => turn(-1));
  byId("locks-next").addEventListener("click", () => turn(1));
}

function makeHead(column) {
  const attributes = { role: "columnheader", scope: "col", class: column.number ? "number" : null };
  const more = column.long ? h("span", { class: "off-screen" }, ` (${column.long})`) : null;
  const button = h("button", { type: "button", class: "sort", title: column.long ?? null }, column.label, more);
  button.addEventListener("click", () => sortBy(column));
  return h("th", { ...attributes, "data-column": column.key }, button);
}

function sortBy({ key, first = "" }) {
  const other = first === "-" ? key : `-${key}`;
  want({ sort: wanted.sort === `${first}${key}` ? other : `${first}${key}`, page: 0 });
  showOrder();
}

function showOrder() {
  for (const head of byId("locks-head").children) {
    const { column } = head.dataset;
    const sorted = { [column]: "ascending", [`-${column}`]: "descending" }[wanted.sort];
    setAttribute(head, "aria-sort", (column && sorted) || null);
  }
}

function turn(pages) {
  const page = wanted.page + pages;
  if (page < 0 || page * PAGE >= shown().found) return;
  want({ page });
  byId("locks").scrollIntoView({ block: "start" });
}

function want(change) {
  const had = wanted.search;
  wanted = { ...wanted, ...change };
  found = null;
  asking?.abort();
  asking = null;
  if (isTold()) showLocks();
  else ask(wanted.search !== had);
}

/** Whether the stream brings what is wanted. */
function isTold() {
  const { items, found: all } = model.overview.locks;
  const end = Math.min(all, (wanted.page + 1) * PAGE);
  return wanted.search === "" && wanted.sort === LONGEST_FIRST && end <= items.length;
}

async function ask(is_said) {
  const own = (asking = new AbortController());
  asked_at = performance.now();
  const query = new URLSearchParams({
    search: wanted.search,
    sort: wanted.sort,
    offset: wanted.page * PAGE,
    limit: PAGE,
  });
  let answer;
  try {
    answer = { ...(await get(`/v1/overview/locks?${query}`)), received_at: performance.now() };
  } catch (error) {
    answer = { error };
  }
  if (asking !== own) return;
  asking = null;
  found = answer;
  if (is_said && !found.error) announce(`${plural(found.found, "lock")} found`);
  // Locks went, and the page is behind the end.
  if (found.items?.length === 0 && wanted.page > 0) want({ page: Math.max(0, Math.ceil(found.found / PAGE) - 1) });
  else showLocks();
}

/** What the table is about: the rows, how many there are, and when they were told. */
function shown() {
  const { locks } = model.overview;
  if (!isTold()) return found ?? { ...locks, items: null };
  const items = locks.items.slice(wanted.page * PAGE, (wanted.page + 1) * PAGE);
  return { ...locks, items, received_at: model.received_at };
}

export function showLocks() {
  if (!model.overview) return;
  if (!isTold() && !asking && performance.now() - asked_at >= AGAIN_MS) ask(false);
  const { held } = model.overview.locks;
  const table = shown();
  const is_lost = showNote(table);
  showCount(table, is_lost ? `${number(held)} held when last seen` : `${number(held)} held`);
  byId("first-lock").hidden = held > 0;
  const is_typing = document.activeElement === byId("locks-filter");
  byId("locks-search").hidden = held === 0 && wanted.search === "" && !is_typing;
  // Until the answer comes, what stands there stands.
  if (table.items === null) return;
  const items = table.items ?? [];
  showPager(table);
  setText(byId("locks-empty"), wanted.search === "" ? "No lock is held." : `No lock matches “${wanted.search}”.`);
  byId("locks-empty").hidden = items.length > 0 || Boolean(table.error);
  byId("locks-table").hidden = items.length === 0;
  // A column of nothing says nothing.
  const { waiters } = model.overview.locks;
  setAttribute(byId("locks-table"), "data-waiting", waiters > 0 || wanted.sort.endsWith("waiting") ? "yes" : "no");
  reconcile(
    byId("lock-rows"),
    items,
    (lock) => lock.name,
    makeRow,
    (row, lock) => fillRow(row, lock, table.received_at),
  );
}

function showCount(table, in_all) {
  const { held, waiters } = model.overview.locks;
  const words = held > 0 ? [in_all] : [];
  if (wanted.search !== "" && table.items) words[0] = `${number(table.found)} of ${number(held)} match`;
  if (waiters > 0) words.push(`${plural(waiters, "request")} ${waiters === 1 ? "waits" : "wait"} at this instance`);
  setText(byId("locks-count"), words.join(" · "));
}

function showPager(table) {
  const first = wanted.page * PAGE;
  byId("locks-pager").hidden = Boolean(table.error) || table.found <= PAGE;
  const last = Math.min(first + PAGE, table.found);
  setText(byId("locks-range"), `${number(first + 1)}–${number(last)} of ${number(table.found)}`);
  // They stay reachable: a button that is disabled would lose the focus.
  setAttribute(byId("locks-previous"), "aria-disabled", String(wanted.page === 0));
  setAttribute(byId("locks-next"), "aria-disabled", String(last >= table.found));
}

/** Says so if the rows are not of now, and whether that is because too few nodes can tell who holds what. */
function showNote(table) {
  const { cluster, locks } = model.overview;
  const age = locks.seen_ms_ago + (now() - model.received_at);
  const seen = clock(new Date(Date.now() - age));
  const is_lost = quorumOf(cluster).level === "lost" && age > AGAIN_MS * 2;
  let words = "";
  if (table.error) words = `The locks could not be searched. ${table.error.message}`;
  else if (is_lost) words = `Too few nodes answer to tell who holds what: this was seen at ${seen}.`;
  else if (age > OLD_MS) words = `Seen at ${seen}: with so many locks the nodes are asked less often.`;
  setText(byId("locks-note"), words);
  byId("locks-note").hidden = words === "";
  setAttribute(byId("locks"), "data-unknown", is_lost ? "yes" : null);
  return is_lost;
}

/** What goes on between two updates. */
export function tickLocks() {
  for (const row of byId("lock-rows").children) fillTimes(row);
}
