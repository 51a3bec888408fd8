// A server that says nothing is told as such, and what is shown is dimmed and stands still; when it goes on, so does
// the page, with what it missed.

import assert from "node:assert/strict";
import { acquire, browse, logIn, place, row, says } from "./harness.mjs";

await browse(
  async (page) => {
    await logIn(page, place.tokens.read);
    await says(page, "#stream-words", /^live$/);
    await acquire("kept");
    await row(page, "kept").waitFor();
    assert.equal(await page.locator("#banner").isVisible(), false);

    process.kill(place.server_pid, "SIGSTOP");
    try {
      await page.locator("#banner").waitFor();
      await says(page, "#banner", /Live updates are cut since \d\d:\d\d:\d\d, reconnecting/);
      await says(page, "#stream-words", /^cut$/);
      await says(page, "#announcer", "Live updates are cut since");
      // It fades.
      await page.waitForFunction(() => Number(getComputedStyle(document.querySelector(".locks")).opacity) < 1);
      const left = await row(page, "kept").locator("[data-part=left]").textContent();
      const tries_again = page.waitForRequest((request) => request.url().endsWith("/v1/events"));
      await acquire("meanwhile");
      await tries_again;
      assert.equal(await row(page, "kept").locator("[data-part=left]").textContent(), left, "time stands still");
    } finally {
      process.kill(place.server_pid, "SIGCONT");
    }

    await page.locator("#banner").waitFor({ state: "hidden" });
    await says(page, "#stream-words", /^live$/);
    await row(page, "meanwhile").waitFor();
    assert.equal(await page.evaluate(() => document.body.classList.contains("stale")), false);
  },
  { refusals: [401] },
);
