// A wrong token is answered with a sentence, a right one with the page; it lives in the tab, leaves with it, and ends
// with the server's word.

import assert from "node:assert/strict";
import { browse, leasehold, logIn, place, says } from "./harness.mjs";

await browse(
  async (page, context) => {
    await page.locator("#log-in").waitFor();
    assert.equal(await page.locator("#overview").isVisible(), false);
    assert.equal(await page.evaluate(() => document.activeElement.id), "token");

    await logIn(page, "lh_wrong");
    await says(page, "#log-in-problem", "The server does not know this token, or it has expired.");
    assert.equal(await page.locator("#overview").isVisible(), false);

    await logIn(page, place.tokens.read);
    await page.locator("#overview").waitFor();
    await says(page, "#quorum-meaning", "5 of 5 nodes vote, 3 needed.");
    await says(page, "#stream-words", /^live$/);
    assert.equal(await page.locator("#log-in").isVisible(), false);

    const told = page.waitForResponse((response) => response.url().endsWith("/v1/overview"));
    await page.reload();
    assert.equal((await (await told).json()).caller.name, "reader");
    await says(page, "#stream-words", /^live$/);
    assert.equal(await page.locator("#log-in").isVisible(), false, "the tab remembers");

    const other = await context.newPage();
    await other.goto(`${place.url}/`);
    await other.locator("#log-in").waitFor();
    assert.equal(
      await other.evaluate(() => localStorage.length + sessionStorage.length),
      0,
      "another tab knows nothing",
    );
    await other.close();

    await page.locator("#log-out").click();
    await page.locator("#log-in").waitFor();
    assert.equal(await page.evaluate(() => JSON.stringify({ ...sessionStorage })), "{}");
    await page.reload();
    await page.locator("#log-in").waitFor();

    await logIn(page, place.tokens.read);
    await says(page, "#stream-words", /^live$/);
    await leasehold("token", "revoke", "--file", place.tokens_file, "reader");
    process.kill(place.server_pid, "SIGHUP");
    await page.locator("#log-in").waitFor();
    await says(page, "#log-in-problem", "The server does not know this token, or it has expired.");
    assert.equal(await page.locator("#overview").isVisible(), false);
  },
  { refusals: [401] },
);
