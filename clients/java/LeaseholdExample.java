import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Locks of a Leasehold server from Java: {@code java LeaseholdExample.java URL [TOKEN]}. JDK 17, nothing else.
 *
 * <p>The class {@link Leasehold} is a small client to copy. The example lets some workers count in a store that checks fences, so
 * that a worker that lost its lease without noticing cannot harm. It exits with 0 if every step was counted once, with 1 if not, and
 * with 2 if the server could not be asked. For a private certificate authority, add
 * {@code -Djavax.net.ssl.trustStore=FILE}.
 */
public final class LeaseholdExample {
    private static final int WORKERS = 4;
    private static final int STEPS = 5;

    public static void main(String[] arguments) throws Exception {
        if (arguments.length < 1 || arguments.length > 2) {
            System.err.println("usage: java LeaseholdExample.java URL [TOKEN]");
            System.exit(2);
        }
        int code;
        try (Leasehold locks = new Leasehold(URI.create(arguments[0]), arguments.length > 1 ? arguments[1] : null)) {
            code = countTogether(locks) && tellsOfLoss(locks) ? 0 : 1;
        } catch (IOException | Leasehold.Problem error) {
            System.err.println("leasehold: " + error);
            code = 2;
        }
        System.exit(code);
    }

    /** Workers take turns: each step reads, waits (once for longer than the TTL), and writes. */
    private static boolean countTogether(Leasehold locks) throws Exception {
        String name = "example/java " + UUID.randomUUID();
        FencedStore store = new FencedStore();
        ExecutorService workers = Executors.newFixedThreadPool(WORKERS);
        List<Future<?>> all = new ArrayList<>();
        for (int worker = 0; worker < WORKERS; worker++) {
            boolean slow = worker == 0;
            all.add(workers.submit(() -> {
                for (int step = 0; step < STEPS; step++) {
                    try (Lease lease = locks.acquire(name, Duration.ofSeconds(4), Duration.ofSeconds(30))) {
                        int seen = store.read();
                        // Longer than the TTL: the lease lives because it is renewed.
                        Thread.sleep(slow && step == 0 ? 5_000 : 5);
                        lease.ensureValid(Duration.ofMillis(20));
                        store.write(seen + 1, lease.fence());
                    }
                }
                return null;
            }));
        }
        workers.shutdown();
        for (Future<?> worker : all) {
            try {
                worker.get();
            } catch (ExecutionException failed) {
                throw failed.getCause() instanceof Exception cause ? cause : failed;
            }
        }
        boolean right = store.read() == WORKERS * STEPS && store.refuses(1);
        System.out.println((right ? "counted " : "WRONG: counted ") + store.read() + " of " + WORKERS * STEPS);
        return right;
    }

    /** If somebody else has the lock, here because it was released behind the holder's back, the next renewal tells. */
    private static boolean tellsOfLoss(Leasehold locks) throws Exception {
        try (Lease lease = locks.acquire("example/java " + UUID.randomUUID(), Duration.ofSeconds(3), Duration.ZERO)) {
            locks.release(lease.id());
            try (Lease other = locks.acquire(lease.name(), Duration.ofSeconds(10), Duration.ZERO)) {
                String why = lease.lost().get(10, TimeUnit.SECONDS);
                boolean right = other.fence() > lease.fence() && lease.remaining().isZero();
                System.out.println((right ? "told of the loss: " : "WRONG: ") + why);
                return right;
            }
        }
    }

    /** What a lock guards must look like this: it refuses a fence below the highest that it has seen. */
    static final class FencedStore {
        private int value;
        private long highest;

        synchronized int read() {
            return value;
        }

        synchronized void write(int next, long fence) {
            if (fence < highest) {
                throw new IllegalStateException("fence " + fence + " is too old: " + highest + " was here");
            }
            highest = fence;
            value = next;
        }

