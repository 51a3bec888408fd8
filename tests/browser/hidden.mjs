// A tab that nobody sees gives its streams up, so that it keeps no connection; when it is looked at again, it goes on
// with what it missed.

import assert from "node:assert/strict";
import { acquire, browse, logIn, place, row, says } from "./harness.mjs";

/** What the page waits for before it gives up; here a moment. */
const HIDDEN_MS = 30_000;

const setHidden = (page, hidden) =>
  page.evaluate((value) => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => value });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);

const isStream = (request) => request.url().endsWith("/events");

await browse(async (page, context) => {
  await context.addInitScript((wait) => {
    const { setTimeout } = globalThis;
    globalThis.setTimeout = (call, ms, ...more) => setTimeout(call, ms === wait ? 0 : ms, ...more);
  }, HIDDEN_MS);
  await page.reload();
  await logIn(page, place.tokens.read);
  await says(page, "#stream-words", /^live$/);
  await acquire("before");
  await row(page, "before").getByRole("link").click();
  await says(page, "#lock .headline", "Held");
  const open = new Set();
  page.on("request", (request) => isStream(request) && open.add(request));

  const ended = [];
  page.on("requestfailed", (request) => isStream(request) && ended.push(new URL(request.url()).pathname));
  const last = page.waitForEvent("requestfailed", () => ended.length === 2);
  await setHidden(page, true);
  await last;
  assert.deepEqual(ended.sort(), ["/v1/events", "/v1/locks/before/events"], "both streams are given up");

  await acquire("meanwhile");
  assert.equal(open.size, 0, "and stay so");
  const again = page.waitForRequest((request) => request.url().endsWith("/v1/events"));
  await setHidden(page, false);
  assert.match((await again).headers()["last-event-id"] ?? "", /-\d+$/, "it goes on where it was");
  await page.locator(".back").click();
  await row(page, "meanwhile").waitFor();
  await says(page, "#event-list", /meanwhile.*acquired/);
  await says(page, "#stream-words", /^live$/);
  await says(page, "#quorum-headline", "Healthy");
});
