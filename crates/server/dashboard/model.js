// What the server told last, and what follows from it as time goes on.

const POINTS = 300;

/** Columns of a point of the series. */
export const COLUMN = {
  at: 0,
  acquired: 1,
  contended: 2,
  failed: 3,
  p50: 4,
  p99: 5,
  available: 6,
  held: 7,
  waiters: 8,
};

/** `points_version` grows when the points change. */
export const model = { overview: null, received_at: 0, points: [], points_version: 0 };

/** While nothing comes, time stands still: what would be counted on may long be otherwise. */
let frozen_at = null;
export function take(overview) {
  // Only what this page itself asked for tells who it is.
  overview.caller ??= model.overview?.caller;
  model.overview = overview;
  model.received_at = performance.now();
  if (overview.series) {
    model.points = overview.series.points.slice(-POINTS);
    model.points_version += 1;
  }
  if (overview.point) takePoint(overview.point);
}

function takePoint(point) {
  const last = model.points.at(-1);
  if (last && (last[COLUMN.at] > point[COLUMN.at] || String(last) === String(point))) return;
  model.points_version += 1;
  if (last && last[COLUMN.at] === point[COLUMN.at]) model.points.pop();
  model.points.push(point);
  if (model.points.length > POINTS) model.points.shift();
}

export function freeze() {
  frozen_at ??= performance.now();
}

export function thaw() {
  frozen_at = null;
}

/** The time for everything that is counted down or up. */
export function now() {
  return frozen_at ?? performance.now();
}

/** How old the overview is. */
export function elapsed() {
  return Math.max(0, now() - model.received_at);
}

/** How near the quorum is to its loss, for the eye (`level`) and in words. */
export function quorumOf({ available, configured, quorum, nodes }) {
  const spare = available - quorum;
  const votes =
    configured === 1 && available === 1
      ? "The one node votes."
      : `${available} of ${configured} nodes ${available === 1 ? "votes" : "vote"}, ${quorum} needed.`;
  const unheard = nodes.filter((node) => node.state === "unknown").length;
  if (spare < 0 && spare + unheard >= 0) {
    const meaning = `${unheard} of ${configured} nodes were not heard yet.`;
    return { level: "unknown", word: "Not known yet", meaning };
  }
  if (spare < 0) {
    const missing = spare === -1 ? "one more node votes" : `${-spare} more nodes vote`;
    const meaning = `${votes} No lock can be acquired or renewed until ${missing}. Leases that are held run out.`;
    return { level: "lost", word: "No quorum", meaning };
  }
  if (available === configured) {
    const may_fail = spare === 0 ? "None may fail." : `${spare === 1 ? "One" : spare} may fail.`;
    return { level: "ok", word: "Healthy", meaning: `${votes} ${may_fail}` };
  }
  if (spare === 0) {
    const meaning = `${votes} One more loss, and no lock can be acquired or renewed.`;
    return { level: "risk", word: "At risk", meaning };
  }
  const may_fail = spare === 1 ? "one more node may fail" : `${spare} more nodes may fail`;
  return { level: "degraded", word: "Degraded", meaning: `${votes} Locks work; ${may_fail}.` };
}
