// The dialog that takes a lock from its holder. It asks for the lock's name, sends the fence that was seen, so that
// nobody else loses the lock by mistake, and says what it cannot do.

import { lockPath, post } from "./api.js";
import { announce, foreign, h, setText } from "./dom.js";

const dialog = () => document.getElementById("force");

/** Opens the dialog for a lock that is held; `done(words)` is called after a release. */
export function openForce(lock, done) {
  const problem = h("p", { class: "problem", role: "alert" });
  const name = h("input", {
    id: "force-name",
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
    required: true,
    "aria-describedby": "force-name-hint",
  });
  const reason = h("input", { id: "force-reason", autocomplete: "off", required: true, maxlength: "500" });
  const submit = h("button", { type: "submit", class: "danger", disabled: true }, "Force release");
  const cancel = h("button", { type: "button", onclick: () => dialog().close() }, "Cancel");
  const ready = () => {
    submit.disabled = name.value !== lock.name || reason.value.trim() === "";
  };
  name.addEventListener("input", ready);
  reason.addEventListener("input", ready);
  const form = h(
    "form",
    {},
    h("h2", { id: "force-title" }, "Take this lock from its holder?"),
    h(
      "dl",
      { class: "facts" },
      ...fact("Lock", foreign(lock.name)),
      ...fact("Holder", foreign(lock.holder ?? "unknown")),
      ...fact("Fence", h("span", { class: "digits" }, String(lock.fence))),
    ),
    h(
      "div",
      { class: "warning" },
      h("p", {}, h("strong", {}, "The holder is not stopped.")),
      h(
        "p",
        {},
        "It may work on until it notices, while another already holds the lock. Only storage that checks the fence refuses it. Make sure that the holder is dead, or that its storage checks fences.",
      ),
    ),
    h("label", { for: "force-name" }, "Type the name of the lock"),
    name,
    h(
      "p",
      { class: "hint", id: "force-name-hint" },
      "Exactly as above. It is released only if its fence is still the one above.",
    ),
    h("label", { for: "force-reason" }, "Reason, for the audit log"),
    reason,
    problem,
    h("div", { class: "actions" }, cancel, submit),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (submit.disabled) return;
    submit.disabled = true;
    setText(problem, "");
    try {
      const answer = await post(`${lockPath(lock.name)}/force-release`, {
        expected_fence: lock.fence,
        reason: reason.value.trim(),
      });
      const words = answer.released
        ? `Released by force: fence ${lock.fence} no longer holds the lock. Its holder was not stopped.`
        : "Nothing was released: nobody held the lock any more.";
      dialog().close();
      announce(words);
      done(words);
    } catch (error) {
      setText(problem, explain(error, lock));
      ready();
    }
  });
  dialog().replaceChildren(form);
  dialog().showModal();
  name.focus();
}

function fact(term, value) {
  return [h("dt", {}, term), h("dd", {}, value)];
}

/** Why it was refused, and what to do. */
function explain(error, lock) {
  if (error.status === 401) return "The token is no longer valid: log out, and log in with another.";
  if (error.status === 403)
    return "This token may not release locks by force: that needs the scope admin. Log in with an admin token, or use the command line.";
  if (error.status === 412)
    return `Not released: the lock has moved on since fence ${lock.fence}${error.problem.fence ? `; it is at ${error.problem.fence} now` : ""}. Close this and look at who holds it now.`;
  if (error.kind === "no-fence") return "Not released: it is held by another library, whose leases have no fence.";
  if (error.kind === "no-quorum") return `Not released: too few nodes answer. ${error.message}`;
  return error.message;
}
