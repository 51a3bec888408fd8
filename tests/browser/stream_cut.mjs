// A server that says nothing is told as such: nothing is called healthy or held any more, what is shown is grey and
// stands still; when the server goes on, so does the page, with what it missed.

import assert from "node:assert/strict";
import { acquire, browse, logIn, place, row, says, shoot, usable } from "./harness.mjs";

const UNKNOWN = /^Unknown since \d\d:\d\d:\d\d$/;

const colour = (page, selector) =>
  page.evaluate((wanted) => getComputedStyle(document.querySelector(wanted)).color, selector);

async function meanwhileStopped(body) {
  process.kill(place.server_pid, "SIGSTOP");
  try {
    await body();
  } finally {
    process.kill(place.server_pid, "SIGCONT");
  }
}

await browse(async (page) => {
  await logIn(page, place.tokens.read);
  await says(page, "#stream-words", /^live$/);
  await says(page, "#quorum-headline", /^Healthy$/);
  await acquire("kept");
  await row(page, "kept").waitFor();

  await meanwhileStopped(async () => {
    await says(page, "#quorum-headline", UNKNOWN);
    const since = /\d\d:\d\d:\d\d/.exec(await page.locator("#quorum-headline").textContent())[0];
    await says(page, "#quorum-meaning", "What is grey is what it said last, and may be wrong by now.");
    await says(page, "#stream-words", /^cut off$/);
    await says(page, "#announcer", `Cut off from the server. Everything is unknown since ${since}.`);
    assert.equal(await page.title(), `Unknown since ${since} · Leasehold`);
    assert.doesNotMatch(await page.locator("main").innerText(), /Healthy|\bvote/);
    assert.equal(await page.locator("#quorum").getAttribute("data-level"), "unknown");
    const muted = await colour(page, "#quorum-meaning");
    for (const part of ["#lock-rows a", "#lock-rows .time-left", "#sparks .value", "#event-list a"])
      assert.equal(await colour(page, part), muted, `${part} is as grey as the rest`);
    await usable(page, "cut off");
    await shoot(page, "cut-off");

    const left = await row(page, "kept").locator("[data-part=left]").textContent();
    const tries_again = page.waitForRequest((request) => request.url().endsWith("/v1/events"));
    await acquire("meanwhile");
    await tries_again;
    assert.equal(await row(page, "kept").locator("[data-part=left]").textContent(), left, "time stands still");
    assert.match(await page.locator("#quorum-headline").textContent(), UNKNOWN, "also while it is tried again");

    await row(page, "kept").getByRole("link").click();
    await says(page, "#quorum-headline", UNKNOWN);
    await says(page, "#lock .headline", UNKNOWN);
    assert.equal(await page.title(), `Unknown since ${since} · kept · Leasehold`);
    await page.locator(".back").click();
    await says(page, "#quorum-headline", UNKNOWN);
  });

  await says(page, "#quorum-headline", /^Healthy$/);
  await says(page, "#stream-words", /^live$/);
  await says(page, "#announcer", "Live updates are back.");
  await row(page, "meanwhile").waitFor();
  assert.equal(await page.evaluate(() => document.body.classList.contains("stale")), false);

  await row(page, "kept").getByRole("link").click();
  await says(page, "#lock .headline", /^Held$/);
  await meanwhileStopped(() => says(page, "#lock .headline", UNKNOWN));
  await says(page, "#lock .headline", /^Held$/);
});
