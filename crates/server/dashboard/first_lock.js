// What to type when nothing is locked yet.

import { copyButton, h } from "./dom.js";
import { token } from "./api.js";

export function showFirstLock() {
  const curl = [
    `curl -X POST ${location.origin}/v1/locks/first/leases`,
    ...(token() ? ['-H "Authorization: Bearer $TOKEN"'] : []),
    "-H 'Content-Type: application/json'",
    `-d '{"holder": "me", "ttl_ms": 60000}'`,
  ].join(" ");
  const command = (words) =>
    h("li", {}, h("code", {}, words), copyButton("the command", () => words));
  document
    .getElementById("first-lock")
    .replaceChildren(
      h("p", {}, "Take one for a minute, and watch it come and go here:"),
      h("ul", { class: "commands" }, command("leasehold run first -- sleep 60"), command(curl)),
      h("p", { class: "hint" }, "The first with the --backend of this server, the second from anywhere that reaches it."),
    );
}
