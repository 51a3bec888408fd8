import java.io.IOException;
import java.lang.ref.WeakReference;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
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
    private static final int PORT = 7717;
    private static final String PROBLEM = "urn:leasehold:problem:";

    /** One request waits at most this long at the server, and then asks again. */
    private volatile long waitAtOnceMillis = 25_000;
    private final HttpClient http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(TIMEOUT).build();
    /** Does no I/O, so that a deadline is told while all renewals hang. */
    final ScheduledExecutorService deadlines = timers(1);
    final ScheduledExecutorService renewals = timers(4);
    final Clock clock;
    final String base;
    private final String token;

    /** @param token what {@code leasehold token new} printed, or null where the server wants none */
    Leasehold(URI url, String token) {
        this(url, token, new Clock(Path.of("/proc/uptime")));
    }

    Leasehold(URI url, String token, Clock clock) {
        String port = url.getPort() < 0 ? ":" + PORT : "";
        this.base = url.getScheme() + "://" + url.getRawAuthority() + port + url.getRawPath().replaceAll("/+$", "");
        this.token = token;
        this.clock = clock;
    }

    /**
     * Acquires a lock and keeps it until the lease is closed. Asks for as long as {@code wait}. A lease that is over when its answer
     * comes is given back, and the lock is asked for again. A lease that the program drops without closing it is given back, too.
     */
    Lease acquire(String name, Duration ttl, Duration wait) throws IOException, InterruptedException {
        long end = clock.now() + wait.toNanos();
        while (true) {
            long left = Math.max(0, end - clock.now());
            long waitMillis = Math.min(TimeUnit.NANOSECONDS.toMillis(left), waitAtOnceMillis);
            String body = "{\"holder\":\"java example\",\"ttl_ms\":" + ttl.toMillis() + ",\"wait_ms\":" + waitMillis + "}";
            try {
                return ask(name, body, Duration.ofMillis(waitMillis).plus(TIMEOUT), end);
            } catch (Problem problem) {
                boolean tooLong = "wait_ms".equals(problem.document.get("field")) && waitMillis > 1;
                boolean passing = problem.status == 423 || problem.status == 429 || problem.status == 503;
                if (!tooLong && (!passing || clock.now() >= end)) {
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

    /** A request that failed on the way is repeated with the same key: the lease may have been granted. */
    private Lease ask(String name, String body, Duration timeout, long end) throws IOException, InterruptedException {
        String path = "/v1/locks/" + segment(name) + "/leases";
        String key = UUID.randomUUID().toString();
        long sent = clock.now();
        long giveUp = Math.max(end, sent + TIMEOUT.toNanos());
        while (true) {
            try {
                // The answer's times may count from the first request, so `sent` stays.
                return Lease.begin(this, exchange("POST", path, body, timeout, key), sent);
            } catch (Problem problem) {
                if (!problem.settlesNothing() || clock.now() >= giveUp) {
                    throw problem;
                }
            } catch (IOException lostOnTheWay) {
                if (clock.now() >= giveUp) {
                    throw lostOnTheWay;
                }
            }
            Thread.sleep(200);
        }
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
        if (answer.statusCode() / 100 == 2) {
            return document;
        }
        if (document.getOrDefault("type", "").toString().startsWith(PROBLEM)) {
            throw new Problem(answer.statusCode(), document);
        }
        // A proxy's 502 or 504: nobody knows whether the server carried the request out.
        throw new IOException("status " + answer.statusCode() + " with no answer of a Leasehold server");
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

        String kind() {
            return document.getOrDefault("type", "").toString().replace(PROBLEM, "");
        }

        /** Only a repetition with the same key can tell what became of the request. */
        boolean settlesNothing() {
            return List.of("idempotency-in-flight", "idempotency-elsewhere", "internal").contains(kind());
        }

        static Problem tooLate(String name) {
            String detail = "the lease on lock `" + name + "` was granted, and over before the answer came";
            return new Problem(503, Map.of("type", PROBLEM + "too-slow", "detail", detail));
        }
    }
}

/**
 * Nanoseconds that go on while the machine is suspended. {@link System#nanoTime} stands still meanwhile on Linux, so what
 * {@code /proc/uptime} counted beyond it is added. Where there is no such file, nobody tells of a suspension, and a lease that was
 * held through one must not be relied on.
 */
final class Clock {
    /** The file counts in hundredths of a second. What is added may be this much too much, never too little. */
    private static final long GRAIN = TimeUnit.MILLISECONDS.toNanos(20);
    private final Path uptime;
    private final long begin;
    private long suspended;

    Clock(Path uptime) {
        this.uptime = uptime;
        this.begin = beyond();
    }

    synchronized long now() {
        long suspendedNow = beyond() - begin;
        if (suspendedNow > suspended + GRAIN) {
            suspended = suspendedNow + GRAIN;
        }
        return System.nanoTime() + suspended;
    }

    /** By how much the file is ahead of nanoTime. If this thread is held up in between, that counts as a suspension. */
    private long beyond() {
        try {
            long awake = System.nanoTime();
            String seconds = Files.readString(uptime).split(" ")[0];
            return (long) (Double.parseDouble(seconds) * 1e9) - awake;
        } catch (IOException | NumberFormatException noSuchFile) {
            return begin + suspended;
        }
    }
}

/** The right to a lock until a deadline on this machine's clock, and the fence to prove it with. */
final class Lease implements AutoCloseable {
    private final Keeping keeping;
    private final Loss lost = new Loss(this);

    private Lease(Leasehold locks, Map<String, Object> granted, long sent) {
        keeping = new Keeping(locks, granted, sent, new WeakReference<>(this));
    }

    /** Begins to keep a lease. One that is over already is given back. */
    static Lease begin(Leasehold locks, Map<String, Object> granted, long sent) {
        Lease lease = new Lease(locks, granted, sent);
        if (lease.remaining().isZero()) {
            lease.keeping.giveBack();
            throw Leasehold.Problem.tooLate(lease.name());
        }
        lease.keeping.watch();
        lease.keeping.keep();
        return lease;
    }

    String id() {
        return keeping.id;
    }

    String name() {
        return keeping.name;
    }

    /** The number to hand to whatever the lock guards. */
    long fence() {
        return keeping.fence;
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
        return keeping.remaining();
    }

    /** Throws unless the lease is good for longer than this. */
    void ensureValid(Duration margin) {
        if (remaining().compareTo(margin) <= 0) {
            throw new IllegalStateException("the lease on lock `" + name() + "` is lost or has less than " + margin + " left");
        }
    }

    /** Gives the lock back. A renewal under way is waited for, and none follows: it would take the lock again. */
    @Override
    public void close() throws IOException {
        keeping.close();
    }

    /** Whoever waits for the loss still uses the lease. */
    private static final class Loss extends CompletableFuture<String> {
        @SuppressWarnings("unused")
        private final Lease lease;

        Loss(Lease lease) {
            this.lease = lease;
        }
    }

    /** What keeps a lease. Timers hold this and never the lease itself, so that a dropped lease is noticed. */
    private static final class Keeping {
        private static final String UNANSWERED = "no renewal was answered before its deadline";
        private static final String DROPPED = "the program dropped the lease without closing it";
        /** Timers look at the clock this often: they do not count the time of a suspended machine. */
        private static final long LOOK_EVERY = TimeUnit.SECONDS.toNanos(1);

        private final Leasehold locks;
        private final WeakReference<Lease> lease;
        private final String id;
        private final String name;
        private final long fence;
        private final long ttl;
        private volatile long deadline;
        private volatile long renewAt;
        private volatile boolean closed;
        private volatile String why;

        Keeping(Leasehold locks, Map<String, Object> granted, long sent, WeakReference<Lease> lease) {
            this.locks = locks;
            this.lease = lease;
            this.id = (String) granted.get("lease_id");
            this.name = (String) granted.get("name");
            this.fence = number(granted, "fence");
            this.ttl = TimeUnit.MILLISECONDS.toNanos(number(granted, "ttl_ms"));
            prolong(granted, sent);
        }

        Duration remaining() {
            return Duration.ofNanos(closed || why != null ? 0 : Math.max(0, deadline - locks.clock.now()));
        }

        /** Tells of the loss at the deadline, whatever the renewals do. */
        void watch() {
            long left = deadline - locks.clock.now();
            if (left <= 0) {
                lose(UNANSWERED);
            } else if (!closed && why == null) {
                locks.deadlines.schedule(this::watch, Math.min(left, LOOK_EVERY), TimeUnit.NANOSECONDS);
            }
        }

        void keep() {
            if (!closed && why == null && lease.get() == null) {
                lose(DROPPED);
            }
            if (!closed && why == null && locks.clock.now() >= renewAt) {
                renew();
            }
            if (!closed && why == null) {
                long left = Math.max(0, renewAt - locks.clock.now());
                locks.renewals.schedule(this::keep, Math.min(left, LOOK_EVERY), TimeUnit.NANOSECONDS);
            } else if (UNANSWERED.equals(why) || DROPPED.equals(why)) {
                // A renewal whose answer never came may have been carried out, and nobody uses the lock any more.
                giveBack();
            }
        }

        private synchronized void renew() {
            if (closed || why != null) {
                return;
            }
            long sent = locks.clock.now();
            try {
                // Half of what is left, so that another attempt is possible.
                prolong(locks.renew(id, remaining().dividedBy(2).plusMillis(10)), sent);
            } catch (Leasehold.Problem problem) {
                if (problem.kind().equals("lease-lost")) {
                    lose(problem.getMessage());
                }
                renewAt = locks.clock.now() + ttl / 20;
            } catch (IOException failedOnTheWay) {
                renewAt = locks.clock.now() + ttl / 20;
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
            }
        }

        private void prolong(Map<String, Object> answer, long sent) {
            long elapsed = number(answer, "elapsed_ms");
            deadline = sent + TimeUnit.MILLISECONDS.toNanos(elapsed + number(answer, "expires_in_ms"));
            // At a third of the TTL: two whole renewals may fail before the deadline is near.
            renewAt = sent + TimeUnit.MILLISECONDS.toNanos(elapsed) + ttl / 3;
        }

        private void lose(String reason) {
            if (closed || why != null) {
                return;
            }
            why = reason;
            Lease told = lease.get();
            if (told != null) {
                told.lost.complete(reason);
            }
        }

        /** Waits for a renewal under way, and lets none follow. */
        synchronized void close() throws IOException {
            if (closed) {
                return;
            }
            if (remaining().isZero()) {
                lose(UNANSWERED);
            }
            closed = true;
            try {
                if (why == null) {
                    release();
                }
            } catch (InterruptedException leftToExpire) {
                Thread.currentThread().interrupt();
            }
        }

        /** Tries again while the lock would stay held otherwise, but not for long. */
        private void release() throws IOException, InterruptedException {
            long end = Math.min(deadline, locks.clock.now() + TimeUnit.SECONDS.toNanos(5));
            while (true) {
                try {
                    locks.release(id);
                    return;
                } catch (IOException lostOnTheWay) {
                    if (locks.clock.now() >= end) {
                        throw lostOnTheWay;
                    }
                    Thread.sleep(100);
                } catch (Leasehold.Problem problem) {
                    if (problem.status != 503 || locks.clock.now() >= end) {
                        throw problem;
                    }
                    Thread.sleep(100);
                }
            }
        }

        void giveBack() {
            try {
                locks.release(id);
            } catch (IOException | Leasehold.Problem leftToExpire) {
                // Nobody can do more.
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
            }
        }

        private static long number(Map<String, Object> document, String field) {
            return (Long) document.get(field);
        }
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
        // Not its words: they may contain a lease id, which is a secret.
        throw new IOException("no answer of a Leasehold server, but " + text.length() + " characters");
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
