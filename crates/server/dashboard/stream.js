// Server-sent events by fetch, because EventSource cannot send the Authorization header.
//
// A stream is alive as long as something comes; `silence_ms` without anything makes it cut, and says so. It is
// then opened anew, with the id of the last event, so that nothing is missed.

import { headers } from "./api.js";

/** A cut stream may still come back by itself (a stopped server, a slow network); after this it is opened anew. */
const GIVE_UP_MS = 4000;
const WAIT_MIN_MS = 300;
const WAIT_MAX_MS = 5000;

export class Stream {
  /** `on`: { event(type, data), alive(), cut(since: Date), refused(status) } */
  constructor(path, silence_ms, on) {
    Object.assign(this, { path, silence_ms, on });
    this.last_id = null;
    this.wait_ms = WAIT_MIN_MS;
    this.state = "connecting";
    this.running = null;
  }

  start() {
    if (this.running) return;
    this.running = new AbortController();
    this.state = "connecting";
    this.note();
    this.watch = setInterval(() => this.look(), 100);
    this.run(this.running.signal);
  }

  stop() {
    this.running?.abort();
    this.running = null;
    this.attempt?.abort();
    clearInterval(this.watch);
  }

  async run(stopped) {
    while (!stopped.aborted) {
      this.attempt = new AbortController();
      this.attempt_at = performance.now();
      try {
        const status = await this.read(this.attempt.signal);
        if (status === 401 || status === 403) {
          this.stop();
          this.on.refused(status);
          return;
        }
      } catch {
        // The connection broke; why does not matter: it is opened anew.
      }
      if (stopped.aborted) return;
      // Half of it by chance, so that many pages do not come back at once.
      await new Promise((resolve) => setTimeout(resolve, this.wait_ms * (0.5 + Math.random() / 2)));
      this.wait_ms = Math.min(this.wait_ms * 2, WAIT_MAX_MS);
    }
  }

  /** Reads until the end; gives the status if it was refused. */
  async read(signal) {
    const more = { Accept: "text/event-stream" };
    if (this.last_id) more["Last-Event-ID"] = this.last_id;
    const response = await fetch(this.path, { headers: headers(more), cache: "no-store", signal });
    if (!response.ok) return response.status;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done || signal.aborted) return null;
      this.heard();
      this.wait_ms = WAIT_MIN_MS;
      const blocks = (rest + value).split(/\r?\n\r?\n/);
      rest = blocks.pop();
      for (const block of blocks) this.dispatch(block);
    }
  }

  dispatch(block) {
    let type = "message";
    const data = [];
    for (const line of block.split(/\r?\n/)) {
      const [, field, value] = /^([^:]*):? ?(.*)$/.exec(line);
      if (field === "event") type = value;
      else if (field === "data") data.push(value);
      else if (field === "id") this.last_id = value;
    }
    if (data.length === 0) return;
    let told;
    try {
      told = JSON.parse(data.join("\n"));
    } catch {
      return;
    }
    this.on.event(type, told);
  }

  heard() {
    this.note();
    if (this.state === "alive") return;
    this.state = "alive";
    this.on.alive();
  }

  note() {
    this.heard_at = performance.now();
    this.heard_date = new Date();
  }

  look() {
    const now = performance.now();
    const silent = now - this.heard_at;
    if (silent > this.silence_ms && this.state !== "cut") {
      this.state = "cut";
      this.on.cut(this.heard_date);
    }
    const gives_up = this.silence_ms + GIVE_UP_MS;
    if (silent > gives_up && now - this.attempt_at > gives_up) {
      this.attempt_at = now;
      this.attempt?.abort();
    }
  }
}
