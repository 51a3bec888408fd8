"""A client of the Leasehold lock server. Standard library only; Python 3.9 or later.

    client = Client("https://locks.example:7717", token="lh_...")
    with client.lock("invoice/42") as lease:
        store.write(rows, fence=lease.fence)

A lease is a promise until a deadline on this machine's own clock. Two threads look after it: the keeper
renews it at a third of its TTL; the watchdog does no I/O and tells of the loss at the deadline, even while
the keeper hangs. Both threads know the lease by a weak reference only, so a lease that the program dropped is
given back. What the lock guards must check the fence: no client can take back a write under way.
"""

from __future__ import annotations

import contextlib
import getpass
import http.client
import json
import logging
import os
import random
import selectors
import socket
import ssl
import threading
import time
import uuid
import weakref
from types import TracebackType
from typing import Any, Callable, Dict, Generator, Iterator, List, Mapping, NamedTuple, Optional, Tuple, Type, TypedDict, Union
from urllib.parse import quote, urlencode, urlsplit

__all__ = [
    "Client", "Lock", "Lease", "Lost", "Event", "LockInfo", "LockSummary", "Cluster",
    "LeaseholdError", "Unreachable", "TooShort", "Problem", "LockHeld", "LeaseLost", "NoQuorum", "TooSlow",
    "ShuttingDown", "FenceMovedOn", "NoFence", "Unauthorized", "Forbidden", "Invalid", "TooMany",
]  # fmt: skip

_log = logging.getLogger("leasehold")

_PORT = 7717
# One request waits at most this long at the server, and then asks again: proxies cut longer ones off.
_WAIT_AT_ONCE = 25.0
# Sleeping threads look at the clock this often: their sleep does not count the time of a suspended machine.
_LOOK_EVERY = 1.0
# The watchdog wakes up this much before the deadline, so that the loss is told by then.
_WAKE_EARLY = 0.01
# A connection that was idle for longer is not used again: the server or a proxy may be about to close it.
_IDLE_MAX = 20.0
_IDLE_CONNECTIONS = 8
_LEASES = "/v1/leases/"
_ANSWER_BYTES_MAX = 64 * 1024 * 1024
_LOCKS_PER_PAGE = 500

_UNANSWERED = "no renewal was answered before its deadline"
_DROPPED = "the program dropped the lease without releasing it"
# Of a request that met one of these, only a repetition with the same key can tell what became of it.
_UNSETTLED = ("idempotency-in-flight", "idempotency-elsewhere", "internal")


def _now() -> float:
    """Seconds on a clock that nobody sets; on Linux it also runs while the machine is suspended."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


class LeaseholdError(Exception):
    """All that this module raises."""


class Unreachable(LeaseholdError):
    """No answer came, or none that a Leasehold server gives. Whether the request was carried out is unknown."""


class TooShort(LeaseholdError):
    """The lease is held, but for less time than was asked for."""


class Problem(LeaseholdError):
    """The server said no, with a problem document (RFC 9457)."""

    def __init__(self, document: Mapping[str, Any], retry_after: Optional[float] = None) -> None:
        self.document: Dict[str, Any] = dict(document)
        self.kind: str = str(document.get("type", "")).rpartition(":")[2]
        self.status: int = int(document.get("status", 0))
        self.title: str = str(document.get("title", ""))
        self.detail: str = str(document.get("detail", ""))
        self.retry_after: Optional[float] = retry_after
        super().__init__(self.detail or self.title or f"status {self.status}")

    def _text(self, field: str) -> Optional[str]:
        value = self.document.get(field)
        return None if value is None else str(value)

    def _number(self, field: str) -> Optional[int]:
        value = self.document.get(field)
        return None if value is None else int(value)

    @property
    def name(self) -> Optional[str]:
        """The lock's name."""
        return self._text("name")

    @property
    def fence(self) -> Optional[int]:
        """The fence that the server knows."""
        return self._number("fence")

    @property
    def nodes(self) -> List[Dict[str, Any]]:
        """What each node said."""
        return list(self.document.get("nodes") or [])


