// One Node lock library, at work for the bench; src/order.rs is the other end.
//
//     node loop.mjs ROLE
//
// ROLE is JSON: {contestant, addrs, realm, process, ...}. Says `ready`, then answers each line, an order
// {secs, concurrency, names, hold_us, inside}, with a line of what came of it. Ends with its input.
// Every library comes with its defaults, as far as these let it wait for a lock that others hold.
// The packages come from LEASEHOLD_TEST_NODE_PEERS/node_modules.

import { closeSync, openSync, unlinkSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { join } from "node:path";

const require = createRequire(join(process.env.LEASEHOLD_TEST_NODE_PEERS, "package.json"));
const { Redis } = require("ioredis");

const TTL_MS = 10_000;
const NAMES_PER_TASK = 8;

function redlock(clients) {
  const { default: Redlock } = require("redlock");
  const library = new Redlock(clients);
  // It reports every refused attempt as an event.
  library.on("error", () => {});
  return {
    async acquire(name) {
      // It gives up after ten retries, and only then gives back what a minority granted.
      for (;;) {
        const lock = await library.acquire([name], TTL_MS).catch(() => null);
        if (lock !== null) return lock;
      }
    },
    release: (lock) => lock.release(),
  };
}

function redisSemaphore(clients) {
  const { Mutex, RedlockMutex } = require("redis-semaphore");
  return {
    async acquire(name) {
      const options = { lockTimeout: TTL_MS, acquireTimeout: 3_600_000 };
      const mutex =
        clients.length === 1
          ? new Mutex(clients[0], name, options)
          : new RedlockMutex(clients, name, options);
      await mutex.acquire();
      return mutex;
    },
    release: (mutex) => mutex.release(),
  };
}

const libraries = { redlock, "redis-semaphore": redisSemaphore };
const now = () => process.hrtime.bigint();

async function cycle(library, names, order, end) {
  const done = { acquireNs: [], releaseNs: [], cycles: 0, violations: 0, failures: 0, failure: null };
  for (let turn = 0; ; turn++) {
    const asked = now();
    if (asked >= end) return done;
    try {
      const lock = await library.acquire(names[turn % names.length]);
      const acquired = now();
      if (order.hold_us > 0) done.violations += await hold(acquired, order);
      const released = now();
      await library.release(lock);
      done.acquireNs.push(Number(acquired - asked));
      done.releaseNs.push(Number(now() - released));
      done.cycles++;
    } catch (error) {
      done.failures++;
      done.failure ??= String(error);
    }
  }
}

// Holds for exactly the time ordered, and counts who is inside already.
async function hold(acquired, order) {
  let entered = null;
  if (order.inside !== null) {
    try {
      closeSync(openSync(order.inside, "wx"));
      entered = true;
    } catch {
      entered = false;
    }
  }
  const until = acquired + BigInt(order.hold_us) * 1000n;
  while (now() < until) await new Promise(setImmediate);
  if (entered) unlinkSync(order.inside);
  return entered === false ? 1 : 0;
}

function names({ realm, process }, task, order) {
  if (order.names === "one") return [`${realm}/one`];
  return Array.from({ length: NAMES_PER_TASK }, (_, i) => `${realm}/${process}/${task}/${i}`);
}

async function work(library, role, order) {
  const cpu = process.cpuUsage();
  const start = now();
  const end = start + BigInt(Math.round(order.secs * 1e9));
  const tasks = await Promise.all(
    Array.from({ length: order.concurrency }, (_, task) =>
      cycle(library, names(role, task, order), order, end),
    ),
  );
  const { user, system } = process.cpuUsage(cpu);
  const sum = (key) => tasks.reduce((total, task) => total + task[key], 0);
  return {
    elapsed_s: Number(now() - start) / 1e9,
    cpu_us: user + system,
    acquire_ns: tasks.flatMap((task) => task.acquireNs),
    release_ns: tasks.flatMap((task) => task.releaseNs),
    per_worker: tasks.map((task) => task.cycles),
    violations: sum("violations"),
    failures: sum("failures"),
    failure: tasks.map((task) => task.failure).find((failure) => failure !== null) ?? null,
  };
}

function client(addr) {
  const [host, port] = addr.split(":");
  const redis = new Redis({ host, port: Number(port) });
  // Commands to a server that is gone fail or wait; that is for the library to handle.
  redis.on("error", () => {});
  return redis;
}

const role = JSON.parse(process.argv[2]);
const library = libraries[role.contestant](role.addrs.map(client));
console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await work(library, role, JSON.parse(line))));
}
process.exit(0);
