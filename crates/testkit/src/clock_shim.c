/* Moves the clocks of the process it is preloaded into, while that process runs.
 *
 * The file named by LEASEHOLD_CLOCK_FILE has two 64-bit integers, mapped once and read at every call: by
 * how many microseconds the wall clock is ahead, and by how many the clocks that nobody can set are
 * behind. The first moves when an operator or NTP steps the time; the second when the machine is paused
 * and its clocks miss it, which a wall clock of a machine without NTP does as well.
 *
 * The time comes from raw system calls. Looking up the next definition by dlsym would allocate, and the
 * allocator may ask for the time before this library is ready. Before the constructor has run, or without
 * the variable, both are nought. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { WALL_AHEAD, STEADY_BEHIND, OFFSETS };
static const volatile int64_t *offsets;

__attribute__((constructor)) static void map_offsets(void) {
    const char *path = getenv("LEASEHOLD_CLOCK_FILE");
    if (path == NULL) return;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    void *page = mmap(NULL, OFFSETS * sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (page != MAP_FAILED) offsets = page;
}

static void move(struct timespec *now, int64_t by_us) {
    now->tv_sec += by_us / 1000000;
    now->tv_nsec += by_us % 1000000 * 1000;
    if (now->tv_nsec < 0) {
        now->tv_nsec += 1000000000;
        now->tv_sec -= 1;
    } else if (now->tv_nsec >= 1000000000) {
        now->tv_nsec -= 1000000000;
        now->tv_sec += 1;
    }
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (failed || offsets == NULL) return failed;
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        move(now, offsets[WALL_AHEAD] - offsets[STEADY_BEHIND]);
        break;
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_BOOTTIME:
        move(now, -offsets[STEADY_BEHIND]);
        break;
    }
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &precise)) return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec precise;
    if (clock_gettime(CLOCK_REALTIME, &precise)) return (time_t)-1;
    if (now != NULL) *now = precise.tv_sec;
    return precise.tv_sec;
}
