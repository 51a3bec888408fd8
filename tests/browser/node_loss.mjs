// A killed node is shown within two seconds; so are the risk and the loss of the quorum, in words, in the tab and
// to a screen reader.

import assert from "node:assert/strict";
import { acquire, browse, logIn, place, row, says } from "./harness.mjs";

const WITHIN_MS = 2000;

async function kill(page, node, headline) {
  const start = performance.now();
  process.kill(node.pid, "SIGKILL");
  await says(page, "#quorum-headline", headline);
  const took = performance.now() - start;
  assert.ok(took < WITHIN_MS, `shown after ${Math.round(took)} ms`);
}

await browse(
  async (page) => {
    await logIn(page, place.tokens.read);
    await says(page, "#quorum-headline", "5 of 5 vote, 3 needed");
    await says(page, "#stream-words", /^live$/);
    assert.equal(await page.locator("#quorum").getAttribute("data-level"), "ok");

    const [first, second, third] = place.nodes;
    await kill(page, first, "4 of 5 vote, 3 needed");
    const lost = page.locator(`#node-rows tr[data-node*=${JSON.stringify(first.addr)}]`);
    await says(page, `#node-rows tr[data-node*=${JSON.stringify(first.addr)}]`, "down");
    assert.match(await lost.locator("[data-part=votes]").textContent(), /^no$/);
    assert.notEqual(await lost.locator("[data-part=why]").textContent(), "", "why it is down");
    assert.equal(await page.locator("#lights .sign-down").count(), 1);
    assert.equal(await page.locator("#quorum").getAttribute("data-level"), "degraded");
    await says(page, "#announcer", /is down.*Degraded: 4 of 5 vote/);

    await acquire("voted", "--holder", "ana");
    await row(page, "voted").getByRole("link").click();
    await says(page, "#vote-rows", /(votes for ana.*){4}/);
    const vote = page.locator("#vote-rows tr", { hasText: first.addr }).locator("[data-part=says]");
    assert.match(await vote.textContent(), /refused|reach|clos|timed out/, "what the dead one says");
    await page.locator(".back").click();

    await kill(page, second, "3 of 5 vote, 3 needed");
    await says(page, "#quorum-meaning", "At risk. One more loss, and no lock can be acquired or renewed.");
    assert.equal(await page.locator("#quorum").getAttribute("data-level"), "risk");

    await kill(page, third, "2 of 5 vote, 3 needed");
    await says(page, "#quorum-meaning", "No quorum. No lock can be acquired or renewed until one more node votes.");
    assert.equal(await page.locator("#quorum").getAttribute("data-level"), "lost");
    assert.equal(await page.title(), "No quorum: 2 of 5 vote, 3 needed · Leasehold");
    await says(page, "#announcer", "No quorum: 2 of 5 vote, 3 needed.");
    await says(page, "#event-list", /node.*is down/);
  },
  { refusals: [401] },
);
