// Five minutes in five charts. A canvas says nothing to a screen reader, so each has a sentence with its numbers,
// and each line's value stands in the legend.

import { h, setText } from "./dom.js";
import { clock, latency, number, percent } from "./format.js";
import { COLUMN, model } from "./model.js";

/** Contention above this raises the alert RedLockHighContention. */
const ALERT = 0.1;
/** Seconds over which contention is a share: a single second has too few attempts. */
const WINDOW_S = 60;
const HEIGHT = 96;
/** What a chart spans, also while there are fewer points. */
const SPAN_S = 300;

const column = (name) => (points) => points.map((point) => point[COLUMN[name]]);
const constant = (value) => (points) => points.map(value);

const CHARTS = [
  {
    title: "Attempts",
    unit: () => "per second",
    write: number,
    lines: [
      { label: "acquired", colour: "--line-1", values: column("acquired"), fill: true },
      { label: "contended", colour: "--line-2", values: column("contended") },
      { label: "failed", colour: "--line-3", values: column("failed") },
    ],
  },
  {
    title: "Time to acquire",
    unit: () => "",
    write: latency,
    axis_words: (ms) => (ms < 1000 ? `${Number(ms.toFixed(1))} ms` : `${ms / 1000} s`),
    lines: [
      { label: "p50", colour: "--line-1", values: column("p50") },
      { label: "p99", colour: "--line-2", values: column("p99") },
    ],
  },
  {
    title: "Contention",
    // What the alert looks at.
    unit: () => `${percent(model.overview.rates.contention_rate)} in 5 min`,
    write: percent,
    least_top: 0.2,
    lines: [
      { label: "in 1 min", colour: "--line-1", values: contention, fill: true },
      { label: "alert", colour: "--line-3", values: constant(() => ALERT), dash: true },
    ],
  },
  {
    title: "Nodes that vote",
    unit: () => "",
    write: number,
    whole: true,
    lines: [
      { label: "voting", colour: "--line-1", values: column("available"), fill: true, steps: true },
      { label: "quorum", colour: "--line-3", values: constant(() => model.overview.cluster.quorum), dash: true },
    ],
    top: () => model.overview.cluster.configured,
  },
  {
    title: "Locks",
    unit: () => "",
    write: number,
    whole: true,
    lines: [
      { label: "held", colour: "--line-1", values: column("held"), fill: true, steps: true },
      { label: "waiting", colour: "--line-2", values: column("waiters"), steps: true },
    ],
  },
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

/** The colour that a variable of the style sheet means in the theme in force, for a canvas. */
function colour(name) {
  const probe = document.getElementById("charts");
  probe.style.setProperty("outline-color", `var(${name})`);
  const value = getComputedStyle(probe).outlineColor;
  probe.style.removeProperty("outline-color");
  return value;
}

class Chart {
  constructor(spec) {
    this.spec = spec;
    this.values = spec.lines.map(() => h("span", { class: "value" }));
    this.at = h("span", { class: "unit" });
    this.summary = h("span", { class: "off-screen" });
    const legend = spec.lines.map((line, i) =>
      h(
        "li",
        {},
        h("span", { class: `key ${line.dash ? "dash" : ""}`, "data-line": line.colour }),
        `${line.label} `,
        this.values[i],
      ),
    );
    this.plot = h("div", { class: "plot", "aria-hidden": "true" });
    this.element = h(
      "figure",
      { class: "panel chart" },
      h(
        "figcaption",
        {},
        h("h3", {}, spec.title, " ", this.at),
        this.summary,
        h("ul", { class: "legend", "aria-hidden": "true" }, ...legend),
      ),
      this.plot,
    );
    this.resizer = new ResizeObserver(() => this.uplot?.setSize({ width: this.plot.clientWidth, height: HEIGHT }));
    this.resizer.observe(this.plot);
  }

  data() {
    return [model.points.map((point) => point[COLUMN.at]), ...this.spec.lines.map((line) => line.values(model.points))];
  }

  draw() {
    this.uplot?.destroy();
    this.uplot = new uPlot(this.options(), this.data(), this.plot);
  }

  options() {
    const grid = { stroke: colour("--grid"), width: 1 };
    const axis = {
      stroke: colour("--muted"),
      font: "11px system-ui, sans-serif",
      grid,
      ticks: { show: false },
      gap: 4,
    };
    const { write, axis_words, lines, whole } = this.spec;
    return {
      width: Math.max(120, this.plot.clientWidth),
      height: HEIGHT,
      padding: [6, 16, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, sync: { key: "leasehold" }, points: { size: 5 } },
      scales: {
        x: { time: true, range: (_, __, max) => [(max ?? SPAN_S) - SPAN_S, max ?? SPAN_S] },
        y: { range: (_, __, max) => [0, this.top(max)] },
      },
      axes: [
        {
          ...axis,
          grid: { show: false },
          size: 18,
          space: 44,
          incrs: [60, 120, 300],
          values: (_, splits) => splits.map((at) => clock(new Date(at * 1000)).slice(0, 5)),
        },
        {
          ...axis,
          size: 50,
          space: 28,
          incrs: whole ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000] : undefined,
          values: (_, splits) => splits.map(axis_words ?? write),
        },
      ],
      series: [{}, ...lines.map((line) => this.line(line))],
      hooks: { setCursor: [(chart) => this.showValues(chart.cursor.idx)] },
    };
  }

  line({ colour: name, fill, dash, steps }) {
    const stroke = colour(name);
    return {
      stroke,
      width: dash ? 1 : 1.6,
      dash: dash ? [4, 4] : undefined,
      fill: fill ? stroke.replace(/^rgb\((.*)\)$/, "rgba($1, 0.12)") : undefined,
      paths: steps ? uPlot.paths.stepped({ align: 1 }) : undefined,
      points: { show: false },
      spanGaps: true,
    };
  }

  top(max) {
    const { top, least_top, whole } = this.spec;
    if (top) return Math.max(1, top()) * 1.1;
    return Math.max(least_top ?? (whole ? 2 : 1), (max ?? 0) * 1.15);
  }

  update() {
    if (this.drawn_version === model.points_version) return;
    this.drawn_version = model.points_version;
    this.uplot.setData(this.data());
    this.showValues(this.uplot.cursor.idx);
  }

  /** The values under the cursor, or the latest. */
  showValues(under) {
    const [times, ...lines] = this.uplot.data;
    const at = under ?? times.length - 1;
    const point_under = under !== null && under !== undefined && times[at] !== undefined;
    lines.forEach((values, i) => setText(this.values[i], this.spec.write(values[at] ?? null)));
    setText(this.at, point_under ? `at ${clock(new Date(times[at] * 1000))}` : this.spec.unit());
  }

  describe() {
    const [times, ...lines] = this.uplot.data;
    if (times.length === 0) return;
    const words = lines.map((values, i) => {
      const { label, dash } = this.spec.lines[i];
      const known = values.filter((value) => value !== null);
      if (known.length === 0) return `${label}: nothing yet`;
      const last = this.spec.write(known.at(-1));
      if (dash) return `${label} ${last}`;
      return `${label}: now ${last}, from ${this.spec.write(Math.min(...known))} to ${this.spec.write(Math.max(...known))} in the last ${Math.max(1, Math.round((times.at(-1) - times[0]) / 60))} min`;
    });
    setText(this.summary, `${words.join("; ")}.`);
  }
}

let charts = [];

export function startCharts() {
  charts = CHARTS.map((spec) => new Chart(spec));
  document.getElementById("charts").append(...charts.map((chart) => chart.element));
  addEventListener("themechange", () => charts.forEach((chart) => chart.uplot && chart.draw()));
  setInterval(() => charts.forEach((chart) => chart.uplot && chart.describe()), 5000);
}

/** Only while they are seen: a chart without width cannot be drawn. */
export function showCharts() {
  for (const chart of charts) {
    if (chart.uplot) chart.update();
    else if (chart.plot.clientWidth > 0) {
      chart.draw();
      chart.showValues(null);
      chart.describe();
    }
  }
}