class LockHeld(Problem):
    """Another holds the lock."""

    @property
    def holder(self) -> Optional[str]:
        """Who holds it."""
        return self._text("holder")

    @property
    def held_for_ms(self) -> Optional[int]:
        """For how long by now."""
        return self._number("held_for_ms")

    @property
    def expires_in_ms(self) -> Optional[int]:
        """When it expires if nobody renews it."""
        return self._number("expires_in_ms")

    @property
    def queue_position(self) -> Optional[int]:
        """How many were ahead at that server."""
        return self._number("queue_position")


class LeaseLost(Problem):
    """The lease is no longer held: stop what it guards."""

    @property
    def why(self) -> str:
        """How it came to that."""
        return self._text("why") or self.detail


class NoQuorum(Problem):
    """Too few nodes answered. A lease that was held is held until its deadline."""


class TooSlow(Problem):
    """The lease was granted too late to be of use."""


class ShuttingDown(Problem):
    """This server is about to end; another one may serve."""


class TooMany(Problem):
    """Too many requests or waiters."""


class FenceMovedOn(Problem):
    """The lock has another fence than the expected one."""

    @property
    def expected_fence(self) -> Optional[int]:
        """The one that was given."""
        return self._number("expected_fence")


class NoFence(Problem):
    """The lock is held by another library, which knows no fence."""


class Unauthorized(Problem):
    """No token, or none that the server knows."""


class Forbidden(Problem):
    """The token lacks a scope."""

    @property
    def needs(self) -> Optional[str]:
        """The missing scope."""
        return self._text("needs")


class Invalid(Problem):
    """The request was refused as it is."""

    @property
    def field(self) -> Optional[str]:
        """The field that is wrong, where known."""
        return self._text("field")


_KINDS: Dict[str, Type[Problem]] = {
    "lock-held": LockHeld,
    "lease-lost": LeaseLost,
    "no-quorum": NoQuorum,
    "too-slow": TooSlow,
    "shutting-down": ShuttingDown,
    "too-many-waiters": TooMany,
    "too-many-requests": TooMany,
    "fence-moved-on": FenceMovedOn,
    "no-fence": NoFence,
    "unauthorized": Unauthorized,
    "forbidden": Forbidden,
    "invalid": Invalid,
    "malformed": Invalid,
}
# After these nothing was granted, and a later request may succeed.
_PASSING = (NoQuorum, TooSlow, ShuttingDown, TooMany)


def _too_late(name: str) -> TooSlow:
    detail = f"the lease on lock `{name}` was granted, and over before the answer came"
    kind = "urn:leasehold:problem:too-slow"
    return TooSlow({"type": kind, "status": 503, "detail": detail, "name": name})


def _lost(name: str, fence: int, why: str) -> LeaseLost:
    detail = f"the lease on lock `{name}` is lost: {why}"
    kind = "urn:leasehold:problem:lease-lost"
    return LeaseLost({"type": kind, "status": 410, "detail": detail, "name": name, "fence": fence, "why": why})


class Event(NamedTuple):
    """One event of a stream. `id` is None for those that cannot be resumed from."""

    id: Optional[str]
    type: str
    data: Dict[str, Any]


class LockSummary(TypedDict):
    """One line of the list of locks."""

    name: str
    state: str
    holder: Optional[str]
    fence: Optional[int]
    held_for_ms: Optional[int]
    expires_in_ms: Optional[int]
    votes: int
    quorum: int
    waiters: int


class LockInfo(LockSummary):
    """What the nodes say about one lock."""

    holder_id: Optional[str]
    highest_fence: Optional[int]
    answered: int
    reason: Optional[str]
    nodes: List[Dict[str, Any]]
    history: List[Dict[str, Any]]


class Cluster(TypedDict):
    """The nodes behind the server."""

    backend: str
    quorum: int
    configured: int
    available: int
    ready: bool
    max_ttl_ms: Optional[int]
    nodes: List[Dict[str, Any]]


class _Answer(NamedTuple):
    sent: float
    document: Dict[str, Any]


