// Light, dark, on a phone, without motion; and what axe-core finds in each.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { AXE, acquire, browse, logIn, place, row, says, shoot } from "./harness.mjs";

const axe = readFileSync(AXE, "utf8");

async function isUsable(page, where) {
  const found = await page.evaluate(() =>
    axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }),
  );
  const words = found.violations.map(
    (rule) =>
      `${rule.id}: ${rule.help}: ${rule.nodes.map((node) => `${node.html.slice(0, 160)} ${node.any.map((check) => check.message).join(" ")}`).join("\n    ")}`,
  );
  assert.deepEqual(words, [], where);
  assert.ok(found.passes.length > 20, `${found.passes.length} rules looked at ${where}`);
}

const brightness = (page) =>
  page.evaluate(() => {
    const [red, green, blue] = getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number);
    return (red + green + blue) / 3;
  });

async function look(page, where) {
  await isUsable(page, `log-in, ${where}`);
  await logIn(page, place.tokens.admin);
  await row(page, "nightly-backup").waitFor();
  await says(page, "#stream-words", /^live$/);
  await page.waitForFunction(() => document.querySelectorAll("#charts canvas").length === 5);
  // The first numbers come after the charts are drawn.
  await page.waitForFunction(() => {
    const captions = [...document.querySelectorAll("#charts figcaption .off-screen")];
    return captions.filter((caption) => /now|nothing yet/.test(caption.textContent)).length === 5;
  });
  await shoot(page, `overview-${where}`);
  await isUsable(page, `overview, ${where}`);
  const width = page.viewportSize().width;
  assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= width, `wider than ${width}`);

  await row(page, "nightly-backup").getByRole("link").click();
  await says(page, "#lock .headline", "Held");
  await shoot(page, `lock-${where}`);
  await isUsable(page, `lock, ${where}`);
  assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= width, `wider than ${width}`);
  await page.locator("#force-open").click();
  await page.locator("#force").waitFor();
  await isUsable(page, `force-release, ${where}`);
  await page.keyboard.press("Escape");
}

async function withAxe(body, options) {
  await browse(
    async (page, context) => {
      await context.addInitScript(axe);
      await page.reload();
      await page.locator("#log-in").waitFor();
      await body(page);
    },
    { refusals: [401], ...options },
  );
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
