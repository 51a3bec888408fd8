"""The client against real servers, which the tests start and kill themselves.

    LEASEHOLD_TEST_BINARY=target/debug/leasehold python -m unittest test_leasehold

LEASEHOLD_TEST_BACKEND is a backend URL; without it each server has a SQLite file. LEASEHOLD_TEST_NODE_PIDS are the processes
of that backend's nodes, LEASEHOLD_TEST_TLS is a folder with ca.crt, server.crt, server.key, client.crt and client.key.
"""

from __future__ import annotations

import contextlib
import gc
import linecache
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import uuid
from typing import Any, Callable, Generator, Iterator, List, Mapping, Optional, Tuple
from unittest import mock
from urllib.parse import urlsplit

import leasehold
from leasehold import Client, Event, Lease

BINARY = os.environ.get("LEASEHOLD_TEST_BINARY", "leasehold")
BACKEND = os.environ.get("LEASEHOLD_TEST_BACKEND")
NODE_PIDS = [int(pid) for pid in os.environ.get("LEASEHOLD_TEST_NODE_PIDS", "").split()]
TLS = os.environ.get("LEASEHOLD_TEST_TLS")
EventsOf = Generator[Event, None, None]
# What must happen soon, even on a busy machine.
SOON = 20.0
# A thread that is to wake up at a moment may do so this much later there. It must not believe in its lease meanwhile.
LATE = 10.0


