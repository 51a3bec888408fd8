// With two thousand locks: the count is of all of them, a search finds the last, and pages lead to each. The same on a
// phone, where nothing is wider than the screen and everything is touched.

import assert from "node:assert/strict";
import { browse, lease, logIn, place, row, says, shoot, usable } from "./harness.mjs";

const MANY = 2011;
const PAGE = 50;
const SHORT_PAGE = 20; // on a phone
const AT_ONCE = 20;
const name = (number) => `tenant/${String(number).padStart(4, "0")}`;

for (let first = 0; first < MANY; first += AT_ONCE) {
  const numbers = Array.from({ length: Math.min(AT_ONCE, MANY - first) }, (_, more) => first + more);
  const take = (number) => lease(name(number), { ttl_ms: 300_000, holder: `worker@host-${number % 7}` });
  await Promise.all(numbers.map(take));
}

const rows = (page) => page.locator("#lock-rows tr").count();

await browse(async (page) => {
  await logIn(page, place.tokens.read);
  await says(page, "#locks-count", "2,011 held");
  await says(page, "#locks-range", "1–50 of 2,011");
  assert.equal(await rows(page), PAGE);
  await shoot(page, "many-locks");

  const search = page.locator("#locks-filter");
  await search.fill(name(2000).toUpperCase());
  await row(page, name(2000)).waitFor();
  assert.equal(await rows(page), 1);
  await says(page, "#announcer", "1 lock found");
  await says(page, "#locks-count", /^1 of 2,011 match$/);
  assert.equal(await page.locator("#locks-pager").isVisible(), false);
  await search.fill("@host-3");
  await says(page, "#locks-range", "1–50 of 287");
  await search.fill("");
  await says(page, "#locks-range", "1–50 of 2,011");

  await page.locator("#locks-head").getByRole("button", { name: "Lock", exact: true }).click();
  await row(page, name(0)).waitFor();
  await page.locator("#locks-next").focus();
  for (const [first, last] of [
    ["51", "100"],
    ["101", "150"],
  ]) {
    await page.keyboard.press("Enter");
    await says(page, "#locks-range", `${first}–${last} of 2,011`);
    await row(page, name(Number(first) - 1)).waitFor();
  }
  assert.equal(await page.evaluate(() => document.activeElement.id), "locks-next", "the focus stays");
  await page.locator("#locks-head").getByRole("button", { name: "Lock", exact: true }).click();
  await row(page, name(MANY - 1)).waitFor();
  assert.equal(await page.locator("#locks-head [aria-sort=descending]").count(), 1);
  assert.equal(await page.locator("#locks-previous").getAttribute("aria-disabled"), "true");

  const { lease_id } = await lease("waited-for", { ttl_ms: 300_000 });
  const waiting = new AbortController();
  const waiter = lease("waited-for", { wait_ms: 60_000 }, waiting.signal).catch((error) => error);
  await says(page, "#locks-count", "2,012 held · 1 request waits at this instance");
  await page
    .locator("#locks-head")
    .getByRole("button", { name: /^Waiting here/ })
    .click();
  await says(page, "#lock-rows tr:first-child", /waited-for.*1/);
  await row(page, "waited-for").getByRole("link").click();
  await says(page, "#lock .facts", "1 request at this instance");
  waiting.abort();
  await waiter;
  await says(page, "#lock .facts", "nobody at this instance");
  assert.ok(lease_id);
});

const PHONE = { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true };

await browse(async (page) => {
  const fits = async (where) => {
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(width <= PHONE.viewport.width, `${where} is ${width} wide`);
  };
  await logIn(page, place.tokens.read);
  await says(page, "#locks-range", /^1–20 of 2,01[12]$/);
  assert.equal(await rows(page), SHORT_PAGE);
  await fits("the list");
  const first = await page.locator("#lock-rows tr").first().boundingBox();
  assert.ok(first.y + first.height <= PHONE.viewport.height, `the first lock ends at ${first.y + first.height}`);
  await usable(page, "two thousand locks on a phone");
  await shoot(page, "many-locks-phone");

  for (const range of ["21–40", "41–60"]) {
    await page.locator("#locks-next").tap();
    await says(page, "#locks-range", new RegExp(`^${range} of 2,01[12]$`));
  }
  await page.locator("#locks-previous").tap();
  await says(page, "#locks-range", /^21–40 of/);
  await fits("a page of it");

  const search = page.locator("#locks-filter");
  await search.tap();
  await search.fill(name(2000));
  await row(page, name(2000)).waitFor();
  assert.equal(await rows(page), 1);
  await fits("what was found");
  await row(page, name(2000)).getByRole("link").tap();
  await says(page, "#lock .headline", "Held");
  await fits("a lock");
}, PHONE);
