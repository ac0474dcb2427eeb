/* A file system that takes its time (FUSE), and a thread that waits for it in a way that no signal ends: state D, as with a disk or a
 * server that does not answer. The file system is a process of its own, which has the only descriptor and ends with the target: then the
 * kernel gives up on it, so that no thread waits for ever. */
#define _GNU_SOURCE
#include "work.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

/* How long it takes to say that there is no such file. */
enum { ANSWER_MS = 1000, PENDING = 8 };

static char file[300];

static void answer(int fd, uint64_t unique, int error, const void *more, uint32_t size) {
    char bytes[sizeof(struct fuse_out_header) + 256];
    struct fuse_out_header head = {.len = (uint32_t)sizeof head + size, .error = -error, .unique = unique};
    memcpy(bytes, &head, sizeof head);
    if (size) memcpy(bytes + sizeof head, more, size);
    /* A request that was given up is not there any more. */
    (void)!write(fd, bytes, head.len);
}

static void serve(int fd) {
    static char bytes[1 << 17];
    struct { uint64_t unique, due; } waiting[PENDING] = {{0, 0}};
    for (;;) {
        uint64_t now = now_ns();
        int left = -1;
        for (int i = 0; i < PENDING; i++) {
            if (!waiting[i].unique) continue;
            if (waiting[i].due <= now) {
                answer(fd, waiting[i].unique, ENOENT, 0, 0);
                waiting[i].unique = 0;
            } else {
                int ms = (int)((waiting[i].due - now) / 1000000) + 1;
                if (left < 0 || ms < left) left = ms;
            }
        }
        struct pollfd one = {fd, POLLIN, 0};
        if (poll(&one, 1, left) <= 0) continue;
        ssize_t n = read(fd, bytes, sizeof bytes);
        if (n < 0 && errno == ENODEV) _exit(0);
        if (n < (ssize_t)sizeof(struct fuse_in_header)) continue;
        const struct fuse_in_header *head = (const void *)bytes;
        if (head->opcode == FUSE_INIT) {
            struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION, .max_write = 4096};
            answer(fd, head->unique, 0, &out, sizeof out);
        } else if (head->opcode == FUSE_LOOKUP) {
            for (int i = 0; i < PENDING; i++) {
                if (waiting[i].unique) continue;
                waiting[i].unique = head->unique;
                waiting[i].due = now_ns() + ANSWER_MS * 1000000ull;
                break;
            }
        } else if (head->opcode != FUSE_FORGET && head->opcode != FUSE_BATCH_FORGET) {
            /* To an interruption that, too: from then on the kernel lets no signal end a wait, but SIGKILL one that was not read. */
            answer(fd, head->unique, ENOSYS, 0, 0);
        }
    }
}

static void ignored(int signal) { (void)signal; }

int mount_disk(const char *directory) {
    char options[100];
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fd < 0 || unshare(CLONE_NEWNS) || mount(0, "/", 0, MS_REC | MS_PRIVATE, 0) || (mkdir(directory, 0755) && errno != EEXIST)) return 0;
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
    if (mount("torture", directory, "fuse", 0, options)) return 0;
    pid_t child = fork();
    if (child < 0) return 0;
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve(fd);
    }
    close(fd);
    snprintf(file, sizeof file, "%s/none", directory);
    /* One wait that a signal interrupts: that it cannot be done is what the kernel learns from it. */
    struct sigaction action = {.sa_handler = ignored}, before;
    struct itimerval soon = {{0, 0}, {0, 100000}};
    sigaction(SIGALRM, &action, &before);
    setitimer(ITIMER_REAL, &soon, 0);
    int got = open(file, O_RDONLY);
    sigaction(SIGALRM, &before, 0);
    return got < 0 && (errno == ENOENT || errno == EINTR);
}

void do_disk(struct slot *slot) {
    do {
        uint64_t began = now_ns();
        int got = open(file, O_RDONLY);
        if (got < 0 && errno == EINTR) slot->eintr++;
        else CHECK(slot, got < 0 && errno == ENOENT && now_ns() - began >= (ANSWER_MS - 2) * 1000000ull);
    } while (round_done(slot));
}