        boolean refuses(long fence) {
            try {
                write(-1, fence);
                return false;
            } catch (IllegalStateException refused) {
                return true;
            }
        }
    }
}

/** A client of {@code leasehold serve}. One for a whole program; threads may share it. */
final class Leasehold implements AutoCloseable {
    private static final Duration TIMEOUT = Duration.ofSeconds(5);

    /** One request waits at most this long at the server, and then asks again. */
    private volatile long waitAtOnceMillis = 25_000;
    private final HttpClient http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(TIMEOUT).build();
    /** Does no I/O, so that a deadline is told while all renewals hang. */
    final ScheduledExecutorService deadlines = timers(1);
    final ScheduledExecutorService renewals = timers(4);
    private final String base;
    private final String token;

    /** @param token what {@code leasehold token new} printed, or null where the server wants none */
    Leasehold(URI url, String token) {
        this.base = url.toString().replaceAll("/+$", "");
        this.token = token;
    }

    /** Acquires a lock and keeps it until the lease is closed. Asks for as long as {@code wait}. */
    Lease acquire(String name, Duration ttl, Duration wait) throws IOException, InterruptedException {
        long end = System.nanoTime() + wait.toNanos();
        while (true) {
            long left = Math.max(0, end - System.nanoTime());
            long waitMillis = Math.min(TimeUnit.NANOSECONDS.toMillis(left), waitAtOnceMillis);
            String body = "{\"holder\":\"java example\",\"ttl_ms\":" + ttl.toMillis() + ",\"wait_ms\":" + waitMillis + "}";
            try {
                return ask(name, body, Duration.ofMillis(waitMillis).plus(TIMEOUT));
            } catch (Problem problem) {
                boolean tooLong = "wait_ms".equals(problem.document.get("field")) && waitMillis > 1;
                boolean passing = problem.status == 423 || problem.status == 429 || problem.status == 503;
                if (!tooLong && (!passing || System.nanoTime() >= end)) {
                    throw problem;
                }
                if (tooLong) {
                    // This server lets nobody wait for so long at once.
                    waitAtOnceMillis = waitMillis / 2;
                } else if (problem.status != 423) {
                    Thread.sleep(200);
                }
            }
        }
    }

    /** A request that failed on the way is repeated once with the same key: the lease may have been granted. */
    private Lease ask(String name, String body, Duration timeout) throws IOException, InterruptedException {
        String path = "/v1/locks/" + segment(name) + "/leases";
        String key = UUID.randomUUID().toString();
        long sent = System.nanoTime();
        Map<String, Object> answer;
        try {
            answer = exchange("POST", path, body, timeout, key);
        } catch (IOException lostOnTheWay) {
            // Its times may count from the first request, so `sent` stays.
            answer = exchange("POST", path, body, timeout, key);
        }
        return new Lease(this, answer, sent);
    }

    Map<String, Object> renew(String id, Duration timeout) throws IOException, InterruptedException {
        return exchange("POST", "/v1/leases/" + id + "/renew", "{}", timeout, null);
    }

    void release(String id) throws IOException, InterruptedException {
        exchange("DELETE", "/v1/leases/" + id, null, TIMEOUT, null);
    }

