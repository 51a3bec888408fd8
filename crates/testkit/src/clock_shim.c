/* Moves the wall clock of the process it is preloaded into, while that process runs.
 *
 * The offset in microseconds is a 64-bit integer at the start of the file named by LEASEHOLD_CLOCK_FILE,
 * mapped once and read at every call. Only the wall clock moves: the monotonic clocks stay true, as they
 * do when an operator or NTP steps the time.
 *
 * The time comes from raw system calls. Looking up the next definition by dlsym would allocate, and the
 * allocator may ask for the time before this library is ready. Before the constructor has run, or without
 * the variable, the offset is nought. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset;

__attribute__((constructor)) static void map_offset(void) {
    const char *path = getenv("LEASEHOLD_CLOCK_FILE");
    if (path == NULL) return;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (page != MAP_FAILED) offset = page;
}

static void move(struct timespec *now) {
    int64_t by_us = offset == NULL ? 0 : *offset;
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
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) move(now);
    return failed;
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
