// Elements from data. Text only ever becomes a text node or an attribute of a name written here, so whatever a
// lock is called is shown and never run.

const SVG = "http://www.w3.org/2000/svg";

/** h("td", { class: "number" }, "12"): an element; attributes that are null or false are left out. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false)
      element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** A sign from the sprite in index.html; what it means stands beside it in words. */
export function sign(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", `sign sign-${name}`);
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `#sign-${name}`);
  svg.append(use);
  return svg;
}

/** Somebody else's text, kept from turning around what stands next to it. */
export function foreign(text, attributes = {}) {
  return h("bdi", attributes, text);
}

/** Sets text only when it changed: no needless layout, and a selection survives. */
export function setText(element, text) {
  const wanted = String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

/** Sets, or with null removes, an attribute that changed. */
export function setAttribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/**
 * Makes the children of `parent` fit `items`, keeping the element of each key, so that focus and selection
 * stay where they are. `make(item)` gives an element, `update(element, item)` fills it.
 */
export function reconcile(parent, items, key, make, update) {
  const known = parent.reconciled ?? new Map();
  const wanted = new Map(items.map((item) => [key(item), item]));
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  // First those that go: else all that follow them would be moved, and what is moved loses the focus.
  for (const [name, element] of known) {
    if (wanted.has(name)) continue;
    element.remove();
    known.delete(name);
  }
  let place = parent.firstElementChild;
  for (const [name, item] of wanted) {
    const element = known.get(name) ?? make(item);
    known.set(name, element);
    update(element, item);
    if (element === place) place = place.nextElementSibling;
    else parent.insertBefore(element, place);
  }
  parent.reconciled = known;
  if (focused?.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
}

/** A cell of a row that is kept: the same element for the same name. */
export function part(element, name) {
  element.parts ??= {};
  return (element.parts[name] ??= element.querySelector(`[data-part="${name}"]`));
}

/** Says something once to those who do not see the page. */
export function announce(text) {
  setText(document.getElementById("announcer"), text);
}

/** Copies text, also on a page served without TLS, where the clipboard interface is missing. */
export async function copy(text, what) {
  try {
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else copyBySelection(text);
    announce(`${what} copied`);
    return true;
  } catch {
    announce(`${what} could not be copied`);
    return false;
  }
}

function copyBySelection(text) {
  const area = h("textarea", { class: "off-screen", readonly: true, "aria-hidden": "true" });
  area.value = text;
  document.body.append(area);
  const focused = document.activeElement;
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  focused?.focus();
  if (!copied) throw new Error("refused");
}

/** A small button that copies and shows that it did. `text` is asked when it is pressed. */
export function copyButton(what, text) {
  const button = h(
    "button",
    { type: "button", class: "copy", "aria-label": `Copy ${what}`, title: "Copy" },
    sign("copy"),
  );
  button.addEventListener("click", async () => {
    const copied = await copy(text(), what);
    button.replaceChildren(sign(copied ? "up" : "down"));
    setTimeout(() => button.replaceChildren(sign("copy")), 1500);
  });
  return button;
}