class _Wire:
    """Connections to one server. Each exchange has one to itself; idle ones are kept for a while."""

    def __init__(self, url: str, token: Optional[str], tls: Optional[ssl.SSLContext]) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not an http:// or https:// address")
        self._host = parts.hostname
        self._port = parts.port or _PORT
        self._tls = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        self._path = parts.path.rstrip("/")
        self._headers = {"Accept": "application/json, application/problem+json", "User-Agent": "leasehold-python"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._idle: List[Tuple[float, int, http.client.HTTPConnection]] = []
        self._mutex = threading.Lock()

    def exchange(
        self,
        method: str,
        path: str,
        body: Optional[Mapping[str, Any]],
        timeout: float,
        headers: Optional[Mapping[str, str]] = None,
    ) -> _Answer:
        """One request and its answer. No repetition: only the caller knows whether that is harmless."""
        connection = self._take(timeout)
        try:
            sent = _now()
            answer = self._send(connection, method, path, body, headers or {})
            content = answer.read(_ANSWER_BYTES_MAX)
            status, retry_after, reusable = answer.status, answer.getheader("Retry-After"), not answer.will_close
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Unreachable(f"{method} {_shown(path)}: {_sentence(error)}") from error
        except BaseException:
            connection.close()
            raise
        self._give_back(connection, reusable)
        return _Answer(sent, _read(method, path, status, content, retry_after))

    def lines(self, path: str, headers: Mapping[str, str], timeout: float) -> Iterator[bytes]:
        """The lines of an answer that does not end, on a connection of its own, which ends with the generator."""
        connection = self._connection(timeout)
        try:
            answer = self._send(connection, "GET", path, None, {**headers, "Accept": "text/event-stream"})
            if answer.status != 200:
                content = answer.read(_ANSWER_BYTES_MAX)
                _read("GET", path, answer.status, content, answer.getheader("Retry-After"))
            yield from answer
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"GET {path}: {_sentence(error)}") from error
        finally:
            connection.close()

    def close(self) -> None:
        with self._mutex:
            idle, self._idle = self._idle, []
        for _, _, connection in idle:
            connection.close()

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: Optional[Mapping[str, Any]],
        headers: Mapping[str, str],
    ) -> http.client.HTTPResponse:
        content = None if body is None else json.dumps(body).encode()
        kind = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, self._path + path, content, {**self._headers, **kind, **headers})
        return connection.getresponse()

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        if self._tls is not None:
            return http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self._tls)
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout)

    def _take(self, timeout: float) -> http.client.HTTPConnection:
        while True:
            with self._mutex:
                if not self._idle:
                    break
                since, process, connection = self._idle.pop()
            # One that a parent process opened is still used there: it is dropped here, not shut down.
            usable = process == os.getpid() and _now() - since < _IDLE_MAX
            if usable and connection.sock is not None and _is_quiet(connection.sock):
                connection.sock.settimeout(timeout)
                return connection
            connection.close()
        return self._connection(timeout)

    def _give_back(self, connection: http.client.HTTPConnection, reusable: bool) -> None:
        with self._mutex:
            keep = reusable and len(self._idle) < _IDLE_CONNECTIONS
            if keep:
                self._idle.append((_now(), os.getpid(), connection))
        if not keep:
            connection.close()


def _is_quiet(sock: socket.socket) -> bool:
    """Whether nothing came on an idle connection; what comes is that the other side closes it."""
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        return not selector.select(0)


def _read(method: str, path: str, status: int, content: bytes, retry_after: Optional[str]) -> Dict[str, Any]:
    """The document of an answer; raises what it says if it is a problem."""
    try:
        document = json.loads(content) if content else {}
    except ValueError:
        document = None
    if 200 <= status < 300 and isinstance(document, dict):
        return document
    seconds = float(retry_after) if retry_after is not None and retry_after.isdecimal() else None
    if isinstance(document, dict) and str(document.get("type", "")).startswith("urn:leasehold:problem:"):
        problem = _KINDS.get(document["type"].rpartition(":")[2], Problem)
        raise problem({"status": status, **document}, seconds)
    # A page that quotes the path and a lease cut in half both tell the lease id, which is a secret.
    tells = path.startswith(_LEASES) or 200 <= status < 300
    said = f"{len(content)} bytes" if tells else repr(content[:200])
    raise Unreachable(f"{method} {_shown(path)}: status {status} with no answer of a Leasehold server: {said}")


