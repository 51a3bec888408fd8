// How numbers and times are written.

const NOTHING = "–";

/** 7.2 s, 3 min 05 s, 2 h 04 min, 3 d 4 h. */
export function duration(ms) {
  if (ms === null || ms === undefined) return NOTHING;
  const s = Math.max(0, ms) / 1000;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.floor(s)} s`;
  const [min, hours, days] = [Math.floor(s / 60), Math.floor(s / 3600), Math.floor(s / 86400)];
  if (min < 60) return `${min} min ${pad(Math.floor(s) % 60)} s`;
  if (hours < 24) return `${hours} h ${pad(min % 60)} min`;
  return `${days} d ${hours % 24} h`;
}

/** 0.42 ms, 12 ms, 1.3 s: for what usually takes milliseconds. */
export function latency(ms) {
  if (ms === null || ms === undefined) return NOTHING;
  if (ms < 10) return `${ms.toFixed(2)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  return `${(ms / 1000).toFixed(1)} s`;
}

/** +0.3 ms, −12 ms: with a sign, because the direction matters. */
export function offset(ms) {
  if (ms === null || ms === undefined) return NOTHING;
  const rounded = Math.abs(ms) < 10 ? Math.abs(ms).toFixed(1) : String(Math.round(Math.abs(ms)));
  const direction = rounded === "0.0" ? "" : ms < 0 ? "−" : "+";
  return `${direction}${rounded} ms`;
}

/** 0.4, 12, 1,234: a number for people. */
export function number(value) {
  if (value === null || value === undefined) return NOTHING;
  if (Math.abs(value) >= 10 || Number.isInteger(value)) return Math.round(value).toLocaleString("en-US");
  return value.toFixed(1);
}

export function percent(share) {
  if (share === null || share === undefined) return NOTHING;
  const value = share * 100;
  return `${value > 0 && value < 10 ? value.toFixed(1) : Math.round(value)} %`;
}

/** 12:03:07, in the time zone of whoever looks. */
export function clock(date) {
  return Number.isNaN(date.getTime())
    ? NOTHING
    : `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
}

export function plural(count, one, many = `${one}s`) {
  return `${number(count)} ${count === 1 ? one : many}`;
}

/** A word for a shell, quoted if it has to be. */
export function shellWord(text) {
  return /^[A-Za-z0-9_./:@%+=,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

function pad(value) {
  return String(value).padStart(2, "0");
}
