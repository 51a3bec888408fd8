/* Lets a program fork that has no way to say so: reading the link /leasehold/fork does it. What is read
 * is the child's process id; in the child, 0. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

ssize_t readlink(const char *path, char *buffer, size_t size) {
    if (strcmp(path, "/leasehold/fork") != 0)
        return syscall(SYS_readlinkat, AT_FDCWD, path, buffer, size);
    pid_t child = fork();
    if (child < 0) return -1;
    char text[32];
    int length = snprintf(text, sizeof text, "%d", (int)child);
    if ((size_t)length > size) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(buffer, text, length);
    return length;
}
