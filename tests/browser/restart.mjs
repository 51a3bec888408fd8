// A server that was killed and started anew is found again, by its new name and with what it knows.

import { acquire, browse, logIn, place, row, says } from "./harness.mjs";

await browse(
  async (page) => {
    await logIn(page, place.tokens.read);
    await says(page, "#stream-words", /^live$/);
    await acquire("before");
    await row(page, "before").waitFor();
    const instance = await page.locator("#instance").textContent();

    console.log("restart");
    await page.waitForFunction((old) => document.getElementById("instance").textContent !== old, instance);
    await says(page, "#quorum-headline", "Healthy");
    await says(page, "#stream-words", /^live$/);
    await row(page, "before").waitFor();
    await acquire("after");
    await row(page, "after").waitFor();
    await says(page, "#event-list", /after.*acquired/);
  },
  {
    refusals: ["net::ERR_CONNECTION_REFUSED", "net::ERR_INCOMPLETE_CHUNKED_ENCODING", "net::ERR_CONNECTION_RESET"],
  },
);