def _shown(path: str) -> str:
    """The path without a lease id: the id is enough to release the lock."""
    id_, slash, rest = path[len(_LEASES) :].partition("/")
    return f"{_LEASES}...{slash}{rest}" if path.startswith(_LEASES) and id_ else path


def _sentence(error: Exception) -> str:
    return str(error) or type(error).__name__


def _segment(name: str) -> str:
    # Dots, too: some proxies take a segment of one or two for a step in the path.
    return quote(name, safe="").replace(".", "%2E")


def _pause(attempt: int, most: float) -> float:
    """How long to pause before the next attempt: longer each time, and never for all the same."""
    return min(most, 0.05 * 2.0 ** min(attempt, 6)) * random.uniform(0.5, 1.0)


class Client:
    """A Leasehold server, or several behind one address. May be shared by threads.

    `ca` is a PEM file with the certificate authority to trust, `cert` the client's certificate: one PEM
    file, or a pair (certificate, key). `timeout` is for one answer, in seconds, waiting for a lock not
    included.
    """

    def __init__(
        self,
        url: str,
        *,
        token: Optional[str] = None,
        ca: Optional[str] = None,
        cert: Union[str, Tuple[str, str], None] = None,
        timeout: float = 5.0,
    ) -> None:
        tls = None
        if ca is not None or cert is not None:
            tls = ssl.create_default_context(cafile=ca)
        if tls is not None and cert is not None:
            certificate, key = (cert, None) if isinstance(cert, str) else cert
            tls.load_cert_chain(certificate, key)
        self._wire = _Wire(url, token, tls)
        self._timeout = timeout
        self._wait_at_once = _WAIT_AT_ONCE

    def lock(
        self,
        name: str,
        ttl: float = 10.0,
        wait: Optional[float] = 30.0,
        holder: Optional[str] = None,
        reason: Optional[str] = None,
    ) -> Lock:
        """A lock for `with`, which is acquired at the beginning of the body and released at its end."""
        return Lock(self, name, ttl, wait, holder, reason)

    def acquire(
        self,
        name: str,
        ttl: float = 10.0,
        wait: Optional[float] = 30.0,
        holder: Optional[str] = None,
        reason: Optional[str] = None,
    ) -> Lease:
        """Acquires the lock, and keeps it until `release`. Waits `wait` seconds for it, None: as long as it takes.

        Raises LockHeld if another held it all that time, and NoQuorum and the like if that was the last answer.
        A lease that is over when its answer comes is given back, and the lock is asked for again.
        """
        return self._acquire(lambda lease: None, name, ttl, wait, holder, reason)

    def _acquire(
        self,
        keep: Callable[[Lease], None],
        name: str,
        ttl: float,
        wait: Optional[float],
        holder: Optional[str],
        reason: Optional[str],
    ) -> Lease:
        end = None if wait is None else _now() + wait
        attempt = 0
        while True:
            asked = _now()
            left = self._wait_at_once if end is None else max(0.0, end - asked)
            body: Dict[str, Any] = {
                "holder": holder or _default_holder(),
                "ttl_ms": round(ttl * 1000),
                "wait_ms": round(min(left, self._wait_at_once) * 1000),
            }
            if reason is not None:
                body["reason"] = reason
            try:
                return self._ask(keep, name, body, end)
            except LockHeld:
                if end is not None and _now() >= end:
                    raise
                # A server that hardly lets wait is not asked all the time.
                attempt = 0 if _now() - asked > 1.0 else attempt + 1
                time.sleep(0.0 if attempt == 0 else min(_pause(attempt, 1.0), left))
            except Invalid as error:
                if error.field != "wait_ms" or body["wait_ms"] <= 1:
                    raise
                # This server lets nobody wait for so long at once.
                self._wait_at_once = body["wait_ms"] / 2000
            except (*_PASSING, LeaseLost, Unreachable) as error:
                pause = getattr(error, "retry_after", None) or _pause(attempt, 2.0)
                if end is not None and _now() + pause >= end:
                    raise
                attempt += 1
                time.sleep(pause)

    def inspect(self, name: str) -> LockInfo:
        """What the nodes say about one lock."""
        info: LockInfo = self._call("GET", f"/v1/locks/{_segment(name)}")  # type: ignore[assignment]
        return info

    def list(self, prefix: str = "") -> Iterator[LockSummary]:
        """The locks whose names begin with `prefix`, sorted, fetched page by page."""
        cursor: Optional[str] = None
        while True:
            query = {"prefix": prefix, "limit": _LOCKS_PER_PAGE, **({} if cursor is None else {"cursor": cursor})}
            page = self._call("GET", f"/v1/locks?{urlencode(query)}")
            yield from page["locks"]
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def force_release(self, name: str, expected_fence: int, reason: str) -> bool:
        """Ends the lease with that fence; False if nobody held the lock any more. Needs the scope `admin`.

        The former holder may still be at work: only a store that checks the fence is safe from it.
        """
        body = {"expected_fence": expected_fence, "reason": reason}
        path = f"/v1/locks/{_segment(name)}/force-release"
        # Not repeated by itself: a second one would say that nobody held it.
        return bool(self._wire.exchange("POST", path, body, self._timeout).document["released"])

    def cluster(self) -> Cluster:
        """The nodes and the quorum."""
        cluster: Cluster = self._call("GET", "/v1/cluster")  # type: ignore[assignment]
        return cluster

    def nodes(self) -> List[Dict[str, Any]]:
        """The nodes, each with its state."""
        return self.cluster()["nodes"]

    def events(
        self,
        name: Optional[str] = None,
        last_event_id: Optional[str] = None,
        overview: bool = False,
        patience: float = 60.0,
    ) -> Generator[Event, None, None]:
        """What happens to all locks and nodes, or to one lock, for as long as the caller asks for more.

        After a cut it reconnects and goes on after the last event. The first event of each connection is
        `hello`; a `reset` says that some were missed. Raises Unreachable after `patience` seconds of failures.
        """
        path = "/v1/events" if name is None else f"/v1/locks/{_segment(name)}/events"
        connected, attempt = _now(), 0
        while True:
            try:
                with contextlib.closing(self._events_until_cut(path, last_event_id)) as events:
                    for event in events:
                        connected, attempt = _now(), 0
                        last_event_id = event.id or last_event_id
                        if event.type != "overview" or overview:
                            yield event
            except (Unreachable, *_PASSING):
                if _now() - connected >= patience:
                    raise
            time.sleep(_pause(attempt, 2.0))
            attempt += 1

    def close(self) -> None:
        """Closes idle connections. Leases go on."""
        self._wire.close()

    def _events_until_cut(self, path: str, last_event_id: Optional[str]) -> Generator[Event, None, None]:
        headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
        # Something is sent every 15 s; twice that without is a dead connection.
        yield from _parse_events(self._wire.lines(path, headers, 30.0))

    def _call(
        self, method: str, path: str, body: Optional[Mapping[str, Any]] = None, timeout: Optional[float] = None
    ) -> Dict[str, Any]:
        """An exchange that may be repeated: once, because an idle connection may just have been closed."""
        limit = self._timeout if timeout is None else timeout
        try:
            return self._wire.exchange(method, path, body, limit).document
        except Unreachable:
            return self._wire.exchange(method, path, body, limit).document

    def _ask(self, keep: Callable[[Lease], None], name: str, body: Mapping[str, Any], end: Optional[float]) -> Lease:
        """One request for a lease. If it failed on the way it is repeated with the same key, as it may be granted.

        `keep` is called with the lease before anything renews it.
        """
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        path = f"/v1/locks/{_segment(name)}/leases"
        first, attempt = _now(), 0
        give_up = max(first + self._timeout, end or 0.0)
        while True:
            try:
                wait = body["wait_ms"] / 1000 if attempt == 0 else max(0.0, give_up - _now())
                timeout = self._timeout + min(wait, body["wait_ms"] / 1000)
                answer = self._wire.exchange("POST", path, body, timeout, headers)
                break
            except (Unreachable, Problem) as error:
                unknown = isinstance(error, Unreachable) or error.kind in _UNSETTLED
                if not unknown or _now() >= give_up:
                    raise
            attempt += 1
            time.sleep(_pause(attempt, 1.0))
        # The answer to a repetition may be the first one, kept: then its times count from the first request.
        lease = Lease(self, answer.document, answer.sent if attempt == 0 else first)
        keep(lease)
        lease._keeping.begin(renew_first=attempt > 0)
        return lease