    private Map<String, Object> exchange(String method, String path, String body, Duration timeout, String key)
            throws IOException, InterruptedException {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(base + path)).timeout(timeout);
        request.method(method, body == null ? HttpRequest.BodyPublishers.noBody() : HttpRequest.BodyPublishers.ofString(body));
        if (body != null) {
            request.header("Content-Type", "application/json");
        }
        if (token != null) {
            request.header("Authorization", "Bearer " + token);
        }
        if (key != null) {
            request.header("Idempotency-Key", key);
        }
        HttpResponse<String> answer = http.send(request.build(), HttpResponse.BodyHandlers.ofString(StandardCharsets.UTF_8));
        Map<String, Object> document = answer.body().isEmpty() ? Map.of() : Json.object(answer.body());
        if (answer.statusCode() / 100 != 2) {
            throw new Problem(answer.statusCode(), document);
        }
        return document;
    }

    private static String segment(String name) {
        // What is for forms writes a blank as a plus, which a path takes for itself.
        return URLEncoder.encode(name, StandardCharsets.UTF_8).replace("+", "%20").replace(".", "%2E");
    }

    private static ScheduledExecutorService timers(int threads) {
        return Executors.newScheduledThreadPool(threads, work -> {
            Thread thread = new Thread(work, "leasehold");
            thread.setDaemon(true);
            return thread;
        });
    }

    @Override
    public void close() {
        renewals.shutdownNow();
        deadlines.shutdownNow();
    }

    /** The server said no, with a problem document (RFC 9457). */
    static final class Problem extends RuntimeException {
        private static final long serialVersionUID = 1;
        final int status;
        final transient Map<String, Object> document;

        Problem(int status, Map<String, Object> document) {
            super(document.getOrDefault("detail", "status " + status).toString());
            this.status = status;
            this.document = document;
        }
    }
}

/** The right to a lock until a deadline on this machine's clock, and the fence to prove it with. */
final class Lease implements AutoCloseable {
    private final Leasehold locks;
    private final String id;
    private final String name;
    private final long fence;
    private final long ttlMillis;
    private final CompletableFuture<String> lost = new CompletableFuture<>();
    private final AtomicInteger deadlineChanges = new AtomicInteger();
    private volatile long deadline;
    private volatile boolean closed;

