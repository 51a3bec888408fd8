// The bar of a lease's time left. It moves by CSS between two updates; for those who do not see it, it is a meter
// that says its value in words.

import { h, part, setAttribute, setText } from "./dom.js";
import { duration } from "./format.js";

/** Keepers extend when a third has gone; with less than a third left, two extensions have failed or nobody extends. */
const SHORT = 1 / 3;

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

/** Fills a bar, or a row that holds one. */
export function fillBar(element, left, whole) {
  const bar = part(element, "bar");
  const share = left === null ? 0 : Math.min(1, left / Math.max(1, whole));
  part(element, "fill").style.transform = `scaleX(${share.toFixed(4)})`;
  setAttribute(bar, "data-short", share < SHORT ? "yes" : "no");
  setAttribute(bar, "aria-valuemax", Math.ceil(whole / 1000));
  setAttribute(bar, "aria-valuenow", Math.min(Math.ceil(whole / 1000), Math.round((left ?? 0) / 1000)));
  const words = left === null ? "–" : left <= 0 ? "run out" : duration(left);
  setAttribute(bar, "aria-valuetext", left === null ? "unknown" : `${Math.round((left ?? 0) / 1000)} seconds left`);
  setText(part(element, "left"), words);
}

export function isShort(left, whole) {
  return left !== null && left / Math.max(1, whole) < SHORT;
}