class Lock:
    """A lock that `with` acquires and releases."""

    def __init__(
        self,
        client: Client,
        name: str,
        ttl: float,
        wait: Optional[float],
        holder: Optional[str],
        reason: Optional[str],
    ) -> None:
        self._client = client
        self._terms = (name, ttl, wait, holder, reason)
        self._lease: Optional[Lease] = None

    def __enter__(self) -> Lease:
        if self._lease is not None:
            raise RuntimeError(f"lock `{self._terms[0]}` is already entered: make one per `with`")
        try:
            return self._client._acquire(self._keep, *self._terms)
        except BaseException:
            # Ctrl-C may come when the lease is there already, and no `with` will release it.
            lease, self._lease = self._lease, None
            if lease is not None:
                lease._keeping.abandon()
            raise

    def _keep(self, lease: Lease) -> None:
        self._lease = lease

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.__exit__(kind, error, trace)


def _default_holder() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        user = "unknown"
    label = f"{user}@{socket.gethostname()}:{os.getpid()}"
    return "".join(c if " " <= c <= "~" else "?" for c in label)[:200]


def _parse_events(lines: Iterator[bytes]) -> Iterator[Event]:
    """Server-sent events, as far as Leasehold uses them."""
    fields: Dict[str, str] = {}
    for raw in lines:
        line = raw.decode(errors="replace").rstrip("\r\n")
        if line and not line.startswith(":"):
            field, _, value = line.partition(":")
            fields[field] = value[1:] if value.startswith(" ") else value
        elif not line:
            if "data" in fields:
                yield Event(fields.get("id"), fields.get("event", "message"), _event_data(fields["data"]))
            fields = {}


