// With two thousand locks: the count is of all of them, a search finds the last, and pages lead to each.

import assert from "node:assert/strict";
import { browse, lease, logIn, place, row, says, shoot } from "./harness.mjs";

const MANY = 2011;
const PAGE = 50;
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
