// What happened, newest first: bounded, and standing still on request, so that a line can be read and selected.

import { foreign, h, reconcile, setAttribute, setText } from "./dom.js";
import { clock, duration, number, plural } from "./format.js";
import { lockLink } from "./lock_row.js";

const KEPT = 1000;
const SHOWN = 200;
/** Who waited shorter did not have to. */
const WORTH_TELLING_MS = 100;

/** Each kind: the word shown, and its tone. */
const KINDS = {
  acquired: "plain",
  released: "plain",
  expired: "warn",
  lost: "bad",
  refused: "warn",
  waiting: "plain",
  "force-released": "bad",
  node: "warn",
  audit: "plain",
};

const byId = (id) => document.getElementById(id);
const hidden_kinds = new Set();
let events = [];
let count = 0;
let missed = 0;
let paused = false;
let is_changed = false;

export function startEvents() {
  for (const kind of Object.keys(KINDS)) byId("kinds").append(kindBox(kind));
  byId("kinds-toggle").addEventListener("click", () => {
    byId("kinds").hidden = !byId("kinds").hidden;
    setAttribute(byId("kinds-toggle"), "aria-expanded", String(!byId("kinds").hidden));
  });
  byId("events-pause").addEventListener("click", () => {
    paused = !paused;
    missed = 0;
    is_changed = true;
    tickEvents();
  });
}

function kindBox(kind) {
  const box = h("input", { type: "checkbox", checked: true });
  box.addEventListener("change", () => {
    if (box.checked) hidden_kinds.delete(kind);
    else hidden_kinds.add(kind);
    draw();
  });
  return h("label", { class: "kind" }, box, h("span", {}, kind));
}

export function addEvent(event) {
  if (!(event.type in KINDS)) return;
  events.unshift({ ...event, number: (count += 1) });
  events.length = Math.min(events.length, KEPT);
  if (paused) missed += 1;
  is_changed = true;
}

/** Drawn a few times a second, however many come. */
export function tickEvents() {
  if (!is_changed) return;
  is_changed = false;
  setText(byId("events-pause"), paused ? `Go on${missed > 0 ? ` (${number(missed)} new)` : ""}` : "Pause");
  setAttribute(byId("events-pause"), "aria-pressed", String(paused));
  if (!paused) draw();
}

function draw() {
  setText(byId("kinds-toggle"), hidden_kinds.size > 0 ? `Filter (${hidden_kinds.size})` : "Filter");
  const shown = events.filter((event) => !hidden_kinds.has(event.type)).slice(0, SHOWN);
  reconcile(
    byId("event-list"),
    shown,
    (event) => event.number,
    (event) => eventItem(event, true),
    () => {},
  );
  const none =
    events.length === 0 ? "This instance knows of nothing that happened." : "Nothing of these kinds has happened.";
  setText(byId("events-empty"), none);
  byId("events-empty").hidden = shown.length > 0;
  byId("event-list").hidden = shown.length === 0;
}

/** A line about an event, with the lock's name unless it is told elsewhere. */
export function eventItem(event, with_name) {
  const about = with_name && typeof event.name === "string" ? lockLink(event.name) : null;
  const time = h("time", { datetime: event.at, title: event.at }, clock(new Date(event.at)));
  const kind = h("span", { class: "kind-word", "data-tone": KINDS[event.type] ?? "plain" }, event.type);
  const told = h("span", { class: "event-words" }, kind, " ", ...words(event, with_name));
  return h("li", { "data-kind": event.type }, about, about === null ? told : time, about === null ? time : told);
}

/** On the page of a lock its fence is worth the room. */
function words(event, with_name) {
  const parts = [];
  const add = (text, foreign_text = null) =>
    parts.push(`${parts.length > 0 ? ", " : ""}${text}`, ...(foreign_text === null ? [] : [foreign(foreign_text)]));
  if (event.type === "node") add(`${event.node} was ${event.was}, is ${event.state}`);
  if (event.type === "audit") add(event.what ?? "");
  if (event.holder) add("by ", event.holder);
  if (event.by) add("by token ", event.by);
  if (event.waited_ms >= WORTH_TELLING_MS) add(`after ${duration(event.waited_ms)} of waiting`);
  if (event.waiters > 0) add(`${plural(event.waiters, "request")} at this instance`);
  if (event.fence && !with_name) add(`fence ${event.fence}`);
  if (event.why) add("", event.why);
  if (event.reason) add("reason: ", event.reason);
  if (event.seen) add("seen on the nodes");
  return parts;
}
