// Without a mouse, from the log-in to a lock taken away: every step by the keyboard, every focus visible.

import assert from "node:assert/strict";
import { acquire, browse, leasehold, place, says, shoot } from "./harness.mjs";

const NAME = "deploy/payments";

/** Presses Tab until the element is reached; the focus must be visible all the way. */
async function tabTo(page, selector, most = 60) {
  for (let step = 0; step < most; step += 1) {
    await page.keyboard.press("Tab");
    const { reached, shown, what } = await page.evaluate((wanted) => {
      const focused = document.activeElement;
      const ring = focused.matches(".kind input") ? focused.parentElement : focused;
      const { width, height } = focused.getBoundingClientRect();
      return {
        reached: focused.matches(wanted),
        shown: focused === document.body || (getComputedStyle(ring).outlineStyle !== "none" && width > 0 && height > 0),
        what: focused.outerHTML.slice(0, 120),
      };
    }, selector);
    assert.ok(shown, `the focus is not visible on ${what}`);
    if (reached) return;
  }
  assert.fail(`${selector} is not reached by ${most} tabs`);
}

await browse(async (page) => {
  await page.locator("#log-in").waitFor();
  await page.keyboard.type(place.tokens.admin);
  await page.keyboard.press("Enter");
  await says(page, "#stream-words", /^live$/);
  const lease = await acquire(NAME, "--holder", "deploy@ci-7");
  await page.locator("#lock-rows a").waitFor();

  await tabTo(page, "#lock-rows a");
  await page.keyboard.press("Enter");
  await says(page, "#lock .headline", "Held");
  assert.equal(await page.evaluate(() => document.activeElement.tagName), "H1", "the new page is where the focus is");
  await says(page, "#lock h1", NAME);
  await says(page, "#vote-rows", /(votes for the holder.*){5}/);
  await says(page, "#lock .event-list", /acquired.*deploy@ci-7/);
  await says(page, "#lock .commands", `leasehold force-release --fence ${lease.fence} --reason 'why' ${NAME}`);

  await tabTo(page, "#force-open");
  await page.keyboard.press("Enter");
  await page.locator("#force").waitFor();
  await says(page, "#force", "The holder is not stopped.");
  await says(page, "#force", "Only storage that checks the fence refuses it.");
  await says(page, "#force .facts", String(lease.fence));
  assert.equal(await page.evaluate(() => document.activeElement.id), "force-name");
  await page.keyboard.press("Escape");
  await page.locator("#force").waitFor({ state: "hidden" });
  assert.equal(await page.evaluate(() => document.activeElement.id), "force-open", "the focus comes back");

  await page.keyboard.press("Enter");
  const submit = page.locator("#force button[type=submit]");
  await page.keyboard.type("deploy/payment");
  await tabTo(page, "#force-reason");
  await page.keyboard.type("ci-7 is dead");
  assert.ok(await submit.isDisabled(), "the name is not complete");
  await page.keyboard.press("Enter");
  await page.locator("#force-name").focus();
  await page.keyboard.press("End");
  await page.keyboard.type("s");
  assert.ok(await submit.isEnabled());
  await shoot(page, "force-release");
  await tabTo(page, "#force button[type=submit]");
  await page.keyboard.press("Enter");

  await page.locator("#force").waitFor({ state: "hidden" });
  await says(page, "#lock .result", `Released by force: fence ${lease.fence} no longer holds the lock.`);
  await says(page, "#lock .headline", "Free");
  await says(page, "#lock .event-list", "force-released");
  assert.ok(await page.locator("#force-open").isDisabled());
  assert.equal(JSON.parse(await leasehold("status", NAME)).state, "free");
  assert.equal((await acquire(NAME)).name, NAME, "others can take it");
});