def _event_data(text: str) -> Dict[str, Any]:
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise Unreachable(f"no event of a Leasehold server: {text[:200]!r}")
    return data


class Lost:
    """Like a threading.Event that is set when the lease is lost, at the latest at its deadline."""

    def __init__(self, keeping: _Keeping) -> None:
        self._keeping = keeping

    @property
    def why(self) -> Optional[str]:
        """How the lease was lost; None while it is not."""
        return self._keeping.elsewhere() or self._keeping.why

    def is_set(self) -> bool:
        """Whether the lease is lost. Looks at the clock, so it is right even if no other thread could run."""
        return self._keeping.is_lost()

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until the lease is lost; False if `timeout` seconds passed before. A release ends no wait."""
        return self.is_set() or self._keeping.lost.wait(timeout)


class Lease:
    """The right to a lock until a deadline, and the fence to prove it with.

    It belongs to the process that acquired it. In a process that was forked from that one it is lost, and
    `release` does nothing.
    """

    def __init__(self, client: Client, document: Mapping[str, Any], sent: float) -> None:
        self.name: str = document["name"]
        self.holder: str = document["holder"]
        self.fence: int = document["fence"]
        self.ttl: float = document["ttl_ms"] / 1000
        self._keeping = _Keeping(client, document, sent, weakref.ref(self))
        self._callbacks: List[Callable[[Lease], None]] = []
        self.lost = Lost(self._keeping)

    def remaining(self) -> float:
        """Seconds for which the lease can still be relied on; 0 if it is lost or released."""
        return self._keeping.remaining()

    def ensure_valid(self, margin: float = 0.0) -> None:
        """Raises LeaseLost if the lease is lost or released, TooShort if it is held for less than `margin` seconds."""
        left = self.remaining()
        if self.lost.is_set() or left <= 0.0:
            raise self._keeping.gone()
        if left < margin:
            raise TooShort(f"the lease on lock `{self.name}` has {left:.3f} s left, less than {margin:.3f} s")

    def on_lost(self, callback: Callable[[Lease], None]) -> None:
        """Calls `callback` once, in a thread of its own, when the lease is lost; at once and in this one if it is."""
        if self._keeping.elsewhere() is not None:
            callback(self)
            return
        self._callbacks.append(callback)
        if self.lost.is_set():
            self._tell()

    def extend(self) -> None:
        """Renews now. Raises LeaseLost, or NoQuorum and the like; the old deadline stands then."""
        self._keeping.renew()

    def release(self) -> None:
        """Gives the lock back; a second time does nothing. Raises LeaseLost if there was nothing to give back."""
        try:
            self._keeping.release()
        finally:
            self._tell()

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            self.release()
        except LeaseLost as lost:
            # A body that ended well may not have been alone: that must not pass in silence.
            if error is None:
                raise
            _log.warning("%s", lost)
        except LeaseholdError as failed:
            _log.warning("lock `%s` was not released and is free in %.1f s: %s", self.name, self.ttl, failed)

    def __repr__(self) -> str:
        return f"<Lease of {self.name!r}, fence {self.fence}, {self.remaining():.3f} s left>"

    def _tell(self) -> None:
        """Calls those who want to know of the loss. Must be called with nothing taken: they may do anything."""
        if self._keeping.elsewhere() is not None or self._keeping.why is None:
            return
        while self._callbacks:
            # Two threads may tell at once; a list's pop is atomic.
            with contextlib.suppress(IndexError):
                _call_back(self._callbacks.pop(0), self)


def _call_back(callback: Callable[[Lease], None], lease: Lease) -> None:
    try:
        callback(lease)
    except Exception:
        _log.exception("a callback for the loss of lock `%s` failed", lease.name)


class _Keeping:
    """What keeps a lease. Its threads hold this and never the lease itself, so that a dropped lease is noticed."""

    def __init__(self, client: Client, document: Mapping[str, Any], sent: float, lease: weakref.ref[Lease]) -> None:
        self.name: str = document["name"]
        self.fence: int = document["fence"]
        self.ttl: float = document["ttl_ms"] / 1000
        self.why: Optional[str] = None
        self.lost = threading.Event()
        self._client = client
        self._lease = lease
        self._process = os.getpid()
        self._path = f"{_LEASES}{document['lease_id']}"
        # For one exchange with the server at a time. A renewal that overtook the release would take the lock again.
        self._exchange = threading.Lock()
        # For what follows; never held during I/O, so the watchdog never waits for a server.
        self._changed = threading.Condition()
        self._ended = False
        self._given_back = False
        self._deadline = 0.0
        self._renew_at = 0.0
        self._prolong(sent, document)

    def elsewhere(self) -> Optional[str]:
        """Whose the lease is, if this process was forked from its own. No lock may be taken then: nobody frees it."""
        here = os.getpid()
        return None if here == self._process else f"it belongs to process {self._process}, and this is {here}"

    def begin(self, renew_first: bool) -> None:
        """Starts the threads; gives the lease back and raises if it is over already."""
        try:
            if renew_first:
                self.renew()
            if self.remaining() <= 0.0:
                raise _too_late(self.name)
            for work in (self._watch, self._keep):
                threading.Thread(target=work, name=f"leasehold {self.name}", daemon=True).start()
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Ends the keeping and gives the lock back, if that is still to be done; raises nothing."""
        with self._changed:
            ended, self._ended = self._ended, True
            self._changed.notify_all()
        if not ended or self.why == _UNANSWERED:
            self._try_give_back()

    def remaining(self) -> float:
        if self.elsewhere() is not None:
            return 0.0
        with self._changed:
            return 0.0 if self._ended else max(0.0, self._deadline - _now())

    def is_lost(self) -> bool:
        if self.elsewhere() is not None:
            return True
        if not self.lost.is_set():
            self._look_at_clock()
        return self.lost.is_set()

    def renew(self) -> None:
        if self.elsewhere() is not None:
            raise self.gone()
        with self._exchange:
            left = self.remaining()
            if left <= 0.0:
                self._look_at_clock()
                raise self.gone()
            try:
                # Half of what is left, so that another attempt is possible.
                timeout = min(self._client._timeout, max(left / 2, 0.05))
                answer = self._client._wire.exchange("POST", f"{self._path}/renew", {}, timeout)
            except LeaseLost as error:
                self._lose(error.why)
                raise
            if not self._prolong(answer.sent, answer.document):
                raise self.gone()

    def release(self) -> None:
        if self.elsewhere() is not None:
            return
        left = self._end_keeping()
        # A renewal under way is waited for: it must not overtake the release.
        if not self._exchange.acquire(timeout=max(0.0, left)):
            self._lose(_UNANSWERED)
            raise self.gone()
        try:
            self._give_back()
        finally:
            self._exchange.release()

    def gone(self) -> LeaseLost:
        return _lost(self.name, self.fence, self.elsewhere() or self.why or "it was released")

    def _prolong(self, sent: float, document: Mapping[str, Any]) -> bool:
        """Takes over the deadline of an answer; False if the lease had ended before the answer came."""
        with self._changed:
            if self._ended:
                return False
            # The server read the request after it was sent, so its times only end earlier here than there.
            self._deadline = sent + (document["elapsed_ms"] + document["expires_in_ms"]) / 1000
            # At a third of the TTL: two whole renewals may fail before the deadline is near.
            self._renew_at = sent + document["elapsed_ms"] / 1000 + self.ttl / 3
            self._changed.notify_all()
            return True

    def _keep(self) -> None:
        """The keeper: renews until the lease ends."""
        attempt = 0
        while self._wait_until_due():
            try:
                self.renew()
                attempt = 0
            except LeaseholdError as error:
                _log.info("lock `%s` was not renewed, %.3f s left: %s", self.name, self.remaining(), error)
                with self._changed:
                    self._renew_at = _now() + _pause(attempt, max(0.02, (self._deadline - _now()) / 8))
                attempt += 1
        if self.why == _DROPPED:
            _log.warning("lock `%s` is given back: %s", self.name, _DROPPED)
        if self.why in (_UNANSWERED, _DROPPED):
            # A renewal whose answer never came may have been carried out, and nobody uses the lock any more.
            self._try_give_back()

    def _wait_until_due(self) -> bool:
        with self._changed:
            while not self._ended:
                if self._lease() is None:
                    self._lose(_DROPPED)
                    return False
                left = self._renew_at - _now()
                if left <= 0.0:
                    return True
                self._changed.wait(min(left, _LOOK_EVERY))
            return False

    def _watch(self) -> None:
        """The watchdog: tells of the loss, at the deadline whatever the keeper does."""
        with self._changed:
            while not self._ended:
                left = self._deadline - _WAKE_EARLY - _now()
                if left <= 0.0:
                    self._lose(_UNANSWERED)
                else:
                    self._changed.wait(min(left, _LOOK_EVERY))
        lease = self._lease()
        if lease is not None:
            lease._tell()

    def _look_at_clock(self) -> None:
        with self._changed:
            if not self._ended and _now() >= self._deadline:
                self._lose(_UNANSWERED)

    def _end_keeping(self) -> float:
        """No renewal begins after this. How long the lease can still be relied on."""
        self._look_at_clock()
        with self._changed:
            self._ended = True
            self._changed.notify_all()
            return self._deadline - _now()

    def _give_back(self) -> None:
        """Tells the server. Must be called with the exchange taken and the keeping ended."""
        if self._given_back:
            return
        if self.why is not None:
            raise self.gone()
        end, attempt = min(self._deadline, _now() + self._client._timeout), 0
        while True:
            try:
                self._client._wire.exchange("DELETE", self._path, None, max(0.05, end - _now()))
                self._given_back = True
                return
            except LeaseLost as error:
                self._lose(error.why)
                raise
            except (Unreachable, *_PASSING):
                pause = _pause(attempt, 0.5)
                if _now() + pause >= end:
                    raise
            attempt += 1
            time.sleep(pause)

    def _try_give_back(self) -> None:
        try:
            self._client._wire.exchange("DELETE", self._path, None, self._client._timeout)
        except LeaseholdError as error:
            _log.debug("lock `%s` could not be given back: %s", self.name, error)

    def _lose(self, why: str) -> None:
        with self._changed:
            if self.why is not None or self._given_back:
                return
            self._ended = True
            self.why = why
            self.lost.set()
            self._changed.notify_all()
