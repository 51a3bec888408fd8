// Who may not release by force is not offered it; what cannot be released says so in a sentence, and is not.

import assert from "node:assert/strict";
import { acquire, browse, leasehold, logIn, place, says } from "./harness.mjs";

await browse(
  async (page) => {
    const lease = await acquire("guarded");
    await logIn(page, place.tokens.read);
    await page.locator("#lock-rows a").click();
    await says(page, "#lock .headline", "Held");
    assert.equal(await page.locator("#force-open").isVisible(), false, "a reader may not");
    await says(page, "#lock", "To release it by force, log in with a token that has the scope admin.");
    assert.doesNotMatch(await page.locator("#lock .commands").textContent(), /force-release/);

    await page.locator("#log-out").click();
    await logIn(page, place.tokens.admin);
    await says(page, "#lock .headline", "Held");
    await page.locator("#force-open").click();
    await page.locator("#force-name").fill("guarded");
    assert.ok(await page.locator("#force button[type=submit]").isDisabled(), "no reason is given");
    await page.locator("#force-reason").fill("to see what happens");
    await leasehold("release", lease.token);
    const next = await acquire("guarded");
    await page.locator("#force button[type=submit]").click();
    await says(page, "#force .problem", `Not released: the lock has moved on since fence ${lease.fence}`);
    assert.equal(JSON.parse(await leasehold("status", "guarded")).fence, next.fence, "the next holder keeps it");
  },
  { refusals: [412] },
);
