// The bar of a lease's time left. It moves by CSS between two updates; for those who do not see it, it is a meter
// that says its value in words.

import { h, part, setAttribute, setText } from "./dom.js";
import { duration } from "./format.js";
import { SHORT } from "./lock_row.js";

export function makeBar() {
  return h(
    "div",
    { class: "left" },
    h(
      "div",
      { class: "bar", role: "meter", "aria-label": "Time left", "aria-valuemin": "0", "data-part": "bar" },
      h("div", { class: "fill", "data-part": "fill" }),
    ),
    h("span", { class: "left-words", "data-part": "left" }),
  );
}

function wordsOf(left, whole) {
  if (whole === null) return `${duration(left)} left`;
  const length = duration(whole).replace(/( 00|\.0) s$/, (end) => (end === ".0 s" ? " s" : ""));
  return `${duration(left)} of ${length} left`;
}

/** `whole`: the length of the lease; null if it is not known, and then there is no bar. */
export function fillBar(element, left, whole) {
  const bar = part(element, "bar");
  bar.hidden = whole === null || left === null;
  setText(part(element, "left"), left === null ? "" : left <= 0 ? "run out" : wordsOf(left, whole));
  if (bar.hidden) return;
  const share = Math.min(1, left / Math.max(1, whole));
  part(element, "fill").style.transform = `scaleX(${share.toFixed(4)})`;
  setAttribute(bar, "data-short", share < SHORT ? "yes" : "no");
  const [most, value] = [Math.ceil(whole / 1000), Math.round(left / 1000)];
  setAttribute(bar, "aria-valuemax", most);
  setAttribute(bar, "aria-valuenow", Math.min(most, value));
  setAttribute(bar, "aria-valuetext", `${value} of ${most} seconds left`);
}
