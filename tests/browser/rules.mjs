// What cannot be brought about in a test of seconds: the words for a quorum and the marks of a row, asked of the
// page's own modules.

import assert from "node:assert/strict";
import { browse, says } from "./harness.mjs";

const MINUTE_MS = 60_000;
const HELD = { name: "l", state: "held", holder: "ana", fence: 7, reason: null, waiters: 0, votes: 5 };
const TIMES = { held_for_ms: MINUTE_MS, expires_in_ms: 20_000, ttl_ms: 30_000 };

const marks = (page, change) =>
  page.evaluate(
    async (lock) => {
      const { fillRow, makeRow } = await import("/assets/lock_row.js");
      const { model } = await import("/assets/model.js");
      model.overview.cluster.available = 5;
      const row = makeRow(lock);
      fillRow(row, lock, performance.now());
      return row.querySelector("[data-part=marks]").textContent;
    },
    { ...HELD, ...TIMES, ...change },
  );

const quorum = (page, states) =>
  page.evaluate(async (all) => {
    const { quorumOf } = await import("/assets/model.js");
    const nodes = all.map((state) => ({ state }));
    const available = all.filter((state) => state === "up").length;
    const { word, meaning } = quorumOf({ available, configured: all.length, quorum: 1 + (all.length >> 1), nodes });
    return `${word}. ${meaning}`;
  }, states);

await browse(async (page) => {
  await says(page, "#stream-words", /^live$/);
  for (const [change, expected] of [
    [{}, ""],
    [{ expires_in_ms: 9_000 }, "ends soon"],
    [{ expires_in_ms: 9_000, ttl_ms: null }, ""],
    [{ votes: 4 }, "on 4 of 5 nodes"],
    [{ votes: 4, held_for_ms: 500 }, ""],
    [{ held_for_ms: 20 * MINUTE_MS }, ""],
    [{ held_for_ms: 14 * MINUTE_MS, waiters: 1 }, ""],
    [{ held_for_ms: 20 * MINUTE_MS, waiters: 1, votes: 3 }, "on 3 of 5 nodes · held long while others wait"],
  ])
    assert.equal(await marks(page, change), expected, JSON.stringify(change));
  for (const [states, expected] of [
    [["up"], "Healthy. The one node votes. None may fail."],
    [["up", "up", "up"], "Healthy. 3 of 3 nodes vote, 2 needed. One may fail."],
    [
      ["up", "down", "up"],
      "At risk. 2 of 3 nodes vote, 2 needed. One more loss, and no lock can be acquired or renewed.",
    ],
    [["unknown", "up", "unknown"], "Not known yet. 2 of 3 nodes were not heard yet."],
    [
      ["down", "up", "down"],
      "No quorum. 1 of 3 nodes votes, 2 needed. No lock can be acquired or renewed until one more node votes. " +
        "Leases that are held run out.",
    ],
  ])
    assert.equal(await quorum(page, states), expected);
});
