import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Deque;
import java.util.HashSet;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;

/** What {@link Leasehold} promises, against a real server: {@code java -cp CLASSES LeaseholdTest URL}. */
public final class LeaseholdTest {
    private static final Duration SOON = Duration.ofSeconds(20);
    private static final Duration LONG = Duration.ofSeconds(30);

    interface Case {
        void run(Between between) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        URI server = URI.create(arguments[0]);
        int failed = 0;
        failed += check("a lease that is over when its answer comes is given back and asked for again", server, LeaseholdTest::lateAnswer);
        failed += check("no lease that is over is returned to a caller who does not wait", server, LeaseholdTest::lateAnswerWithoutWait);
        failed += check("what a proxy says of itself settles nothing", server, LeaseholdTest::proxies);
        failed += check("a key whose lease another instance granted is asked for again", server, LeaseholdTest::elsewhere);
        failed += check("a lease that the program dropped is given back", server, LeaseholdTest::dropped);
        failed += check("a lease is lost when the machine slept through its deadline", server, LeaseholdTest::suspended);
        failed += check("no exception tells a lease id", server, LeaseholdTest::secrets);
        failed += check("the port is the server's own unless given", server, LeaseholdTest::port);
        System.exit(failed == 0 ? 0 : 1);
    }

    private static int check(String name, URI server, Case body) throws IOException {
        try (Between between = new Between(server)) {
            body.run(between);
            System.out.println("ok " + name);
            return 0;
        } catch (Exception | AssertionError failure) {
            System.out.println("FAILED " + name);
            failure.printStackTrace(System.out);
            return 1;
        }
    }

    private static void lateAnswer(Between between) throws Exception {
        between.delays.add(2_500L);
        try (Leasehold locks = between.client(); Lease lease = locks.acquire(fresh(), Duration.ofSeconds(2), LONG)) {
            require(!lease.remaining().isZero(), "something remains of the lease");
            require(between.asked("DELETE") == 1 && between.asked("POST") == 2, "the first lease was given back");
        }
    }

    private static void lateAnswerWithoutWait(Between between) throws Exception {
        between.delays.add(2_500L);
        try (Leasehold locks = between.client(); Lease lease = locks.acquire(fresh(), Duration.ofSeconds(2), Duration.ZERO)) {
            throw new AssertionError("a lease with " + lease.remaining());
        } catch (Leasehold.Problem problem) {
            require(problem.kind().equals("too-slow"), problem.getMessage());
        }
        require(between.asked("DELETE") == 1, "it was given back");
    }

    private static void proxies(Between between) throws Exception {
        for (int status : List.of(502, 504)) {
            for (String page : List.of("", "<h1>Bad</h1>", "{\"status\": 504}")) {
                try (Leasehold locks = between.client()) {
                    between.keys.clear();
                    between.instead.add(new Page(status, page));
                    String name = fresh();
                    Lease lease = locks.acquire(name, Duration.ofSeconds(6), Duration.ZERO);
                    require(new HashSet<>(between.keys).size() == 1, "it was repeated with the same key");
                    int before = between.asked("POST");
                    between.instead.add(new Page(status, page));
                    eventually("it is renewed again", () -> between.asked("POST") >= before + 2);
                    require(!lease.lost().isDone(), "nobody said that the lease is lost");
                    between.instead.add(new Page(status, page));
                    closeWhateverIsSaid(lease);
                    locks.acquire(name, LONG, Duration.ZERO).close();
                }
            }
        }
    }

    /** A release that is repeated may be told that there is nothing to release any more. */
    private static void closeWhateverIsSaid(Lease lease) throws IOException {
        try {
            lease.close();
        } catch (Leasehold.Problem problem) {
            require(problem.kind().equals("lease-lost"), problem.getMessage());
        }
    }

    private static void elsewhere(Between between) throws Exception {
        Page problem = new Page(409, "{\"type\": \"urn:leasehold:problem:idempotency-elsewhere\", \"detail\": \"x\"}");
        between.instead.addAll(List.of(problem, problem));
        try (Leasehold locks = between.client(); Lease lease = locks.acquire(fresh(), LONG, Duration.ZERO)) {
            require(!lease.remaining().isZero(), "it is held");
            require(between.keys.size() == 3 && new HashSet<>(between.keys).size() == 1, "one key, three requests");
        }
    }

    private static void dropped(Between between) throws Exception {
        try (Leasehold locks = between.client()) {
            String name = fresh();
            drop(locks, name);
            eventually("it is given back", () -> {
                System.gc();
                return between.asked("DELETE") == 1;
            });
            locks.acquire(name, LONG, Duration.ofSeconds(5)).close();
        }
    }

    private static void drop(Leasehold locks, String name) throws Exception {
        Lease lease = locks.acquire(name, LONG, Duration.ZERO);
        lease.lost().thenAccept(why -> System.out.println(lease.name() + ": " + why));
    }

