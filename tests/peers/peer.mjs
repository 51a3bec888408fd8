// One Node lock library on a line protocol; crates/testkit/src/peers.rs is the other end.
//
//     node peer.mjs redlock|redis-semaphore HOST:PORT...
//
// Says `ready`, then answers `acquire NAME TTL_MS` with `ok`, `busy` or `error TEXT`, and `release NAME` with
// `ok` or `error TEXT`. One attempt each, no retries, no extensions. Ends with its input.
// The packages come from LEASEHOLD_TEST_NODE_PEERS/node_modules.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { join } from "node:path";

const require = createRequire(join(process.env.LEASEHOLD_TEST_NODE_PEERS, "package.json"));
const { Redis } = require("ioredis");

// A dead server answers at once on loopback; this is for a paused one.
const ANSWER_WITHIN_MS = 1000;

// Key: NAME.
function redlock(clients) {
  const { default: Redlock, ResourceLockedError } = require("redlock");
  const library = new Redlock(clients, { retryCount: 0 });
  return {
    async acquire(name, ttlMs) {
      try {
        return await library.acquire([name], ttlMs);
      } catch (error) {
        const [attempt] = await Promise.all(error.attempts ?? []);
        const reasons = [...(attempt?.votesAgainst.values() ?? [])];
        if (reasons.some((reason) => reason instanceof ResourceLockedError)) return null;
        throw reasons[0] ?? error;
      }
    },
    release: (lock) => lock.release(),
  };
}

// Key: mutex:NAME.
function redisSemaphore(clients) {
  const { RedlockMutex } = require("redis-semaphore");
  return {
    async acquire(name, ttlMs) {
      const mutex = new RedlockMutex(clients, name, {
        lockTimeout: ttlMs,
        acquireAttemptsLimit: 1,
        retryInterval: 0,
        refreshInterval: 0,
      });
      return (await mutex.tryAcquire()) ? mutex : null;
    },
    release: (mutex) => mutex.release(),
  };
}

const libraries = { redlock, "redis-semaphore": redisSemaphore };

async function answer(library, held, request) {
  const [verb, name, ttlMs] = request.trim().split(/\s+/);
  switch (verb) {
    case "acquire": {
      const lock = await library.acquire(name, Number(ttlMs));
      if (lock === null) return "busy";
      held.set(name, lock);
      return "ok";
    }
    case "release": {
      if (!held.has(name)) return "error not held by this peer";
      const lock = held.get(name);
      held.delete(name);
      await library.release(lock);
      return "ok";
    }
    default:
      return "error no such request";
  }
}

function client(addr) {
  const [host, port] = addr.split(":");
  const redis = new Redis({
    host,
    port: Number(port),
    connectTimeout: ANSWER_WITHIN_MS,
    commandTimeout: ANSWER_WITHIN_MS,
    maxRetriesPerRequest: 0,
    retryStrategy: () => 50,
  });
  // A dead server is the test's business: commands to it fail, and that is enough.
  redis.on("error", () => {});
  return redis;
}

const [name, ...addrs] = process.argv.slice(2);
if (!(name in libraries)) {
  console.error(`no such library: ${name}`);
  process.exit(1);
}
const library = libraries[name](addrs.map(client));
const held = new Map();
console.log("ready");
for await (const request of createInterface({ input: process.stdin })) {
  const said = await answer(library, held, request).catch((error) => `error ${error}`);
  console.log(said.replace(/\s+/g, " "));
}
process.exit(0);
