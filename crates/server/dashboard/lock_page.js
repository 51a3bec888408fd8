// The page of one lock: who holds it and for how long, what each node says, what happened, and what can be done.

import { get, lockPath } from "./api.js";
import { copyButton, foreign, h, part, reconcile, setAttribute, setText } from "./dom.js";
import { eventItem } from "./events.js";
import { openForce } from "./force.js";
import { clock, duration, plural, shellWord } from "./format.js";
import { model, now } from "./model.js";
import { Stream } from "./stream.js";
import { fillBar, makeBar } from "./time_left.js";
import { fillVote, makeVote } from "./votes.js";

/** Renewals and votes are not told by events of other instances: look again this often. */
const LOOK_EVERY_MS = 1000;
/** The server says something on a lock's stream every 15 s. */
const SILENCE_MS = 20_000;
const HISTORY = 50;
const DIGITS = new Set(["fence", "highest", "holder-id"]);

export class LockPage {
  constructor(parent, name, on_refused) {
    Object.assign(this, { parent, name, on_refused });
    this.lock = null;
    this.stream = null;
    this.history = [];
    this.is_cut = false;
    this.numbered = 0;
  }

  open() {
    this.parent.replaceChildren(...this.build());
    if (lockPath(this.name) === null) {
      this.fail(
        "A lock of this name cannot be asked for by a browser, which reads it as a step in a path. Use `leasehold status`.",
      );
      return;
    }
    this.wake();
  }

  wake() {
    if (this.stream || lockPath(this.name) === null) return;
    this.look();
    this.looking = setInterval(() => this.look(), LOOK_EVERY_MS);
    this.stream = new Stream(`${lockPath(this.name)}/events`, SILENCE_MS, {
      event: (type, event) => this.happened(type, event),
      alive: () => {},
      cut: () => {},
      refused: () => {},
    });
    this.stream.start();
  }

  sleep() {
    clearInterval(this.looking);
    this.stream?.stop();
    this.stream = null;
  }

  /** The server says nothing any more. */
  cut(since) {
    this.is_cut = true;
    this.isUnknown(since);
  }

  goOn() {
    this.is_cut = false;
    this.look();
  }

  /** Nobody can tell who holds it: what is shown was so at `since`. */
  isUnknown(since) {
    setText(part(this.facts, "state"), since ? `Unknown since ${clock(since)}` : "Unknown");
    setAttribute(this.facts, "data-state", "unknown");
    this.columns.classList.add("unknown");
    this.columns.hidden = this.lock === null;
    this.force.disabled = true;
  }

  close() {
    this.sleep();
    this.parent.replaceChildren();
  }

  build() {
    this.title = h(
      "h1",
      { tabindex: "-1", id: "lock-title" },
      h("span", { class: "quiet" }, "Lock "),
      foreign(this.name),
    );
    this.problem = h("p", { class: "problem", role: "alert" });
    this.result = h("p", { class: "result", hidden: true });
    this.facts = this.buildFacts();
    this.votes = h("tbody", { role: "rowgroup", id: "vote-rows" });
    this.votes_words = h("p", { class: "meaning" });
    this.list = h("ol", { class: "event-list", tabindex: "0", "aria-labelledby": "history-title" });
    this.no_history = h("p", { class: "empty" }, "This instance knows of nothing that happened to it.");
    const heads = ["Node", "Says", "Time left"].map((label) =>
      h("th", { role: "columnheader", scope: "col", class: label === "Time left" ? "number" : null }, label),
    );
    this.columns = this.buildColumns(heads);
    return [
      h("p", {}, h("a", { href: "#/", class: "back" }, "← All locks")),
      this.title,
      this.problem,
      this.result,
      this.columns,
    ];
  }

