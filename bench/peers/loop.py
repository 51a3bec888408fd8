"""One Python lock library, at work for the bench; src/order.rs is the other end.

    loop.py ROLE

ROLE is JSON: {contestant, addrs, realm, process, ...}. Says `ready`, then answers each line, an order
{secs, concurrency, names, hold_us, inside}, with a line of what came of it. Ends with its input.
Every library comes with its defaults, as far as these let it wait for a lock that others hold.
"""

import json
import logging
import os
import sys
import threading
import time

import redis

TTL_S = 10
NAMES_PER_TASK = 8


def clients(addrs):
    for addr in addrs:
        host, port = addr.rsplit(":", 1)
        yield redis.Redis(host=host, port=int(port))


class RedisPy:
    """redis.lock.Lock knows one server."""

    def __init__(self, addrs):
        self.client = next(clients(addrs))

    def acquire(self, name):
        lock = self.client.lock(name, timeout=TTL_S)
        lock.acquire()
        return lock

    def release(self, lock):
        lock.release()


class RedlockPy:
    def __init__(self, addrs):
        from redlock import Redlock

        self.redlock = Redlock(list(clients(addrs)))

    def acquire(self, name):
        # It gives up after three attempts.
        while not (lock := self.redlock.lock(name, TTL_S * 1000)):
            pass
        return lock

    def release(self, lock):
        self.redlock.unlock(lock)


class Pottery:
    def __init__(self, addrs):
        self.masters = set(clients(addrs))

    def acquire(self, name):
        from pottery import Redlock

        lock = Redlock(key=name, masters=self.masters, auto_release_time=TTL_S)
        if not lock.acquire():
            raise RuntimeError("not acquired")
        return lock

    def release(self, lock):
        lock.release()


LIBRARIES = {"redis-py": RedisPy, "redlock-py": RedlockPy, "pottery": Pottery}


class Task:
    def __init__(self):
        self.acquire_ns, self.release_ns = [], []
        self.cycles = self.violations = self.failures = 0
        self.failure = None

    def run(self, library, names, order, end):
        turn = 0
        while (asked := time.perf_counter_ns()) < end:
            name = names[turn % len(names)]
            turn += 1
            try:
                lock = library.acquire(name)
                acquired = time.perf_counter_ns()
                if order["hold_us"]:
                    self.violations += hold(acquired, order)
                done = time.perf_counter_ns()
                library.release(lock)
            except Exception as error:
                self.failures += 1
                self.failure = self.failure or f"{type(error).__name__}: {error}"
                continue
            self.acquire_ns.append(acquired - asked)
            self.release_ns.append(time.perf_counter_ns() - done)
            self.cycles += 1


def hold(acquired, order):
    """Holds for exactly the time ordered, and counts who is inside already."""
    inside, entered = order["inside"], None
    if inside:
        try:
            os.close(os.open(inside, os.O_CREAT | os.O_EXCL))
            entered = True
        except FileExistsError:
            entered = False
    while time.perf_counter_ns() - acquired < order["hold_us"] * 1000:
        time.sleep(0)
    if entered:
        os.unlink(inside)
    return int(entered is False)


def names(role, task, order):
    realm, process = role["realm"], role["process"]
    if order["names"] == "one":
        return [f"{realm}/one"]
    return [f"{realm}/{process}/{task}/{i}" for i in range(NAMES_PER_TASK)]


def work(library, role, order):
    tasks = [Task() for _ in range(order["concurrency"])]
    cpu, start = time.process_time(), time.perf_counter_ns()
    end = start + int(order["secs"] * 1e9)
    threads = [
        threading.Thread(target=task.run, args=(library, names(role, at, order), order, end))
        for at, task in enumerate(tasks)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {
        "elapsed_s": (time.perf_counter_ns() - start) / 1e9,
        "cpu_us": (time.process_time() - cpu) * 1e6,
        "acquire_ns": [ns for task in tasks for ns in task.acquire_ns],
        "release_ns": [ns for task in tasks for ns in task.release_ns],
        "per_worker": [task.cycles for task in tasks],
        "violations": sum(task.violations for task in tasks),
        "failures": sum(task.failures for task in tasks),
        "failure": next((task.failure for task in tasks if task.failure), None),
    }


def main():
    role = json.loads(sys.argv[1])
    logging.disable(logging.CRITICAL)
    library = LIBRARIES[role["contestant"]](role["addrs"])
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(work(library, role, json.loads(line))), flush=True)


main()
