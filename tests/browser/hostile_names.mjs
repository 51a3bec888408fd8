// Names, holders and reasons are other people's texts: they are shown as they are, and nothing else.

import assert from "node:assert/strict";
import { acquire, browse, logIn, place, says } from "./harness.mjs";

const NAMES = [
  "<img src=x onerror=alert(1)>",
  "<script>alert(2)</script>",
  "'\"><svg/onload=alert(3)>",
  "javascript:alert(4)",
  "a/../../b?c=d#e&f=%2F",
  "מנעול/42",
  "🦀".repeat(128),
  "w".repeat(512),
  "-rf",
  "  spaces  ",
  "__proto__",
];

const holds = (page, name) =>
  page.waitForFunction(
    (wanted) => [...document.querySelectorAll("#lock-rows th a")].some((link) => link.textContent === wanted),
    name,
  );

await browse(async (page) => {
  await logIn(page, place.tokens.read);
  await says(page, "#stream-words", /^live$/);
  for (const name of NAMES) await acquire(name, "--holder", "<b onclick=alert(5)>x</b>");
  for (const name of NAMES) await holds(page, name);
  assert.equal(await page.locator("#overview img, #overview script, #overview b").count(), 0);
  assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 1280, "no name widens the page");

  await page.setViewportSize({ width: 360, height: 780 });
  assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 360, "nor that of a phone");
  for (const name of NAMES) {
    await page.evaluate(
      (wanted) => [...document.querySelectorAll("#lock-rows th a")].find((link) => link.textContent === wanted).click(),
      name,
    );
    await says(page, "#lock .headline", "Held");
    assert.equal(await page.locator("#lock h1 bdi").textContent(), name);
    assert.equal(await page.locator("#lock img, #lock script, #lock b").count(), 0);
    assert.ok(
      (await page.evaluate(() => document.documentElement.scrollWidth)) <= 360,
      `the page of ${name} is too wide`,
    );
    await page.reload();
    await says(page, "#lock .headline", "Held");
    assert.equal(await page.locator("#lock h1 bdi").textContent(), name, "also from its address");
    await page.locator(".back").click();
    await holds(page, name);
  }
});
