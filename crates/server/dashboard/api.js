// The server's interface. The token lives in this tab alone and goes out as a header, never as a cookie, so no
// other page can act with it.

const KEY = "leasehold-token";
/** A request that takes longer has met a server that is stopped or gone. */
const PATIENCE_MS = 10_000;

export function token() {
  return sessionStorage.getItem(KEY);
}

export function setToken(value) {
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}

export function headers(more = {}) {
  return token() ? { Authorization: `Bearer ${token()}`, ...more } : more;
}

/** What the server refused, as a sentence for people. */
export class Refused extends Error {
  constructor(status, problem) {
    super(sentence(status, problem));
    this.status = status;
    this.problem = problem;
    this.kind = String(problem.type ?? "")
      .split(":")
      .pop();
  }
}

/** Whether a request without a token would only be a line in the audit log of the server. */
export async function mustLogInFirst() {
  return !token() && (await get("/v1/version")).asks_for_token;
}

export async function get(path) {
  return request("GET", path);
}

export async function post(path, body) {
  return request("POST", path, body);
}

async function request(method, path, body) {
  const options = { method, headers: headers(), cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    const why = error.name === "TimeoutError" ? `did not answer within ${PATIENCE_MS / 1000} s` : "cannot be reached";
    throw new Refused(0, { title: `The server ${why}` });
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refused(response.status, answer);
  return answer;
}

/** The path of a lock, or null for the two names that a browser would read as a step in a path. */
export function lockPath(name) {
  return name === "." || name === ".." ? null : `/v1/locks/${encodeURIComponent(name)}`;
}

function sentence(status, problem) {
  const title = problem.title ?? `The server answered ${status}`;
  return problem.detail ? `${title}: ${problem.detail}` : `${title}.`;
}
