// The page: who is logged in, which view is shown, and the stream that feeds it.

import { get, mustLogInFirst, setToken, token } from "./api.js";
import { showCluster, showUnknown, startCluster, tickCluster } from "./cluster.js";
import { announce, setAttribute, setText } from "./dom.js";
import { addEvent, startEvents, tickEvents } from "./events.js";
import { showFirstLock } from "./first_lock.js";
import { clock, duration } from "./format.js";
import { LockPage } from "./lock_page.js";
import { showLocks, startLocks, tickLocks } from "./locks.js";
import { elapsed, freeze, model, take, thaw } from "./model.js";
import { showSparks, startSparks } from "./sparks.js";
import { Stream } from "./stream.js";

/** The server says something every half second; after four times that the page no longer trusts what it shows. */
const SILENCE_MS = 2000;
const TICK_MS = 250;
/** A browser opens six connections to a server, and each stream keeps one: a tab that nobody sees gives its up. */
const HIDDEN_MS = 30_000;

const byId = (id) => document.getElementById(id);
let lock_page = null;
let hide_timer = null;
/** Since when nothing is known any more; null while the stream is alive. */
let unknown_since = null;
/** Whether the overview is younger than the stream. */
let is_fresh = false;

const stream = new Stream("/v1/events", SILENCE_MS, {
  event: happened,
  alive: streamIsAlive,
  cut: streamIsCut,
  refused: mustLogIn,
});

async function enter() {
  try {
    if (await mustLogInFirst()) return mustLogIn(null);
    take(await get("/v1/overview"));
  } catch (error) {
    if (error.status === 401 || error.status === 403) return mustLogIn(error.status);
    setText(byId("starting"), `${error.message} Trying again …`);
    setTimeout(enter, 1000);
    return;
  }
  byId("starting").hidden = true;
  byId("log-in").hidden = true;
  for (const id of ["about", "stream"]) byId(id).hidden = false;
  byId("log-out").hidden = !token();
  showFirstLock(model.overview.cluster.backend);
  show();
  is_fresh = true;
  // From its first event on, so that the page also tells what happened before it was opened.
  stream.last_id = `${model.overview.server.instance}-0`;
  stream.start();
}

function mustLogIn(status) {
  leave();
  const words = {
    401: token() ? "The server does not know this token, or it has expired." : "",
    403: "This token may not see the dashboard: that needs the scope read.",
  };
  setText(byId("log-in-problem"), words[status] ?? "");
  setToken(null);
  byId("starting").hidden = true;
  byId("log-in").hidden = false;
  byId("token").value = "";
  byId("token").focus();
}

function leave() {
  stream.stop();
  lock_page?.close();
  lock_page = null;
  byId("force").close();
  model.overview = null;
  unknown_since = null;
  thaw();
  document.body.classList.remove("stale");
  for (const id of ["quorum", "overview", "lock", "about", "stream", "log-out"]) byId(id).hidden = true;
  document.title = "Leasehold";
}

/** Shows the view that the address names. */
function show() {
  if (!model.overview || (location.hash !== "" && !location.hash.startsWith("#/"))) return;
  const name = lockInAddress();
  lock_page?.close();
  lock_page = null;
  byId("overview").hidden = name !== null;
  byId("lock").hidden = name === null;
  if (name === null) {
    update();
    return;
  }
  lock_page = new LockPage(byId("lock"), name, (error) => mustLogIn(error.status));
  lock_page.open();
  if (unknown_since) lock_page.cut(unknown_since);
  update();
}

function lockInAddress() {
  const encoded = /^#\/locks\/(.+)$/s.exec(location.hash)?.[1];
  try {
    return encoded === undefined ? null : decodeURIComponent(encoded);
  } catch {
    return encoded;
  }
}

function happened(type, event) {
  if (type === "overview") {
    take(event);
    isKnown();
    update();
  } else if (type === "reset") {
    reload();
  } else if (type === "hello") {
    // Another server, or other scopes: only an answer to this page tells.
    if (!is_fresh) reload();
    is_fresh = false;
  } else {
    addEvent({ ...event, type });
  }
}

/** After a gap the curves need the points that were missed. */
async function reload() {
  try {
    take(await get("/v1/overview"));
    isKnown();
    update();
  } catch {
    // The stream brings the next one, or says that it is cut.
  }
}

function update() {
  const { server } = model.overview;
  setText(byId("version"), server.version);
  setText(byId("instance"), server.instance);
  if (unknown_since) showUnknown(unknown_since, lock_page?.name);
  else showCluster(lock_page?.name);
  if (lock_page === null) {
    showLocks();
    showSparks();
  }
  tick();
}

function tick() {
  if (!model.overview) return;
  setText(byId("uptime"), duration(model.overview.server.uptime_ms + elapsed()));
  tickCluster();
  if (lock_page === null) tickLocks();
  else lock_page.tick();
  tickEvents();
}

function streamIsAlive() {
  setAttribute(byId("stream"), "data-state", "alive");
  setText(byId("stream-words"), "live");
  if (unknown_since) reload();
}

function streamIsCut(since) {
  unknown_since = since;
  freeze();
  document.body.classList.add("stale");
  setAttribute(byId("stream"), "data-state", "cut");
  setText(byId("stream-words"), "cut off");
  lock_page?.cut(since);
  if (model.overview) update();
  announce(`Cut off from the server. Everything is unknown since ${clock(since)}.`);
}

/** Something was told again. */
function isKnown() {
  if (!unknown_since) return;
  unknown_since = null;
  thaw();
  document.body.classList.remove("stale");
  lock_page?.goOn();
  announce("Live updates are back.");
}

function startLogIn() {
  byId("log-in-form").addEventListener("submit", (event) => {
    event.preventDefault();
    setToken(byId("token").value.trim());
    enter();
  });
  byId("log-out").addEventListener("click", () => mustLogIn(null));
}

function startRoutes() {
  addEventListener("hashchange", () => {
    show();
    const title = lock_page?.title ?? byId("overview-title");
    title.focus();
  });
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault();
    byId("main").focus();
  });
}

function startHiding() {
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hide_timer);
    if (document.hidden) hide_timer = setTimeout(sleep, HIDDEN_MS);
    else if (model.overview && !stream.running) wake();
  });
}

function sleep() {
  stream.stop();
  lock_page?.sleep();
}

function wake() {
  reload();
  stream.start();
  lock_page?.wake();
}

startLocks();
startEvents();
startCluster();
startSparks();
startLogIn();
startRoutes();
startHiding();
setInterval(tick, TICK_MS);
enter();
