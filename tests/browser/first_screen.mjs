// Who holds what is on the first screen, at a desk and on a phone; and the bar of a lease shows what is left of it.

import assert from "node:assert/strict";
import { acquire, browse, lease, logIn, place, row, says } from "./harness.mjs";

const TTL_MS = 10_000;

await acquire("of-the-command-line");
const SCREENS = [
  { viewport: { width: 1280, height: 800 } },
  { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true },
];
for (const screen of SCREENS)
  await browse(async (page) => {
    await logIn(page, place.tokens.read);
    await row(page, "of-the-command-line").waitFor();
    const { y, height } = await row(page, "of-the-command-line").boundingBox();
    const most = screen.viewport.height / 2;
    assert.ok(y + height <= most, `the first lock ends at ${y + height} of ${screen.viewport.height}`);
  }, screen);

await browse(async (page) => {
  await logIn(page, place.tokens.read);
  const { lease_id, fence } = await lease("half-gone", { ttl_ms: TTL_MS });
  await says(page, "#lock-rows", "half-gone");
  // Looked at for the first time when half of it is gone.
  await says(page, `#lock-rows tr[data-name=half-gone] [data-part=left]`, /^4\.\d s$/);
  await row(page, "half-gone").getByRole("link").click();
  await says(page, "#lock .headline", "Held");
  const meter = page.getByRole("meter");
  await meter.waitFor();
  assert.equal(await meter.getAttribute("aria-valuemax"), String(TTL_MS / 1000));
  const value = Number(await meter.getAttribute("aria-valuenow"));
  assert.ok(value >= 1 && value <= 5, `${value} s of ${TTL_MS / 1000} s left`);
  const scale = await page.locator(".fill").evaluate((fill) => fill.style.transform);
  const filled = Number(/scaleX\(([\d.]+)\)/.exec(scale)[1]);
  assert.ok(filled <= 0.5, `${filled} full with less than half of the time left`);
  assert.ok(lease_id && fence);

  await page.locator(".back").click();
  await says(page, "#lock-rows tr[data-name=half-gone] [data-part=marks]", /^ends soon$/);
  assert.equal(await row(page, "of-the-command-line").locator("[data-part=marks]").textContent(), "", "nothing is off");
  await row(page, "of-the-command-line").getByRole("link").click();
  await says(page, "#lock .left-words", /left$/);
  assert.equal(await meter.isVisible(), false, "nobody here knows how long that lease is");
});
