/* A program with an allocator of its own, which is in the same file and replaces the C library's.
 *
 *   allocator naps | spins
 *
 * naps: the main thread is inside malloc, in a helper to which malloc jumped, and sleeps there
 * while it holds the allocator's lock. A pthread_create on it would never return.
 * spins: the main thread computes in the program's own code.
 * SIGTERM ends it. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char heap[1 << 24] __attribute__((aligned(64)));
static atomic_size_t used;
static atomic_int lock, slow, stop;

static void *take(size_t size) {
    size_t want = (size + 63) & ~(size_t)63;
    size_t at = atomic_fetch_add(&used, want + 64);
    if (at + want + 64 > sizeof heap) return 0;
    *(size_t *)(heap + at) = size;
    return heap + at + 64;
}

/* A second thread in here waits for ever. */
__attribute__((noinline)) static void *slow_path(size_t size) {
    while (atomic_exchange(&lock, 1)) {
        struct timespec nap = {0, 1000000};
        nanosleep(&nap, 0);
    }
    while (!atomic_load(&stop)) {
        struct timespec nap = {3600, 0};
        nanosleep(&nap, 0);
    }
    atomic_store(&lock, 0);
    return take(size);
}

void *malloc(size_t size) {
    if (atomic_load(&slow)) return slow_path(size);
    return take(size);
}
void free(void *p) { (void)p; }
void *calloc(size_t n, size_t size) {
    void *p = malloc(n * size);
    return p ? memset(p, 0, n * size) : p;
}
void *realloc(void *old, size_t size) {
    void *p = malloc(size);
    if (p && old) memcpy(p, old, ((size_t *)old)[-8] < size ? ((size_t *)old)[-8] : size);
    return p;
}

static void end(int signal) {
    (void)signal;
    atomic_store(&stop, 1);
}

int main(int argc, char **argv) {
    if (argc != 2) return 90;
    struct sigaction action = {.sa_handler = end};
    sigaction(SIGTERM, &action, 0);
    printf("ready\n");
    fflush(stdout);
    if (!strcmp(argv[1], "naps")) {
        atomic_store(&slow, 1);
        char *volatile p = malloc(100);
        return !p;
    }
    volatile unsigned long sum = 0;
    while (!atomic_load(&stop)) sum += 3;
    return sum == 0;
}
