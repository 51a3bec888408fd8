// A node that forgot everything sits out: the page says so, and counts down.

import assert from "node:assert/strict";
import { connect } from "node:net";
import { SOON_MS, acquire, browse, logIn, place, row, says } from "./harness.mjs";

const [forgetful] = place.nodes;
const node_row = `#node-rows tr[data-node*=${JSON.stringify(forgetful.addr)}]`;

function forgetEverything({ addr }) {
  const [host, port] = addr.split(":");
  return new Promise((resolve, reject) => {
    const node = connect(Number(port), host, () => node.write("FLUSHALL\r\n"));
    node.on("error", reject);
    node.once("data", () => node.end(resolve));
  });
}

const SAYS = /^quarantined, (?:(\d+) min )?(\d+)(?:\.\d)? s left$/;

/** The seconds that the page says are left. */
async function secondsLeft(page) {
  const [, minutes, seconds] = SAYS.exec(await page.locator(`${node_row} [data-part=state]`).textContent());
  return Number(minutes ?? 0) * 60 + Number(seconds);
}

await browse(async (page) => {
  await logIn(page, place.tokens.read);
  await says(page, "#quorum-meaning", "5 of 5 nodes vote, 3 needed.");
  await says(page, "#stream-words", /^live$/);

  await acquire("voted", "--holder", "ana");
  await row(page, "voted").waitFor();
  await forgetEverything(forgetful);
  await says(page, `${node_row} [data-part=state]`, SAYS);
  await says(page, "#quorum-meaning", "4 of 5 nodes vote, 3 needed.");
  assert.notEqual(await page.locator(`${node_row} [data-part=why]`).textContent(), "", "why it sits out");
  await says(page, "#announcer", /is quarantined.*Degraded. 4 of 5 nodes vote/);

  const left = await secondsLeft(page);
  const deadline = performance.now() + SOON_MS;
  while ((await secondsLeft(page)) >= left) assert.ok(performance.now() < deadline, `still ${left} s left`);

  await row(page, "voted").getByRole("link").click();
  await says(page, "#vote-rows", /(votes for the holder.*){4}/);
  const vote = page.locator("#vote-rows tr", { hasText: forgetful.addr }).locator("[data-part=says]");
  assert.equal(await vote.textContent(), "free", "what was forgotten is no vote");
});
