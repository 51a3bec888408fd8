// Light, dark, on a phone, without motion; and what axe-core finds in each.

import assert from "node:assert/strict";
import { acquire, browse, logIn, place, row, says, shoot, usable } from "./harness.mjs";

const brightness = (page) =>
  page.evaluate(() => {
    const [red, green, blue] = getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number);
    return (red + green + blue) / 3;
  });

async function look(page, where) {
  await usable(page, `log-in, ${where}`);
  await logIn(page, place.tokens.admin);
  await row(page, "nightly-backup").waitFor();
  await says(page, "#stream-words", /^live$/);
  // The first numbers come after the curves are drawn.
  await page.waitForFunction(() => {
    const curves = [...document.querySelectorAll("#sparks svg")];
    const words = curves.map((curve) => curve.getAttribute("aria-label") ?? "");
    return curves.length === 5 && words.every((text) => /now|nothing yet/.test(text));
  });
  // With the second point it is a line.
  await page.waitForFunction(() => [...document.querySelectorAll("#sparks .line")].at(-1)?.getAttribute("d"));
  const path = await page.locator("#sparks .line").last().getAttribute("d");
  assert.match(path, /^M0\.0,/, "a curve begins at its left end");
  await shoot(page, `overview-${where}`);
  await usable(page, `overview, ${where}`);
  const width = page.viewportSize().width;
  assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= width, `wider than ${width}`);

  await row(page, "nightly-backup").getByRole("link").click();
  await says(page, "#lock .headline", "Held");
  await shoot(page, `lock-${where}`);
  await usable(page, `lock, ${where}`);
  assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= width, `wider than ${width}`);
  await page.locator("#force-open").click();
  await page.locator("#force").waitFor();
  await usable(page, `force-release, ${where}`);
  await page.keyboard.press("Escape");
}

async function withAxe(body, options) {
  await browse(async (page) => {
    await page.locator("#log-in").waitFor();
    await body(page);
  }, options);
}

await acquire("nightly-backup", "--holder", "backup@db1:4411", "--reason", "nightly dump");
await acquire("invoice/42", "--holder", "billing@app-3:812");

await withAxe(
  async (page) => {
    assert.ok((await brightness(page)) > 200, "light");
    await look(page, "light");
    await page.locator("#theme").click();
    assert.ok((await brightness(page)) > 200, "light, chosen");
    await page.locator("#theme").click();
    await says(page, "#theme", "Theme: dark");
    assert.ok((await brightness(page)) < 60, "dark, chosen");
    await page.reload();
    assert.ok((await brightness(page)) < 60, "dark, remembered");
  },
  { colorScheme: "light", viewport: { width: 1440, height: 1000 } },
);
await withAxe(
  async (page) => {
    assert.ok((await brightness(page)) < 60, "dark");
    await look(page, "dark");
  },
  { colorScheme: "dark", viewport: { width: 1440, height: 1000 } },
);
await withAxe(
  async (page) => {
    await look(page, "phone");
    const moving = await page.evaluate(() => document.getAnimations().length);
    assert.equal(moving, 0, "nothing moves for those who asked for that");
  },
  {
    colorScheme: "light",
    viewport: { width: 360, height: 780 },
    isMobile: true,
    hasTouch: true,
    reducedMotion: "reduce",
  },
);
