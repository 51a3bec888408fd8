// A server without tokens asks for none.

import assert from "node:assert/strict";
import { browse, says } from "./harness.mjs";

await browse(async (page) => {
  await says(page, "#stream-words", /^live$/);
  assert.equal(await page.locator("#log-in").isVisible(), false);
  assert.equal(await page.locator("#log-out").isVisible(), false);
  assert.match(await page.locator("#version").textContent(), /^\d+\.\d+\.\d+$/);
  assert.match(await page.locator("#instance").textContent(), /^[0-9a-f]{8}$/);
});
