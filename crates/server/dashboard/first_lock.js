// What to type when nothing is locked yet.

import { token } from "./api.js";
import { copyButton, h } from "./dom.js";

/** `backend`: locks in the memory of the server are out of reach for the command line. */
export function showFirstLock(backend) {
  const curl = [
    `curl -X POST ${location.origin}/v1/locks/first/leases`,
    ...(token() ? ['-H "Authorization: Bearer $TOKEN"'] : []),
    "-H 'Content-Type: application/json'",
    `-d '{"holder": "me", "ttl_ms": 60000}'`,
  ].join(" ");
  const command = (words, hint) =>
    h(
      "li",
      {},
      h("span", { class: "hint" }, hint),
      h("code", {}, words),
      copyButton("the command", () => words),
    );
  const commands = [command(curl, "From anywhere that reaches this server")];
  if (backend !== "memory")
    commands.unshift(command("leasehold run first -- sleep 60", "With the --backend of this server"));
  document
    .getElementById("first-lock")
    .replaceChildren(
      h("p", {}, "Take one for a minute, and watch it come and go here:"),
      h("ul", { class: "commands" }, ...commands),
    );
}
