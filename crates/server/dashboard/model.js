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
/** The most time left that was seen of a lease, by lock and fence: a lower bound of its Ttl where it is not told. */
let longest = new Map();

export function take(overview) {
  model.overview = overview;
  model.received_at = performance.now();
  if (overview.series) {
    model.points = overview.series.points.slice(-POINTS);
    model.points_version += 1;
  }
  if (overview.point) takePoint(overview.point);
  const seen = new Map();
  for (const lock of overview.locks.items)
    seen.set(leaseOf(lock), Math.max(lock.expires_in_ms ?? 0, longest.get(leaseOf(lock)) ?? 0));
  longest = seen;
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

export function timeLeft(lock, passed = elapsed()) {
  return lock.expires_in_ms === null ? null : Math.max(0, lock.expires_in_ms - passed);
}

export function age(lock, passed = elapsed()) {
  return lock.held_for_ms === null ? null : lock.held_for_ms + passed;
}

/** The whole of which the time left is a part. */
export function span(lock) {
  return lock.ttl_ms ?? longest.get(leaseOf(lock)) ?? lock.expires_in_ms ?? 1;
}

function leaseOf(lock) {
  return `${lock.fence} ${lock.name}`;
}

/** How near the quorum is to its loss, for the eye (`level`) and in words. */
export function quorumOf({ available, configured, quorum }) {
  const spare = available - quorum;
  const headline =
    configured === 1 && available === 1 ? "The one node votes" : `${available} of ${configured} vote, ${quorum} needed`;
  if (spare < 0) {
    const missing = spare === -1 ? "one more node votes" : `${-spare} more nodes vote`;
    return {
      level: "lost",
      headline,
      word: "No quorum",
      meaning: `No lock can be acquired or renewed until ${missing}.`,
    };
  }
  if (available === configured) {
    const may_fail = spare === 0 ? "None may fail." : `${spare === 1 ? "One" : spare} of them may fail.`;
    return { level: "ok", headline, word: "Healthy", meaning: may_fail };
  }
  if (spare === 0) {
    return {
      level: "risk",
      headline,
      word: "At risk",
      meaning: "One more loss, and no lock can be acquired or renewed.",
    };
  }
  const may_fail = spare === 1 ? "one more node may fail" : `${spare} more nodes may fail`;
  return { level: "degraded", headline, word: "Degraded", meaning: `Locks work; ${may_fail}.` };
}