  buildColumns(heads) {
    return h(
      "div",
      { class: "lock-columns live" },
      h("div", { class: "stack" }, this.facts, this.buildCommands()),
      h(
        "div",
        { class: "stack" },
        h(
          "section",
          { class: "panel", "aria-labelledby": "votes-title" },
          h("h2", { id: "votes-title" }, "What each node says"),
          this.votes_words,
          h(
            "table",
            { role: "table", class: "cards votes" },
            h("caption", { class: "off-screen" }, "The lock as each node has it"),
            h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, ...heads)),
            this.votes,
          ),
        ),
        h(
          "section",
          { class: "panel", "aria-labelledby": "history-title" },
          h("h2", { id: "history-title" }, "History"),
          this.list,
          this.no_history,
        ),
      ),
    );
  }

  buildFacts() {
    const fact = (term, name, ...more) => [
      h("dt", {}, term),
      h("dd", {}, h("bdi", { "data-part": name, class: DIGITS.has(name) ? "digits" : null }), ...more),
    ];
    this.copy_fence = copyButton("the fence", () => String(this.lock.fence));
    this.force = h(
      "button",
      { type: "button", class: "danger", id: "force-open", onclick: () => this.forceRelease() },
      "Force release …",
    );
    return h(
      "section",
      { class: "panel", "aria-labelledby": "state-title" },
      h("h2", { id: "state-title" }, "State"),
      h("p", { class: "headline", "data-part": "state" }, "…"),
      makeBar(),
      h(
        "dl",
        { class: "facts" },
        ...fact("Holder", "holder"),
        ...fact("Reason", "reason"),
        ...fact("Held for", "age"),
        ...fact("Waiting", "waiters"),
        ...fact("Fence", "fence", this.copy_fence),
        ...fact("Highest fence", "highest"),
        ...fact("Holder id", "holder-id"),
      ),
      this.force,
      h("p", { class: "hint", "data-part": "force-hint" }),
    );
  }

  buildCommands() {
    this.commands = h("ul", { class: "commands" });
    return h(
      "section",
      { class: "panel", "aria-labelledby": "commands-title" },
      h("h2", { id: "commands-title" }, "On the command line"),
      h("p", { class: "hint" }, "With the same --backend as the server."),
      this.commands,
    );
  }

  async look() {
    if (this.is_looking || this.is_cut) return;
    this.is_looking = true;
    const asked_at = performance.now();
    try {
      const lock = await get(lockPath(this.name));
      if (this.is_cut) return;
      this.received_at = asked_at;
      this.seen_at = new Date();
      const first = this.lock === null;
      this.lock = lock;
      if (first) this.startHistory(lock.history);
      setText(this.problem, "");
      this.fill();
    } catch (error) {
      if (error.status === 401) this.on_refused(error);
      else if (!this.is_cut) {
        this.fail(error.message);
        this.isUnknown(this.seen_at);
      }
    } finally {
      this.is_looking = false;
    }
  }

  fail(words) {
    setText(this.problem, words);
  }

  startHistory(history) {
    this.history = history.map((event) => this.number(event));
    this.drawHistory();
  }

  number(event) {
    return { ...event, number: (this.numbered += 1) };
  }

  happened(type, event) {
    if (type === "hello" || this.lock === null) return;
    if (type === "reset") {
      this.lock = null;
    } else {
      this.history.unshift(this.number({ ...event, type }));
      this.history.length = Math.min(this.history.length, HISTORY);
      this.drawHistory();
    }
    this.look();
  }

  drawHistory() {
    reconcile(
      this.list,
      this.history,
      (event) => event.number,
      (event) => eventItem(event, false),
      () => {},
    );
    this.list.hidden = this.history.length === 0;
    this.no_history.hidden = this.history.length > 0;
  }

  fill() {
    const { lock, facts } = this;
    const set = (name, value) => setText(part(facts, name), value ?? "–");
    setAttribute(facts, "data-state", lock.state);
    this.columns.classList.remove("unknown");
    this.columns.hidden = false;
    set("state", STATES[lock.state] ?? lock.state);
    set("holder", lock.holder);
    set("fence", lock.fence);
    set("highest", lock.highest_fence);
    this.setFact("holder", lock.holder !== null);
    this.setFact("age", lock.held_for_ms !== null);
    this.setFact("fence", lock.fence !== null);
    this.setFact("holder-id", lock.holder_id !== null);
    // Attempts that did not succeed leave a higher one.
    this.setFact("highest", lock.highest_fence !== null && lock.highest_fence !== lock.fence);
    set("reason", lock.reason);
    this.setFact("reason", Boolean(lock.reason));
    set("waiters", `${lock.waiters === 0 ? "nobody" : plural(lock.waiters, "request")} at this instance`);
    set("holder-id", lock.holder_id);
    this.fillForce();
    setText(
      this.votes_words,
      lock.state === "free" && lock.answered === lock.nodes.length
        ? `All ${lock.answered} nodes say that it is free.`.replace("All 1 nodes say", "The node says")
        : `${lock.votes} of ${plural(lock.nodes.length, "node")} vote for the holder, ${lock.quorum} needed.`,
    );
    reconcile(
      this.votes,
      lock.nodes,
      (node) => node.node,
      makeVote,
      (row, node) => fillVote(row, node, lock),
    );
    this.fillCommands();
    this.tick();
  }

  /** A line of facts that says nothing is not there. */
  setFact(name, is_there) {
    const value = part(this.facts, name).parentElement;
    value.hidden = !is_there;
    value.previousElementSibling.hidden = !is_there;
  }

  fillForce() {
    const { lock } = this;
    const may = model.overview.caller.may_force_release;
    this.force.hidden = !may;
    this.force.disabled = lock.state === "free" || lock.fence === null;
    let hint = "";
    if (lock.state === "free") hint = may ? "Nobody holds it." : "";
    else if (!may) hint = "To release it by force, log in with a token that has the scope admin.";
    else if (lock.fence === null) hint = "It has no fence: held by another library, or by nobody with a quorum.";
    setText(part(this.facts, "force-hint"), hint);
  }

  fillCommands() {
    const name = this.name.startsWith("-") ? `-- ${shellWord(this.name)}` : shellWord(this.name);
    const commands = [`leasehold status ${name}`, `leasehold watch ${name}`];
    if (this.lock.fence !== null && model.overview.caller.may_force_release)
      commands.push(`leasehold force-release --fence ${this.lock.fence} --reason 'why' ${name}`);
    reconcile(
      this.commands,
      commands,
      (command) => command,
      (command) =>
        h(
          "li",
          {},
          h("code", {}, foreign(command)),
          copyButton("the command", () => command),
        ),
      () => {},
    );
  }

  forceRelease() {
    openForce(this.lock, (words) => {
      setText(this.result, words);
      this.result.hidden = false;
      this.title.focus();
      this.look();
    });
  }

  /** What goes on between two looks. */
  tick() {
    const { lock, facts } = this;
    if (lock === null) return;
    const passed = Math.max(0, now() - this.received_at);
    const left = lock.expires_in_ms === null ? null : Math.max(0, lock.expires_in_ms - passed);
    // Only the instance that granted it knows how long it is.
    fillBar(facts, left, lock.ttl_ms);
    setText(part(facts, "age"), lock.held_for_ms === null ? "–" : duration(lock.held_for_ms + passed));
  }
}

const STATES = { held: "Held", free: "Free", split: "Split: nobody has a quorum" };
