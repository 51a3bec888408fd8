// What may not or cannot be released by force says so in a sentence, and nothing is released.

import assert from "node:assert/strict";
import { acquire, browse, leasehold, logIn, place, says } from "./harness.mjs";

async function tryToForce(page, name) {
  await page.locator("#force-open").click();
  await page.locator("#force-name").fill(name);
  assert.ok(await page.locator("#force button[type=submit]").isDisabled(), "no reason is given");
  await page.locator("#force-reason").fill("to see what happens");
}

const problem = "#force .problem";

await browse(
  async (page) => {
    const lease = await acquire("guarded");
    await logIn(page, place.tokens.read);
    await page.locator("#lock-rows a").click();
    await says(page, "#lock .headline", "Held");
    await tryToForce(page, "guarded");
    await page.locator("#force button[type=submit]").click();
    await says(page, problem, "This token may not release locks by force: that needs the scope admin.");
    await page.locator("#force").getByRole("button", { name: "Cancel" }).click();
    assert.equal(JSON.parse(await leasehold("status", "guarded")).fence, lease.fence, "still held");

    await page.locator("#log-out").click();
    await logIn(page, place.tokens.admin);
    await says(page, "#lock .headline", "Held");
    await tryToForce(page, "guarded");
    await leasehold("release", lease.token);
    const next = await acquire("guarded");
    await page.locator("#force button[type=submit]").click();
    await says(page, problem, `Not released: the lock has moved on since fence ${lease.fence}`);
    assert.equal(JSON.parse(await leasehold("status", "guarded")).fence, next.fence, "the next holder keeps it");
  },
  { refusals: [401, 403, 412] },
);
