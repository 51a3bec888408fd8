// The dashboard in a real browser. Each case is a file beside this one that crates/cli/tests/dashboard.rs runs with a
// server of its own; LEASEHOLD_DASHBOARD tells where everything is. A case fails when it throws, and also when the
// page complained on its console, broke its content security policy or asked another host for anything.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { promisify } from "node:util";

/** { url, tokens: { read, admin, app }, leasehold, backend, nodes: [{ addr, pid }], server_pid, tokens_file, chromium, playwright, shots } */
export const place = JSON.parse(process.env.LEASEHOLD_DASHBOARD);

const require = createRequire(path.join(place.playwright, "package.json"));
const { chromium } = require("playwright-core");
const AXE = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

/** What must happen soon, even on a busy machine. */
export const SOON_MS = 15_000;

const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/**
 * Runs `body(page, context)` on a new page. `options.refusals`: the HTTP statuses and network errors that the
 * browser may note on its console, because the case provokes them; the rest goes to the browser context.
 */
export async function browse(body, { refusals = [], ...options } = {}) {
  const browser = await chromium.launch({ executablePath: place.chromium, headless: true, args: FLAGS });
  try {
    const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
    context.setDefaultTimeout(SOON_MS);
    await context.addInitScript(AXE);
    await context.addInitScript(() => {
      globalThis.violations = [];
      addEventListener("securitypolicyviolation", (event) =>
        globalThis.violations.push(`${event.violatedDirective}: ${event.blockedURI}`),
      );
    });
    const complaints = [];
    const page = await context.newPage();
    page.on("console", (message) => {
      if (["error", "warning"].includes(message.type()) && !isRefusal(message.text(), refusals))
        complaints.push(`console: ${message.text()}`);
    });
    page.on("pageerror", (error) => complaints.push(`uncaught: ${error.stack}`));
    page.on("dialog", (dialog) => {
      complaints.push(`a script said: ${dialog.message()}`);
      dialog.dismiss();
    });
    page.on("request", (request) => {
      if (!request.url().startsWith(`${place.url}/`) && !request.url().startsWith("data:"))
        complaints.push(`asked for ${request.url()}`);
    });
    await page.goto(`${place.url}/`);
    await body(page, context);
    complaints.push(...(await page.evaluate(() => globalThis.violations)));
    assert.deepEqual(complaints, []);
    assert.deepEqual(await context.cookies(), []);
  } finally {
    await browser.close();
  }
}

function isRefusal(text, refusals) {
  const words = (refusal) =>
    typeof refusal === "number"
      ? `the server responded with a status of ${refusal} `
      : `Failed to load resource: ${refusal}`;
  return refusals.some((refusal) => text.includes(words(refusal)));
}

export async function logIn(page, token) {
  await page.locator("#token").fill(token);
  await page.locator("#log-in-form button").click();
}

/** Waits until the text of an element matches; says what it is if it never does. */
export async function says(page, selector, pattern, timeout = SOON_MS) {
  const source = pattern instanceof RegExp ? pattern.source : pattern.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const matches = ([place, wanted]) => new RegExp(wanted, "s").test(document.querySelector(place)?.textContent ?? "");
  try {
    await page.waitForFunction(matches, [selector, source], { timeout, polling: 25 });
  } catch {
    const found = await page.evaluate(
      (place) => document.querySelector(place)?.textContent ?? "(no such element)",
      selector,
    );
    assert.fail(`${selector} does not say ${source} within ${timeout} ms: ${found}`);
  }
}

/** The row of a lock in the table. */
export function row(page, name) {
  return page.locator(`#lock-rows tr[data-name=${JSON.stringify(name)}]`);
}

/** The real command line on the same nodes; gives its standard output. */
export async function leasehold(...words) {
  try {
    const { stdout } = await promisify(execFile)(place.leasehold, ["--backend", place.backend, "--json", ...words]);
    return stdout.trim();
  } catch (error) {
    throw new Error(`leasehold ${words.join(" ")}: ${error.stderr}`);
  }
}

export async function acquire(name, ...words) {
  return JSON.parse(await leasehold("acquire", "--ttl", "5m", "--nonblock", ...words, "--", name));
}

/** Acquires at the server, as an application does: it alone knows how long the lease is and who waits. */
export async function lease(name, body, signal) {
  const until = performance.now() + SOON_MS;
  for (;;) {
    const response = await fetch(`${place.url}/v1/locks/${encodeURIComponent(name)}/leases`, {
      method: "POST",
      headers: { Authorization: `Bearer ${place.tokens.app}`, "Content-Type": "application/json" },
      body: JSON.stringify(body),
      signal,
    });
    if (response.status === 201) return response.json();
    // On a busy machine too few nodes may answer in time.
    assert.ok(response.status === 503 && performance.now() < until, `${name}: ${response.status}`);
  }
}

/** Fails with what axe-core finds. */
export async function usable(page, where) {
  const found = await page.evaluate(() =>
    axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }),
  );
  const words = found.violations.map(
    (rule) =>
      `${rule.id}: ${rule.help}: ${rule.nodes.map((node) => `${node.html.slice(0, 160)} ${node.any.map((check) => check.message).join(" ")}`).join("\n    ")}`,
  );
  assert.deepEqual(words, [], where);
  assert.ok(found.passes.length > 20, `${found.passes.length} rules looked at ${where}`);
}

/** A picture for people, if they asked for pictures. */
export async function shoot(page, name) {
  if (!place.shots) return;
  mkdirSync(place.shots, { recursive: true });
  await page.screenshot({ path: path.join(place.shots, `${name}.png`) });
}
