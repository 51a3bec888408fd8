// A lock that the command line takes and gives back appears, counts down and goes, without a reload.

import assert from "node:assert/strict";
import { acquire, browse, leasehold, logIn, place, row, says } from "./harness.mjs";

await browse(async (page) => {
  await logIn(page, place.tokens.read);
  await says(page, "#stream-words", /^live$/);
  await says(page, "#locks-empty", "No lock is held.");
  await says(page, "#first-lock", "leasehold run first -- sleep 60");
  await says(page, "#first-lock", `${place.url}/v1/locks/first/leases`);
  await page.evaluate(() => {
    globalThis.still_the_same_page = true;
  });

  const lease = await acquire("invoice/42", "--holder", "billing@host1");
  await row(page, "invoice/42").waitFor();
  await says(page, "#lock-rows tr", /billing@host1/);
  const holder = page.locator("#lock-rows [data-part=holder]");
  assert.equal(await holder.getAttribute("title"), `fence ${lease.fence}`);
  assert.ok(!(await page.locator("#lock-rows [data-part=waiters]").isVisible()), "nobody waits");
  await says(page, "#locks-count", "1 held");
  assert.equal(await page.locator("#first-lock").isVisible(), false, "who has one knows how to take one");
  await says(page, "#event-list", /invoice\/42.*acquired by billing@host1/);

  const left = row(page, "invoice/42").locator("[data-part=left]");
  const before = await left.textContent();
  assert.match(before, /^[45] min \d\d s$/);
  await page.waitForFunction(([cell, text]) => cell.textContent < text, [await left.elementHandle(), before]);

  await page.locator("#locks-filter").fill("BILLING");
  await row(page, "invoice/42").waitFor();
  await page.locator("#locks-filter").fill("nobody like this");
  await row(page, "invoice/42").waitFor({ state: "detached" });
  await says(page, "#locks-empty", "No lock matches “nobody like this”.");
  await says(page, "#announcer", "0 locks found");
  await page.locator("#locks-filter").fill("");
  await row(page, "invoice/42").waitFor();

  await acquire("younger");
  await row(page, "younger").getByRole("link").focus();

  await page.locator("#events-pause").dispatchEvent("click");
  const kept = await page.locator("#event-list").textContent();
  await leasehold("release", lease.token);
  await row(page, "invoice/42").waitFor({ state: "detached" });
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "younger", "the focus stays");
  await says(page, "#events-pause", /Go on \(\d+ new\)/);
  assert.equal(await page.locator("#event-list").textContent(), kept, "paused");
  await page.locator("#events-pause").click();
  await says(page, "#event-list", /invoice\/42.*released/);

  await page.locator("#kinds-toggle").click();
  await page.getByRole("checkbox", { name: "released", exact: true }).uncheck();
  await says(page, "#kinds-toggle", "Filter (1)");
  await page.locator("#event-list [data-kind=released]").waitFor({ state: "detached" });
  assert.ok((await page.locator("#event-list [data-kind=acquired]").count()) > 0);
  assert.equal(await page.evaluate(() => globalThis.still_the_same_page), true);
});