    Lease(Leasehold locks, Map<String, Object> granted, long sent) {
        this.locks = locks;
        this.id = (String) granted.get("lease_id");
        this.name = (String) granted.get("name");
        this.fence = number(granted, "fence");
        this.ttlMillis = number(granted, "ttl_ms");
        prolong(granted, sent);
        // At a third of the TTL: two whole renewals may fail before the deadline is near.
        renewAfter(Math.max(0, ttlMillis / 3 - TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - sent) + number(granted, "elapsed_ms")));
    }

    String id() {
        return id;
    }

    String name() {
        return name;
    }

    /** The number to hand to whatever the lock guards. */
    long fence() {
        return fence;
    }

    /**
     * Completes with the reason when the lease is lost, at the latest at its deadline; never after a release. What follows it should be
     * short or async: it runs in the thread that tells all deadlines.
     */
    CompletableFuture<String> lost() {
        return lost;
    }

    /** How long the lease can still be relied on; zero if it is lost or released. */
    Duration remaining() {
        long left = lost.isDone() || closed ? 0 : deadline - System.nanoTime();
        return Duration.ofNanos(Math.max(0, left));
    }

    /** Throws unless the lease is good for longer than this. */
    void ensureValid(Duration margin) {
        if (remaining().compareTo(margin) <= 0) {
            throw new IllegalStateException("the lease on lock `" + name + "` is lost or has less than " + margin + " left");
        }
    }

    /** Gives the lock back. A renewal under way is waited for, and none follows: it would take the lock again. */
    @Override
    public synchronized void close() throws IOException {
        if (closed) {
            return;
        }
        closed = true;
        try {
            if (!lost.isDone()) {
                locks.release(id);
            }
        } catch (InterruptedException leftToExpire) {
            Thread.currentThread().interrupt();
        }
    }

    private void prolong(Map<String, Object> answer, long sent) {
        long good = number(answer, "elapsed_ms") + number(answer, "expires_in_ms");
        deadline = sent + TimeUnit.MILLISECONDS.toNanos(good);
        int change = deadlineChanges.incrementAndGet();
        locks.deadlines.schedule(() -> {
            if (deadlineChanges.get() == change && !closed) {
                lost.complete("no renewal was answered before its deadline");
            }
        }, deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
    }

    private void renewAfter(long millis) {
        locks.renewals.schedule(this::renew, millis, TimeUnit.MILLISECONDS);
    }

    private synchronized void renew() {
        if (closed || lost.isDone()) {
            return;
        }
        long sent = System.nanoTime();
        try {
            // Half of what is left, so that another attempt is possible.
            Map<String, Object> answer = locks.renew(id, remaining().dividedBy(2).plusMillis(10));
            if (!lost.isDone()) {
                prolong(answer, sent);
                renewAfter(ttlMillis / 3);
            }
        } catch (Leasehold.Problem problem) {
            if (problem.status == 410) {
                lost.complete(problem.getMessage());
            } else {
                renewAfter(ttlMillis / 20);
            }
        } catch (IOException failedOnTheWay) {
            renewAfter(ttlMillis / 20);
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    private static long number(Map<String, Object> document, String field) {
        return (Long) document.get(field);
    }
}

/** As much of a JSON reader as the server's answers need. Whole numbers become Long, others Double. */
final class Json {
    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    @SuppressWarnings("unchecked")
    static Map<String, Object> object(String text) throws IOException {
        try {
            Json json = new Json(text);
            Object value = json.value();
            json.blanks();
            if (value instanceof Map && json.at == text.length()) {
                return (Map<String, Object>) value;
            }
        } catch (IndexOutOfBoundsException | NumberFormatException wrong) {
            // Said below.
        }
        throw new IOException("no answer of a Leasehold server: " + text.substring(0, Math.min(text.length(), 200)));
    }

    private Object value() throws IOException {
        blanks();
        switch (text.charAt(at)) {
            case '{':
                return members();
            case '[':
                return items();
            case '"':
                return string();
            case 't':
                return word("true", Boolean.TRUE);
            case 'f':
                return word("false", Boolean.FALSE);
            case 'n':
                return word("null", null);
            default:
                return number();
        }
    }

    private Map<String, Object> members() throws IOException {
        Map<String, Object> members = new LinkedHashMap<>();
        at++;
        while (!takes('}')) {
            blanks();
            String name = string();
            expect(':');
            members.put(name, value());
            if (!takes(',')) {
                expect('}');
                return members;
            }
        }
        return members;
    }

    private List<Object> items() throws IOException {
        List<Object> items = new ArrayList<>();
        at++;
        while (!takes(']')) {
            items.add(value());
            if (!takes(',')) {
                expect(']');
                return items;
            }
        }
        return items;
    }

    private String string() throws IOException {
        expect('"');
        StringBuilder string = new StringBuilder();
        while (text.charAt(at) != '"') {
            char next = text.charAt(at++);
            string.append(next == '\\' ? escaped() : next);
        }
        at++;
        return string.toString();
    }

    private char escaped() {
        char next = text.charAt(at++);
        int known = "bfnrt".indexOf(next);
        if (known >= 0) {
            return "\b\f\n\r\t".charAt(known);
        }
        if (next == 'u') {
            at += 4;
            return (char) Integer.parseInt(text.substring(at - 4, at), 16);
        }
        return next;
    }

    private Object number() {
        int start = at;
        while (at < text.length() && "+-.eE0123456789".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
        String digits = text.substring(start, at);
        return digits.matches("-?\\d+") ? (Object) Long.valueOf(digits) : Double.valueOf(digits);
    }

    private Object word(String word, Object value) throws IOException {
        if (!text.startsWith(word, at)) {
            throw new IOException("not JSON at " + at);
        }
        at += word.length();
        return value;
    }

    private void expect(char wanted) throws IOException {
        if (!takes(wanted)) {
            throw new IOException("not JSON at " + at);
        }
    }

    private boolean takes(char wanted) {
        blanks();
        if (text.charAt(at) != wanted) {
            return false;
        }
        at++;
        return true;
    }

    private void blanks() {
        while (at < text.length() && Character.isWhitespace(text.charAt(at))) {
            at++;
        }
    }
}
