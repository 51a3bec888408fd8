// A killed node is shown within two seconds; so are the risk and the loss of the quorum, in words, in the tab and
// to a screen reader. Nodes that are well are told of on request.

import assert from "node:assert/strict";
import { acquire, browse, logIn, place, row, says, shoot, usable } from "./harness.mjs";

const WITHIN_MS = 2000;

async function kill(page, node, votes) {
  const start = performance.now();
  process.kill(node.pid, "SIGKILL");
  await says(page, "#quorum-meaning", votes);
  const took = performance.now() - start;
  assert.ok(took < WITHIN_MS, `shown after ${Math.round(took)} ms`);
}

const level = (page) => page.locator("#quorum").getAttribute("data-level");
const nodes = (page) => page.locator("#node-rows tr:visible").count();

await browse(
  async (page) => {
    await logIn(page, place.tokens.read);
    await says(page, "#quorum-meaning", "5 of 5 nodes vote, 3 needed. 2 may fail.");
    await says(page, "#stream-words", /^live$/);
    assert.equal(await level(page), "ok");
    assert.equal(await nodes(page), 0, "nodes that are well are folded");
    const toggle = page.locator("#nodes-toggle");
    await toggle.click();
    assert.equal(await nodes(page), 5);
    assert.equal(await toggle.getAttribute("aria-expanded"), "true");
    await toggle.click();
    assert.equal(await nodes(page), 0);

    const [first, second, third] = place.nodes;
    await kill(page, first, "4 of 5 nodes vote, 3 needed. Locks work; one more node may fail.");
    const lost = page.locator("#node-rows tr");
    await says(page, "#node-rows", /down/);
    assert.equal(await lost.count(), 1, "only what is wrong");
    assert.ok((await lost.getAttribute("data-node")).includes(first.addr));
    assert.notEqual(await lost.locator("[data-part=why]").textContent(), "", "why it is down");
    assert.equal(await level(page), "degraded");
    await says(page, "#announcer", /is down.*Degraded. 4 of 5 nodes vote/);

    await acquire("voted", "--holder", "ana");
    await row(page, "voted").getByRole("link").click();
    await says(page, "#vote-rows", /(votes for the holder.*){4}/);
    const vote = page.locator("#vote-rows tr", { hasText: first.addr }).locator("[data-part=says]");
    assert.match(await vote.textContent(), /refused|reach|clos|timed out/, "what the dead one says");
    await says(page, "#quorum-headline", "Degraded");
    assert.ok(await page.locator("#quorum").isVisible(), "trouble is told on the page of a lock, too");
    await page.locator(".back").click();

    await kill(page, second, "3 of 5 nodes vote, 3 needed. One more loss, and no lock can be acquired or renewed.");
    await says(page, "#quorum-headline", "At risk");
    assert.equal(await level(page), "risk");

    await kill(page, third, "No lock can be acquired or renewed until one more node votes.");
    await says(page, "#quorum-meaning", "Leases that are held run out.");
    await says(page, "#quorum-meaning", "2 of 5 nodes vote, 3 needed.");
    assert.equal(await level(page), "lost");
    assert.equal(await page.title(), "No quorum · Leasehold");
    await says(page, "#announcer", "No quorum. 2 of 5 nodes vote, 3 needed.");
    await says(page, "#event-list", /node.*is down/);
    await says(page, "#locks-note", /Too few nodes answer to tell who holds what: this was seen at \d\d:\d\d:\d\d\./);
    await row(page, "voted").waitFor();
    assert.equal(await page.locator("#locks").getAttribute("data-unknown"), "yes", "the rows are grey");
    await usable(page, "no quorum");
    await shoot(page, "no-quorum");
  },
  { refusals: [503] },
);
