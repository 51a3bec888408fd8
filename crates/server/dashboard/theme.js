// Light, dark or as the system has it. Runs before the page is drawn, so that it does not flash.
"use strict";
(() => {
  const KEY = "leasehold-theme";
  const NEXT = { auto: "light", light: "dark", dark: "auto" };
  const root = document.documentElement;

  const apply = (theme) => {
    if (theme === "auto") delete root.dataset.theme;
    else root.dataset.theme = theme;
    dispatchEvent(new CustomEvent("themechange"));
  };

  let theme = localStorage.getItem(KEY) ?? "auto";
  if (!(theme in NEXT)) theme = "auto";
  apply(theme);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => apply(theme));

  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const show = () => {
      button.textContent = `Theme: ${theme}`;
    };
    show();
    button.addEventListener("click", () => {
      theme = NEXT[theme];
      localStorage.setItem(KEY, theme);
      apply(theme);
      show();
    });
  });
})();