class Server:
    """A `leasehold serve` of its own, on a free port. It dies with this process."""

    def __init__(self, *options: str, tokens: bool = False) -> None:
        self._place = tempfile.TemporaryDirectory()
        self.tokens = os.path.join(self._place.name, "tokens")
        self._options = [*options, *(["--tokens", self.tokens] if tokens else [])]
        self._process: Optional[subprocess.Popen[str]] = None

    def run(self, *arguments: str) -> str:
        """What another leasehold command of this place says."""
        return subprocess.run(
            [BINARY, *arguments], env=self._environment(), capture_output=True, check=True, text=True
        ).stdout

    def __enter__(self) -> Server:
        bound = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
        backend = [] if BACKEND is None else ["--backend", BACKEND]
        self._log = open(os.path.join(self._place.name, "log"), "w+")
        self._process = subprocess.Popen(
            [*bound, BINARY, *backend, "serve", "--listen", "127.0.0.1:0", *self._options],
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self.url = line.strip().rpartition(" at ")[2]
        if not self.url.startswith("http"):
            self._log.seek(0)
            raise AssertionError(f"the server does not serve: {line!r} {self._log.read()}")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None and self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()
        self._log.close()
        self._place.cleanup()

    def send(self, what: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(what)

    def _environment(self) -> dict[str, str]:
        home = {"XDG_DATA_HOME": self._place.name, "XDG_CONFIG_HOME": self._place.name}
        return {**{k: v for k, v in os.environ.items() if k != "LEASEHOLD_BACKEND"}, **home}


class Cutter:
    """Passes bytes to the server and back, late if wanted, and can cut connections: when an answer comes, or all now.

    The next answers are replaced by those of `instead`, and come as late as `delays` says; None stands for no change.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "", parts.port or 0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self._listener.getsockname()[1]
        self._open: List[socket.socket] = []
        self.drop_answers = 0
        self.delay = 0.0
        self.instead: List[Optional[bytes]] = []
        self.delays: List[float] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def cut_all(self) -> None:
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut_all()
        for connection in self._open:
            connection.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                self._open += [near, far]
                threading.Thread(target=self._pump, args=(near, far, False), daemon=True).start()
                threading.Thread(target=self._pump, args=(far, near, True), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while True:
                data = source.recv(65536)
                if not data:
                    break
                if answers and self.drop_answers > 0:
                    self.drop_answers -= 1
                    break
                if answers:
                    time.sleep(self.delays.pop(0) if self.delays else self.delay)
                    data = (self.instead.pop(0) if self.instead else None) or data
                sink.sendall(data)
        for connection in (source, sink):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def answer(status: int, body: str, kind: str = "text/html") -> bytes:
    """What a proxy says in a server's place, byte by byte."""
    content = body.encode()
    head = f"HTTP/1.1 {status} Odd\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


def fresh(what: str = "test") -> str:
    """A name that no other test uses."""
    return f"{what}/{uuid.uuid4().hex}"


def eventually(what: str, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {SOON} s: {what}")
        time.sleep(0.005)


def believes_until(lease: Lease) -> float:
    """Asks all the time whether the lease is lost. The last moment after which it was not yet."""
    last = leasehold._now()
    end = last + SOON
    while last < end:
        asked = leasehold._now()
        if lease.lost.is_set():
            return last
        last = asked
        time.sleep(0.001)
    raise AssertionError(f"not lost within {SOON} s")


def threads_of(lease: Lease) -> List[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == f"leasehold {lease.name}"]


def recorded(client: Client, log: List[Tuple[str, str]]) -> None:
    """Notes when each exchange begins and ends."""
    exchange = client._wire.exchange

    def noted(method: str, path: str, *rest: Any, **more: Any) -> Any:
        what = "renew" if path.endswith("/renew") else method
        log.append(("begins", what))
        try:
            return exchange(method, path, *rest, **more)
        finally:
            log.append(("ends", what))

    client._wire.exchange = noted  # type: ignore[method-assign]


class WithServer(unittest.TestCase):
    """All that needs one server which nobody kills."""

    server: Server
    client: Client

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = Server("--max-wait", "300ms").__enter__()
        cls.addClassCleanup(cls.server.__exit__)
        cls.client = Client(cls.server.url)
        cls.addClassCleanup(cls.client.close)

    def enough(self, events: EventsOf) -> EventsOf:
        self.addCleanup(events.close)
        return events

    def test_threads_never_hold_it_together_and_fences_grow(self) -> None:
        name, inside, most, fences = fresh(), [0], [0], []
        failures: List[BaseException] = []

        def work() -> None:
            try:
                for _ in range(5):
                    with self.client.lock(name, wait=60) as lease:
                        inside[0] += 1
                        most[0] = max(most[0], inside[0])
                        fences.append(lease.fence)
                        time.sleep(0.002)
                        inside[0] -= 1
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertEqual((most[0], len(fences)), (1, 40))
        self.assertEqual(fences, sorted(set(fences)))

    def test_processes_never_hold_it_together_and_fences_grow(self) -> None:
        name = fresh()
        with tempfile.TemporaryDirectory() as place:
            journal = os.path.join(place, "journal")
            command = [sys.executable, __file__, "--worker", self.server.url, name, journal]
            workers = [subprocess.Popen(command) for _ in range(2)]
            self.assertEqual([worker.wait() for worker in workers], [0, 0])
            with open(journal) as lines:
                entries = [line.split() for line in lines]
        self.assertEqual(len(entries), 2 * 2 * 15)
        self.assertEqual(len({pid for _, pid, _ in entries}), 2)
        for entered, left in zip(entries[::2], entries[1::2]):
            self.assertEqual((entered[0], left[0], entered[1:]), ("in", "out", left[1:]))
        fences = [int(fence) for _, _, fence in entries[::2]]
        self.assertEqual(fences, sorted(set(fences)))

    def test_a_lease_outlives_its_ttl(self) -> None:
        name = fresh()
        with self.client.lock(name, ttl=4) as lease:
            self.assertFalse(lease.lost.wait(9))
            self.assertGreater(lease.remaining(), 0.0)
            lease.ensure_valid()
            self.assertTrue(lease.holder.endswith(f":{os.getpid()}"), lease.holder)
            with self.assertRaises(leasehold.LockHeld):
                self.client.acquire(name, wait=0)
            self.assertEqual(self.client.inspect(name)["holder"], lease.holder)

    def test_the_deadline_counts_from_when_the_request_was_sent(self) -> None:
        cutter = Cutter(self.server.url)
        cutter.delay = 1.0
        client = Client(cutter.url)
        try:
            sent = leasehold._now()
            with client.lock(fresh(), ttl=10, wait=0) as lease:
                self.assertLess(lease.remaining() + leasehold._now(), sent + 10.01)
                self.assertGreater(lease.remaining() + leasehold._now(), sent + 8)
                sent = leasehold._now()
                lease.extend()
                self.assertLess(lease.remaining() + leasehold._now(), sent + 10.01)
                self.assertGreater(lease.remaining() + leasehold._now(), sent + 8)
                with self.assertRaises(leasehold.TooShort):
                    lease.ensure_valid(margin=10)
        finally:
            client.close()
            cutter.close()

    def test_one_may_wait_longer_than_the_server_lets(self) -> None:
        name = fresh()
        asked: List[Tuple[str, str]] = []
        waiter = Client(self.server.url)
        recorded(waiter, asked)
        got: List[Lease] = []
        first = self.client.acquire(name)
        thread = threading.Thread(target=lambda: got.append(waiter.acquire(name, wait=60)))
        thread.start()
        # Some are refused because they want to wait for too long at once; the others were all in vain.
        eventually("it asks again and again", lambda: asked.count(("ends", "POST")) >= 12)
        self.assertEqual(got, [])
        first.release()
        thread.join()
        self.assertGreater(got[0].fence, first.fence)
        got[0].release()
        waiter.close()

    def test_who_waits_in_vain_is_told_who_holds_it(self) -> None:
        name = fresh()
        with self.client.lock(name, holder="ana", reason="tea") as lease:
            start = time.monotonic()
            with self.assertRaises(leasehold.LockHeld) as caught:
                self.client.acquire(name, wait=0.7)
            self.assertGreaterEqual(time.monotonic() - start, 0.7)
            held = caught.exception
            self.assertEqual((held.kind, held.status, held.holder), ("lock-held", 423, lease.holder))
            self.assertEqual(held.name, name)
            self.assertGreater(held.expires_in_ms or 0, 0)
            self.assertTrue(held.nodes)
            self.assertEqual(self.client.inspect(name)["reason"], "tea")

    def test_it_is_released_when_the_body_ends(self) -> None:
        name = fresh()
        with self.client.lock(name) as lease:
            pass
        self.assertEqual(self.client.inspect(name)["state"], "free")
        self.assertEqual(lease.remaining(), 0.0)
        self.assertFalse(lease.lost.is_set())
        with self.assertRaises(leasehold.LeaseLost):
            lease.ensure_valid()
        with self.assertRaises(leasehold.LeaseLost):
            lease.extend()
        lease.release()

    def test_it_is_released_when_the_body_raises_and_the_exception_gets_out(self) -> None:
        name = fresh()
        with self.assertRaisesRegex(ValueError, "mine"):
            with self.client.lock(name):
                raise ValueError("mine")
        self.assertEqual(self.client.inspect(name)["state"], "free")

    def test_no_renewal_follows_a_release(self) -> None:
        for round_ in range(12):
            exchanges: List[Tuple[str, str]] = []
            client = Client(self.server.url)
            recorded(client, exchanges)
            lease = client.acquire(fresh(), ttl=30)
            # Due now, and again and again: the release comes in the middle of a renewal, or just before or after one.
            prolong = lease._keeping._prolong

            def due_again(sent: float, document: Mapping[str, Any]) -> bool:
                took = prolong(sent, document)
                lease._keeping._renew_at = 0.0
                return took

            lease._keeping._prolong = due_again  # type: ignore[method-assign]
            lease.extend()
            eventually("renewals go on", lambda: exchanges.count(("begins", "renew")) > 3 + round_)
            lease.release()
            eventually("its threads end", lambda: not threads_of(lease))
            self.assertEqual(exchanges[-2:], [("begins", "DELETE"), ("ends", "DELETE")])
            self.assertEqual(self.client.inspect(lease.name)["state"], "free")
            client.close()

    def test_an_acquire_whose_answer_got_lost_is_repeated_and_granted_once(self) -> None:
        name = fresh()
        cutter = Cutter(self.server.url)
        cutter.drop_answers = 1
        asked: List[Tuple[str, str]] = []
        client = Client(cutter.url)
        recorded(client, asked)
        try:
            with client.lock(name, wait=0) as lease:
                self.assertEqual(asked.count(("begins", "POST")), 2)
                self.assertEqual(self.client.inspect(name)["fence"], lease.fence)
                granted = [event for event in self.client.inspect(name)["history"] if event["type"] == "acquired"]
                self.assertEqual([event["fence"] for event in granted], [lease.fence])
                self.assertLessEqual(lease.remaining(), 10.0)
        finally:
            client.close()
            cutter.close()

    def behind(self) -> Tuple[Cutter, Client]:
        """A client with something between it and the server."""
        cutter = Cutter(self.server.url)
        self.addCleanup(cutter.close)
        client = Client(cutter.url)
        client._wait_at_once = 0.2
        self.addCleanup(client.close)
        return cutter, client

    def test_a_lease_that_is_over_when_its_answer_comes_is_given_back_and_asked_for_again(self) -> None:
        cutter, client = self.behind()
        asked: List[Tuple[str, str]] = []
        recorded(client, asked)
        cutter.delays = [2.5]
        with client.lock(fresh(), ttl=2) as lease:
            self.assertGreater(lease.remaining(), 0.0)
            self.assertFalse(lease.lost.is_set())
        self.assertEqual(asked[1::2][:3], [("ends", "POST"), ("ends", "DELETE"), ("ends", "POST")])

    def test_no_lease_that_is_over_is_returned_to_one_who_does_not_wait(self) -> None:
        cutter, client = self.behind()
        cutter.delays = [2.5]
        name = fresh()
        with self.assertRaises(leasehold.TooSlow) as caught:
            client.acquire(name, ttl=2, wait=0)
        self.assertIn("over before the answer came", str(caught.exception))
        self.assertEqual(self.client.inspect(name)["state"], "free")

    def test_what_a_proxy_says_of_itself_settles_nothing(self) -> None:
        for status in (502, 504):
            for kind, page in (("text/html", "<h1>Bad</h1>"), ("application/json", '{"status": 504}')):
                cutter, client = self.behind()
                cutter.instead = [answer(status, page, kind)]
                name = fresh()
                lease = client.acquire(name, ttl=30, wait=0)
                self.assertEqual(self.client.inspect(name)["fence"], lease.fence)
                cutter.instead = [answer(status, page, kind)]
                with self.assertRaises(leasehold.Unreachable):
                    lease.extend()
                self.assertFalse(lease.lost.is_set())
                cutter.instead = [answer(status, page, kind)]
                with contextlib.suppress(leasehold.LeaseLost):
                    lease.release()
                self.assertEqual(self.client.inspect(name)["state"], "free")

    def test_a_key_whose_lease_another_instance_granted_is_asked_for_again(self) -> None:
        for kind in ("idempotency-elsewhere", "idempotency-in-flight"):
            cutter, client = self.behind()
            problem = '{"type": "urn:leasehold:problem:%s", "status": 409, "detail": "x"}' % kind
            cutter.instead = [answer(409, problem, "application/problem+json")] * 2
            keys: List[Mapping[str, str]] = []
            exchange = client._wire.exchange

            def noted(*all: Any, **more: Any) -> Any:
                keys.extend(all[4:5])
                return exchange(*all, **more)

            client._wire.exchange = noted  # type: ignore[method-assign]
            with client.lock(fresh(), ttl=30, wait=0) as lease:
                self.assertGreater(lease.remaining(), 0.0)
            self.assertEqual((len(keys), len({key["Idempotency-Key"] for key in keys})), (3, 1))

    def test_no_exception_and_no_log_tells_a_lease_id(self) -> None:
        cutter, client = self.behind()
        said: List[str] = []
        impatient = Client(cutter.url, timeout=0.2)
        self.addCleanup(impatient.close)
        lease = client.acquire(fresh(), ttl=30)
        secret = lease._keeping._path.rpartition("/")[2]
        page = answer(404, f"<p>{lease._keeping._path} is not here</p>")
        with self.assertLogs("leasehold", "DEBUG") as logs:
            leasehold._log.debug("so that there is one")
            cutter.instead = [page]
            with self.assertRaises(leasehold.Unreachable) as caught:
                lease.extend()
            said.append(repr(caught.exception))
            cutter.drop_answers = 1
            with self.assertRaises(leasehold.Unreachable) as caught:
                lease.extend()
            said.append(repr(caught.exception))
            cutter.instead = [answer(200, '{"lease_id": "%s' % secret, "application/json")]
            with self.assertRaises(leasehold.Unreachable) as caught:
                lease.extend()
            said.append(repr(caught.exception))
            cutter.instead = [answer(201, '{"lease_id": "%s' % secret, "application/json")] * 99
            with self.assertRaises(leasehold.Unreachable) as caught:
                impatient.acquire(fresh(), wait=0)
            said.append(repr(caught.exception))
            cutter.instead = [page] * 99
            with lease:
                pass
        self.assertEqual([text for text in (*said, *logs.output, repr(lease)) if secret in text], [])
        self.assertIn("POST /v1/leases/.../renew: status 404", said[0])
        self.assertIn("not released", logs.output[-1])

    def in_a_fork(self, work: Callable[[], None]) -> None:
        """Runs the work in a forked process, which may not take long, and says whether it went well."""
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                signal.alarm(int(SOON))
                work()
                code = 0
            finally:
                os._exit(code)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)

    def test_a_forked_process_that_leaves_the_body_releases_nothing(self) -> None:
        name = fresh()
        with self.client.lock(name, ttl=30) as lease:

            def leave() -> None:
                lock = leasehold.Lock(self.client, name, 30, None, None, None)
                lock._keep(lease)
                with contextlib.suppress(leasehold.LeaseLost):
                    lock.__exit__(None, None, None)
                with contextlib.suppress(leasehold.LeaseLost):
                    lease.release()

            self.in_a_fork(leave)
            lease.ensure_valid()
            self.assertEqual(self.client.inspect(name)["fence"], lease.fence)

    def test_in_a_forked_process_the_lease_is_lost_and_no_lock_of_a_thread_is_waited_for(self) -> None:
        with self.client.lock(fresh(), ttl=30) as lease:
            taken, done = threading.Event(), threading.Event()

            def take() -> None:
                # As if a thread were in the middle of something: in the child nobody will ever finish that.
                with lease._keeping._changed, lease._keeping._exchange:
                    taken.set()
                    done.wait(SOON)

            def look() -> None:
                told: List[Lease] = []
                lease.on_lost(told.append)
                assert told == [lease]
                assert lease.lost.is_set() and lease.lost.wait(0) and lease.remaining() == 0.0
                assert f"process {os.getppid()}" in (lease.lost.why or "")
                for fails in (lease.ensure_valid, lease.extend):
                    try:
                        fails()
                    except leasehold.LeaseLost:
                        continue
                    raise AssertionError(fails)
                lease.release()
                repr(lease)

            thread = threading.Thread(target=take)
            thread.start()
            taken.wait(SOON)
            self.in_a_fork(look)
            done.set()
            thread.join()
            self.assertFalse(lease.lost.is_set())
            lease.ensure_valid()

    def test_a_lease_that_the_program_dropped_is_given_back(self) -> None:
        name = fresh()
        with self.assertLogs("leasehold", "WARNING") as logs:
            lease = self.client.acquire(name, ttl=30)
            loss = lease.lost
            lease.on_lost(lambda _: print(lease))
            del lease
            gc.collect()
            eventually("nobody has it", lambda: self.client.inspect(name)["state"] == "free")
        self.assertEqual(loss.why, leasehold._DROPPED)
        self.assertIn(name, logs.output[0])

    def test_ctrl_c_at_any_moment_of_acquiring_leaves_no_lease_that_is_renewed(self) -> None:
        # The exceptions are kept, and so is all that their tracebacks refer to.
        interrupts: List[BaseException] = []
        names: List[str] = []
        while True:
            names.append(fresh("interrupted"))
            lock = self.client.lock(names[-1], ttl=2)
            left = [len(names)]

            def interrupt(frame: Any, event: str, _: object) -> Any:
                if frame.f_code.co_filename != leasehold.__file__:
                    return None
                # Python handles no signal between the end of a `with` and its `__exit__`; a trace would.
                line = linecache.getline(leasehold.__file__, frame.f_lineno)
                if event == "line" and not line.lstrip().startswith("with "):
                    left[0] -= 1
                    if left[0] == 0:
                        raise KeyboardInterrupt
                return interrupt

            tracing = sys.gettrace()
            sys.settrace(interrupt)
            try:
                with lock:
                    sys.settrace(tracing)
                    break
            except KeyboardInterrupt as error:
                interrupts.append(error)
            finally:
                sys.settrace(tracing)
        self.assertGreater(len(interrupts), 50)

        def renewed() -> List[str]:
            kept = {thread.name for thread in threading.enumerate()}
            return [name for name in names if f"leasehold {name}" in kept]

        eventually("no thread keeps one", lambda: renewed() == [])
        for name in names:
            eventually(f"{name} is free", lambda: self.client.inspect(name)["state"] == "free")

    def test_a_forced_release_makes_it_lost(self) -> None:
        name = fresh()
        told: List[Lease] = []
        with self.assertRaises(leasehold.LeaseLost) as caught:
            with self.client.lock(name, ttl=9) as lease:
                lease.on_lost(told.append)
                with self.assertRaises(leasehold.FenceMovedOn) as moved:
                    self.client.force_release(name, lease.fence - 1, "testing")
                self.assertEqual((moved.exception.fence, moved.exception.expected_fence), (lease.fence, lease.fence - 1))
                self.assertFalse(lease.lost.is_set())
                self.assertTrue(self.client.force_release(name, lease.fence, "testing"))
                self.assertTrue(lease.lost.wait(SOON))
                eventually("the callback is called", lambda: told == [lease])
                late: List[Lease] = []
                lease.on_lost(late.append)
                self.assertEqual(late, [lease])
        self.assertEqual(caught.exception.fence, lease.fence)
        self.assertNotEqual(caught.exception.why, leasehold._UNANSWERED)
        self.assertEqual(told, [lease])

    def test_a_callback_may_fail_or_release(self) -> None:
        name, called = fresh(), []

        def release(lease: Lease) -> None:
            with contextlib.suppress(leasehold.LeaseLost):
                lease.release()
            called.append(lease)

        lease = self.client.acquire(name, ttl=30)
        lease.on_lost(lambda _: 1 / 0)  # type: ignore[arg-type]
        lease.on_lost(release)
        with self.assertLogs("leasehold", "ERROR"):
            self.client.force_release(name, lease.fence, "testing")
            start = time.monotonic()
            with self.assertRaises(leasehold.LeaseLost):
                lease.extend()
            eventually("both were called", lambda: called == [lease])
            # If they were called while something is taken, that would last until the deadline.
            self.assertLess(time.monotonic() - start, SOON)

    def test_events_go_on_where_they_were_cut(self) -> None:
        name = fresh()
        cutter = Cutter(self.server.url)
        client = Client(cutter.url)
        try:
            events = self.enough(client.events(name))
            self.assertEqual(next(events).type, "hello")
            first = self.client.acquire(name)
            acquired = until(events, "acquired")
            self.assertEqual((acquired.data["fence"], acquired.data["name"]), (first.fence, name))
            cutter.cut_all()
            first.release()
            second = self.client.acquire(name)
            hello = until(events, "hello")
            self.assertTrue(hello.data["resumed"])
            released = until(events, "released")
            self.assertEqual(released.data["fence"], first.fence)
            self.assertEqual(until(events, "acquired").data["fence"], second.fence)
            second.release()
            # And by another generator, from an id that was kept.
            again = self.enough(client.events(name, last_event_id=acquired.id))
            self.assertEqual(until(again, "released").id, released.id)
        finally:
            client.close()
            cutter.close()

    def test_events_of_all_locks_come_with_overviews_if_wanted(self) -> None:
        name = fresh()
        events = self.enough(self.client.events(overview=True))
        overview = until(events, "overview")
        self.assertIn("cluster", overview.data)
        with self.client.lock(name) as lease:
            acquired = until(events, "acquired", name)
            self.assertEqual(acquired.data["fence"], lease.fence)

    def test_a_lease_whose_renewals_are_not_answered_is_given_back_when_it_is_lost(self) -> None:
        name = fresh()
        cutter = Cutter(self.server.url)
        client = Client(cutter.url)
        try:
            lease = client.acquire(name, ttl=3)
            cutter.drop_answers = 1_000_000
            self.assertTrue(lease.lost.wait(SOON))
            eventually("nobody has it", lambda: self.client.inspect(name)["state"] == "free")
            self.assertEqual(self.client.inspect(name)["history"][0]["type"], "released")
        finally:
            client.close()
            cutter.close()

    def test_odd_names_stay_what_they_are(self) -> None:
        self.assertEqual(leasehold._segment(".."), "%2E%2E")
        for odd in (".", "..", "a/b", "a b+c", "100%", "%2F", "☂?x=1#y", "x" * 512):
            with self.client.lock(odd) as lease:
                self.assertEqual(lease.name, odd)
                info = self.client.inspect(odd)
                self.assertEqual((info["name"], info["fence"]), (odd, lease.fence))

    def test_locks_are_listed_by_prefix_and_page_by_page(self) -> None:
        prefix = fresh("list") + "/"
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.object(leasehold, "_LOCKS_PER_PAGE", 2))
            stack.enter_context(self.client.lock(fresh("another")))
            for number in range(3):
                stack.enter_context(self.client.lock(f"{prefix}{number}"))
            listed = list(self.client.list(prefix))
            self.assertEqual([lock["name"] for lock in listed], [f"{prefix}{number}" for number in range(3)])
            self.assertEqual({lock["state"] for lock in listed}, {"held"})

    def test_nodes_are_told(self) -> None:
        cluster = self.client.cluster()
        self.assertTrue(cluster["ready"])
        self.assertEqual(len(self.client.nodes()), cluster["configured"])
        self.assertEqual({node["state"] for node in self.client.nodes()}, {"up"})

    def test_nonsense_is_refused_with_the_field(self) -> None:
        with self.assertRaises(leasehold.Invalid) as caught:
            self.client.acquire(fresh(), ttl=0.001)
        self.assertEqual((caught.exception.status, caught.exception.field), (422, "ttl_ms"))

    @unittest.skipUnless(len(NODE_PIDS) > 2, "one node only")
    def test_too_few_nodes_are_no_quorum_and_a_lease_is_lost_at_its_deadline(self) -> None:
        name = fresh()
        lease = self.client.acquire(name, ttl=2)
        stopped = NODE_PIDS[: len(NODE_PIDS) // 2 + 1]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        since = leasehold._now()
        try:
            with self.assertRaises(leasehold.NoQuorum) as caught:
                self.client.acquire(fresh(), wait=0)
            self.assertEqual(len(caught.exception.nodes), len(NODE_PIDS))
            self.assertLess(believes_until(lease), since + 2)
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        eventually("there is a quorum again", lambda: self.client.cluster()["ready"])
        with self.client.lock(name) as later:
            self.assertGreater(later.fence, lease.fence)


class WithoutServer(unittest.TestCase):
    """What happens when the server goes away, or never was there."""

    def client(self, url: str, **options: Any) -> Client:
        client = Client(url, **options)
        self.addCleanup(client.close)
        return client

    def told_of_loss(self, what: signal.Signals) -> None:
        told: List[float] = []
        with Server() as server:
            client = self.client(server.url, timeout=60)
            lease = client.acquire(fresh(), ttl=4)
            lease.on_lost(lambda _: told.append(leasehold._now()))
            fence = lease.fence
            lease.extend()
            server.send(what)
            gone = leasehold._now()
            last_believed = believes_until(lease)
            eventually("the callback is called", lambda: len(told) == 1)
            # The last renewal was sent before the server was gone, and nobody else gets the lock within a TTL of that.
            self.assertGreater(last_believed, gone)
            self.assertLess(last_believed, gone + 4)
            self.assertLess(told[0], gone + 4 + LATE)
            self.assertEqual(lease.remaining(), 0.0)
            with self.assertRaises(leasehold.LeaseLost) as caught:
                lease.ensure_valid()
            self.assertEqual(caught.exception.fence, fence)
            with self.assertRaises(leasehold.LeaseLost):
                lease.release()

    def test_the_loss_is_told_by_the_deadline_when_the_server_is_killed(self) -> None:
        self.told_of_loss(signal.SIGKILL)

    def test_the_loss_is_told_by_the_deadline_when_the_server_is_stopped(self) -> None:
        self.told_of_loss(signal.SIGSTOP)

    def test_the_watchdog_tells_while_the_keeper_hangs(self) -> None:
        with Server() as server:
            client = self.client(server.url)
            lease = client.acquire(fresh(), ttl=4)
            hangs, on = threading.Event(), threading.Event()

            def hang(*_: object, **__: object) -> Any:
                hangs.set()
                on.wait(SOON)
                raise leasehold.Unreachable("it hung")

            client._wire.exchange = hang  # type: ignore[method-assign]
            latest = leasehold._now() + 4
            self.assertTrue(hangs.wait(SOON))
            self.assertTrue(lease.lost.wait(SOON))
            self.assertLess(leasehold._now(), latest + LATE)
            with self.assertRaises(leasehold.LeaseLost):
                lease.release()
            on.set()

    def test_no_thread_is_needed_to_see_that_the_deadline_passed(self) -> None:
        granted = {"lease_id": "x", "name": "x", "holder": "x", "fence": 1, "ttl_ms": 100, "expires_in_ms": 90}
        sent = leasehold._now()
        lease = Lease(Client("http://127.0.0.1:1"), {**granted, "elapsed_ms": 0}, sent)
        self.assertLess(believes_until(lease), sent + 0.09)
        self.assertEqual(lease.lost.why, leasehold._UNANSWERED)

    def test_an_exception_of_the_body_is_not_masked_by_the_loss(self) -> None:
        with Server() as server, self.assertLogs("leasehold", "WARNING"), self.assertRaisesRegex(ValueError, "mine"):
            with self.client(server.url).lock(fresh(), ttl=0.5) as lease:
                server.send(signal.SIGKILL)
                lease.lost.wait(SOON)
                raise ValueError("mine")

    def test_a_body_that_ended_well_without_the_lease_raises(self) -> None:
        with Server() as server, self.assertRaises(leasehold.LeaseLost):
            with self.client(server.url).lock(fresh(), ttl=0.5) as lease:
                server.send(signal.SIGKILL)
                lease.lost.wait(SOON)

    def test_a_release_that_fails_is_logged_and_raises_nothing_from_with(self) -> None:
        with Server() as server, self.assertLogs("leasehold", "WARNING") as logs:
            with self.client(server.url, timeout=0.5).lock(fresh(), ttl=30):
                server.send(signal.SIGKILL)
        self.assertIn("not released", logs.output[0])

    def test_an_absent_server_is_unreachable(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        with self.assertRaisesRegex(leasehold.Unreachable, "refused"):
            self.client(f"http://127.0.0.1:{port}", timeout=0.5).acquire("x", wait=0)
        with self.assertRaisesRegex(leasehold.Unreachable, "refused"):
            next(self.client(f"http://127.0.0.1:{port}").events(patience=0.2))

    def test_the_port_is_the_servers_own_unless_given(self) -> None:
        for url, port in (("http://x", 7717), ("https://x/base", 7717), ("http://x:80", 80), ("https://x:443", 443)):
            self.assertEqual(self.client(url)._wire._connection(1.0).port, port)

    def test_an_address_that_is_none_is_refused_at_once(self) -> None:
        with self.assertRaisesRegex(ValueError, "ftp"):
            self.client("ftp://x")

    def test_tokens_and_scopes_are_asked_for(self) -> None:
        server = Server(tokens=True)

        def new(name: str, scope: str) -> str:
            command = ("token", "new", "--file", server.tokens, "--name", name, "--scope", scope)
            return server.run(*command).strip()

        mine, reader = new("mine", "lock:mine/*"), new("reader", "read")
        with server:
            with self.assertRaises(leasehold.Unauthorized):
                self.client(server.url).acquire("mine/1", wait=0)
            with self.assertRaises(leasehold.Forbidden) as caught:
                self.client(server.url, token=mine).acquire("other", wait=0)
            self.assertIn("lock:", caught.exception.needs or "")
            with self.client(server.url, token=mine).lock("mine/1") as lease:
                self.assertEqual(self.client(server.url, token=reader).inspect("mine/1")["fence"], lease.fence)
                with self.assertRaises(leasehold.Forbidden):
                    self.client(server.url, token=reader).force_release("mine/1", lease.fence, "testing")

    @unittest.skipUnless(TLS, "no certificates")
    def test_certificates_are_checked_on_both_sides(self) -> None:
        def file(name: str) -> str:
            return os.path.join(TLS or "", name)

        options = ("--tls-cert", file("server.crt"), "--tls-key", file("server.key"), "--client-ca", file("ca.crt"))
        with Server(*options) as server:
            self.assertTrue(server.url.startswith("https://"))
            cert = (file("client.crt"), file("client.key"))
            with self.client(server.url, ca=file("ca.crt"), cert=cert).lock("x") as lease:
                self.assertGreater(lease.fence, 0)
            with self.assertRaisesRegex(leasehold.Unreachable, "certificate verify failed"):
                self.client(server.url, cert=cert, timeout=0.2).inspect("x")
            with self.assertRaises(leasehold.Unreachable):
                self.client(server.url, ca=file("ca.crt"), timeout=0.2).inspect("x")


def until(events: Iterator[Event], kind: str, name: Optional[str] = None) -> Event:
    """The next event of this kind."""
    return next(event for event in events if event.type == kind and name in (None, event.data.get("name")))


def worker(url: str, name: str, journal: str) -> None:
    """Takes the lock again and again and notes in the journal when it is in and out."""
    client = Client(url)
    with open(journal, "a") as lines:
        for _ in range(15):
            with client.lock(name, wait=60) as lease:
                print("in", os.getpid(), lease.fence, file=lines, flush=True)
                time.sleep(0.002)
                print("out", os.getpid(), lease.fence, file=lines, flush=True)


if __name__ == "__main__" and sys.argv[1:2] == ["--worker"]:
    worker(*sys.argv[2:])