    private static void suspended(Between between) throws Exception {
        Path uptime = Files.createTempFile("uptime", "");
        long begin = System.nanoTime();
        uptime(uptime, begin, 0);
        Thread ticking = new Thread(() -> {
            while (!Thread.interrupted()) {
                uptime(uptime, begin, slept);
                Thread.onSpinWait();
            }
        });
        ticking.start();
        try (Leasehold locks = new Leasehold(between.url(), null, new Clock(uptime))) {
            Lease lease = locks.acquire(fresh(), LONG, Duration.ZERO);
            lease.ensureValid(Duration.ofSeconds(20));
            slept = 40;
            eventually("the clock tells of it", () -> lease.remaining().isZero());
            lease.lost().get(5, TimeUnit.SECONDS);
            eventually("and it is given back", () -> between.asked("DELETE") == 1);
        } finally {
            ticking.interrupt();
            ticking.join();
            Files.delete(uptime);
        }
    }

    private static volatile long slept;

    private static void uptime(Path file, long begin, long slept) {
        try {
            Path next = file.resolveSibling(file.getFileName() + ".next");
            Files.writeString(next, (1_000 + slept + (System.nanoTime() - begin) / 1e9) + " 0.00\n");
            Files.move(next, file, java.nio.file.StandardCopyOption.ATOMIC_MOVE);
        } catch (IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }

    private static void secrets(Between between) throws Exception {
        try (Leasehold locks = between.client(); Lease lease = locks.acquire(fresh(), LONG, Duration.ZERO)) {
            for (Page page : List.of(new Page(404, "<p>/v1/leases/" + lease.id() + "</p>"), new Page(200, "{\"lease_id\": \"" + lease.id()))) {
                between.instead.add(page);
                try {
                    locks.renew(lease.id(), SOON);
                    throw new AssertionError("that is no answer");
                } catch (IOException error) {
                    require(!error.toString().contains(lease.id()), error.toString());
                }
            }
        }
    }

    private static void port(Between between) {
        for (String[] pair : new String[][] {
            {"http://x", "http://x:7717"}, {"https://x/base/", "https://x:7717/base"}, {"http://x:80", "http://x:80"}, {"http://[::1]", "http://[::1]:7717"},
        }) {
            try (Leasehold locks = new Leasehold(URI.create(pair[0]), null)) {
                require(locks.base.equals(pair[1]), locks.base);
            }
        }
    }

    private static String fresh() {
        return "test/java " + UUID.randomUUID();
    }

    private static void require(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError("not so: " + what);
        }
    }

    private static void eventually(String what, BooleanSupplier condition) throws InterruptedException {
        long end = System.nanoTime() + SOON.toNanos();
        while (!condition.getAsBoolean()) {
            require(System.nanoTime() < end, what);
            Thread.sleep(10);
        }
    }

    /** What a proxy says instead of the server's answer. */
    record Page(int status, String body) {}

    /** Passes requests on. The next answers come late by {@code delays}, and are replaced by {@code instead}. */
    static final class Between implements AutoCloseable {
        final Deque<Long> delays = new ArrayDeque<>();
        final Deque<Page> instead = new ArrayDeque<>();
        final List<String> keys = Collections.synchronizedList(new ArrayList<>());
        private final List<String> methods = Collections.synchronizedList(new ArrayList<>());
        private final HttpServer listener;
        private final HttpClient far = HttpClient.newHttpClient();
        private final URI server;

        Between(URI server) throws IOException {
            this.server = server;
            listener = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
            listener.setExecutor(Executors.newCachedThreadPool());
            listener.createContext("/", this::pass);
            listener.start();
        }

        URI url() {
            return URI.create("http://127.0.0.1:" + listener.getAddress().getPort());
        }

        Leasehold client() {
            return new Leasehold(url(), null);
        }

        /** How many requests of this kind were answered. */
        int asked(String method) {
            return Collections.frequency(methods, method);
        }

        private void pass(HttpExchange exchange) throws IOException {
            try {
                String key = exchange.getRequestHeaders().getFirst("Idempotency-Key");
                HttpRequest.Builder request = HttpRequest.newBuilder(server.resolve(exchange.getRequestURI().getRawPath()));
                request.method(exchange.getRequestMethod(), HttpRequest.BodyPublishers.ofByteArray(exchange.getRequestBody().readAllBytes()));
                request.header("Content-Type", "application/json");
                if (key != null) {
                    keys.add(key);
                    request.header("Idempotency-Key", key);
                }
                HttpResponse<String> answer = far.send(request.build(), HttpResponse.BodyHandlers.ofString());
                Page page = new Page(answer.statusCode(), answer.body());
                Long delay;
                synchronized (this) {
                    delay = delays.poll();
                    page = instead.isEmpty() ? page : instead.poll();
                }
                Thread.sleep(delay == null ? 0 : delay);
                methods.add(exchange.getRequestMethod());
                byte[] body = page.body().getBytes();
                exchange.sendResponseHeaders(page.status(), body.length == 0 ? -1 : body.length);
                exchange.getResponseBody().write(body);
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
            } finally {
                exchange.close();
            }
        }

        @Override
        public void close() {
            listener.stop(0);
        }
    }
}
