"""One Python lock library on a line protocol; crates/testkit/src/peers.rs is the other end.

    peer.py redis-py|redlock-py|pottery HOST:PORT...

Says `ready`, then answers `acquire NAME TTL_MS` with `ok`, `busy` or `error TEXT`, and `release NAME` with
`ok` or `error TEXT`. One attempt each, no retries. Ends with its input.
"""

import logging
import sys

import redis

# A dead server answers at once on loopback; this is for a paused one.
ANSWER_WITHIN_S = 1.0


def clients(addrs):
    for addr in addrs:
        host, port = addr.rsplit(":", 1)
        yield redis.Redis(
            host=host,
            port=int(port),
            socket_timeout=ANSWER_WITHIN_S,
            socket_connect_timeout=ANSWER_WITHIN_S,
        )


class RedisPy:
    """redis.lock.Lock knows one server: the first. Key: NAME."""

    def __init__(self, addrs):
        self.client = next(clients(addrs))

    def acquire(self, name, ttl_ms):
        lock = self.client.lock(name, timeout=ttl_ms / 1000, blocking=False)
        return lock if lock.acquire() else None

    def release(self, lock):
        lock.release()


class RedlockPy:
    """Key: NAME."""

    def __init__(self, addrs):
        from redlock import Redlock

        # It sleeps the delay after the last attempt too, and takes nought for "use the default".
        self.redlock = Redlock(list(clients(addrs)), retry_count=1, retry_delay=0.001)

    def acquire(self, name, ttl_ms):
        return self.redlock.lock(name, ttl_ms) or None

    def release(self, lock):
        self.redlock.unlock(lock)


class Pottery:
    """Key: redlock:NAME."""

    def __init__(self, addrs):
        self.masters = set(clients(addrs))

    def acquire(self, name, ttl_ms):
        from pottery import Redlock

        lock = Redlock(key=name, masters=self.masters, auto_release_time=ttl_ms / 1000)
        return lock if lock.acquire(blocking=False) else None

    def release(self, lock):
        lock.release()


LIBRARIES = {"redis-py": RedisPy, "redlock-py": RedlockPy, "pottery": Pottery}


def answer(library, held, request):
    verb, name, *rest = request.split()
    if verb == "acquire":
        lock = library.acquire(name, int(rest[0]))
        if lock is None:
            return "busy"
        held[name] = lock
        return "ok"
    if verb == "release":
        if name not in held:
            return "error not held by this peer"
        library.release(held.pop(name))
        return "ok"
    return "error no such request"


def main():
    library_name, *addrs = sys.argv[1:]
    if library_name not in LIBRARIES:
        sys.exit("no such library: " + library_name)
    logging.disable(logging.CRITICAL)
    library, held = LIBRARIES[library_name](addrs), {}
    print("ready", flush=True)
    for request in sys.stdin:
        try:
            said = answer(library, held, request)
        except Exception as error:
            said = f"error {type(error).__name__}: {error}"
        print(" ".join(said.split()), flush=True)


main()
