// What this instance did, as small curves: each begins where its data does and grows to five minutes. A curve says
// nothing to a screen reader, so each has a sentence with its numbers.

import { h, setAttribute, setText } from "./dom.js";
import { clock, latency, number, percent } from "./format.js";
import { COLUMN, model } from "./model.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [120, 30];
/** Seconds over which contention is a share: a single second has too few attempts. */
const WINDOW_S = 60;
/** A curve is at least so long, or its first seconds would jump about. */
const SHORTEST_S = 30;

const perSecond = (value) => `${number(value)} /s`;
const column = (name) => (points) => points.map((point) => point[COLUMN[name]]);
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
const most = (values) => Math.max(...values);

/** Single seconds of a few requests are noise: each point tells of the seconds before it, too. */
const over = (seconds, fold, values_of) => (points) => {
  const values = values_of(points);
  return values.map((_, i) => {
    const known = values.slice(Math.max(0, i + 1 - seconds), i + 1).filter((value) => value !== null);
    return known.length > 0 ? fold(known) : null;
  });
};

const CURVES = [
  { label: "Acquired", write: perSecond, values: over(5, mean, column("acquired")), least_top: 1 },
  { label: "Time to acquire", note: "p99", write: latency, values: over(15, most, column("p99")), least_top: 1 },
  { label: "Contention", note: "in 1 min", write: percent, values: contention, least_top: 0.1 },
  { label: "Locks held", note: "at all instances", write: number, latest: () => model.overview?.locks.held, values: column("held"), least_top: 1 },
  { label: "Failed", write: perSecond, values: column("failed"), least_top: 1, only_if_any: true },
];

function contention(points) {
  const shares = [];
  let [met, all, from] = [0, 0, 0];
  for (const point of points) {
    met += point[COLUMN.contended];
    all += attempts(point);
    while (points[from][COLUMN.at] <= point[COLUMN.at] - WINDOW_S) {
      met -= points[from][COLUMN.contended];
      all -= attempts(points[from]);
      from += 1;
    }
    shares.push(all > 0 ? Math.max(0, met / all) : 0);
  }
  return shares;
}

function attempts(point) {
  return point[COLUMN.acquired] + point[COLUMN.contended] + point[COLUMN.failed];
}

class Spark {
  constructor(spec) {
    this.spec = spec;
    this.area = document.createElementNS(SVG, "path");
    this.area.setAttribute("class", "area");
    this.line = document.createElementNS(SVG, "path");
    this.line.setAttribute("class", "line");
    this.svg = document.createElementNS(SVG, "svg");
    for (const [name, value] of [
      ["viewBox", `0 0 ${WIDTH} ${HEIGHT}`],
      ["preserveAspectRatio", "none"],
      ["role", "img"],
    ])
      this.svg.setAttribute(name, value);
    this.svg.append(this.area, this.line);
    this.value = h("span", { class: "value" });
    this.note = h("span", { class: "quiet" });
    const label = h("span", {}, spec.label, " ", this.note);
    const attributes = { hidden: spec.only_if_any, "data-bad": spec.only_if_any };
    this.element = h("li", attributes, label, this.svg, this.value);
    this.element.addEventListener("pointermove", (event) => this.point(event));
    this.element.addEventListener("pointerleave", () => {
      this.under = null;
      this.write();
    });
    this.under = null;
  }

  draw(times, span) {
    this.values = this.spec.values(model.points);
    this.times = times;
    const known = this.values.filter((value) => value !== null);
    if (this.spec.only_if_any) this.element.hidden = !known.some((value) => value > 0);
    const top = Math.max(this.spec.least_top, ...known) * 1.05;
    const x = (i) => (((times[i] - times[0]) / span) * WIDTH).toFixed(1);
    const y = (value) => (HEIGHT - 1 - (value / top) * (HEIGHT - 2)).toFixed(1);
    // Seconds without a value are bridged: nothing was measured in them.
    const at = this.values.flatMap((value, i) => (value === null ? [] : [i]));
    const steps = at.map((i, n) => `${n === 0 ? "M" : "L"}${x(i)},${y(this.values[i])}`).join("");
    setAttribute(this.line, "d", steps);
    const is_area = at.length > 1;
    setAttribute(this.area, "d", is_area ? `${steps}L${x(at.at(-1))},${HEIGHT}L${x(at[0])},${HEIGHT}Z` : "");
    this.span = span;
    this.write();
  }

  /** The value under the pointer, or the latest. */
  write() {
    if (!this.values) return;
    const at = this.under ?? this.values.length - 1;
    // The count beside the table and the one here are of the same moment.
    const latest = this.under === null ? this.spec.latest?.() : undefined;
    setText(this.value, this.spec.write(latest ?? this.values[at] ?? null));
    setText(this.note, this.under === null ? (this.spec.note ?? "") : `at ${clock(new Date(this.times[at] * 1000))}`);
  }

  point(event) {
    if (!this.times?.length) return;
    const { left, width } = this.svg.getBoundingClientRect();
    const wanted = this.times[0] + ((event.clientX - left) / width) * this.span;
    const later = this.times.findIndex((time) => time >= wanted);
    this.under = wanted < this.times[0] ? 0 : later < 0 ? this.times.length - 1 : later;
    this.write();
  }

  describe() {
    const known = (this.values ?? []).filter((value) => value !== null);
    const write = this.spec.write;
    const words =
      known.length === 0
        ? "nothing yet"
        : `now ${write(known.at(-1))}, from ${write(Math.min(...known))} to ${write(Math.max(...known))}`;
    setAttribute(this.svg, "aria-label", `${this.spec.label}: ${words}`);
  }
}

const sparks = CURVES.map((spec) => new Spark(spec));
let drawn_version = -1;

export function startSparks() {
  document.getElementById("sparks").append(...sparks.map((spark) => spark.element));
  setInterval(() => sparks.forEach((spark) => spark.describe()), 5000);
}

export function showSparks() {
  if (drawn_version === model.points_version) {
    sparks.filter((spark) => spark.spec.latest).forEach((spark) => spark.write());
    return;
  }
  const is_first = drawn_version < 0;
  drawn_version = model.points_version;
  const times = model.points.map((point) => point[COLUMN.at]);
  const there = times.length > 0 ? times.at(-1) - times[0] : 0;
  const whole = there + 1;
  const length = whole < 60 ? `${whole} s` : `${Math.floor(whole / 60)} min`;
  setText(document.getElementById("rates-span"), there > 0 ? `of this instance, last ${length}` : "of this instance");
  for (const spark of sparks) {
    spark.draw(times, Math.max(SHORTEST_S, there));
    if (is_first) spark.describe();
  }
}
