/* A process in which no thread ever parks. It checks its own work.
 *
 *   busy KIND THREADS [MS]
 *
 * All threads, the main one too, do the same without end:
 *   compute  integer and floating point work in registers, no call of anything
 *   malloc   allocate, fill, check, free
 *   calls    system calls that return at once
 *   sort     the C library's sort, which calls the program back
 *   naps     sleeps of a few microseconds
 *   dozes    sleeps of MS; the stack shows that each is another one
 *   copy     copies by the C library, with hardly anything between
 *   fill     fills memory that was just mapped by the C library, as runtimes do when they start
 *   format   writes numbers as text by the C library, with hardly anything between
 * Says "ready" when all run. SIGTERM ends it: "ended wrong W rounds R", exit status W. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 700 };
static atomic_int stop, wrong, ready;
static atomic_ulong rounds;
static const char *kind;
static long doze_ns;

/* Computes the same numbers in each round, so a register that was changed leads to another sum. */
__attribute__((noinline)) static uint64_t compute_sum(void) {
    uint64_t a = 88172645463325252ull, sum = 0;
    double x = 0.5, y = 1.25;
    long double z = 1.0L;
    for (int i = 0; i < 20000; i++) {
        a ^= a << 13, a ^= a >> 7, a ^= a << 17;
        x = x * 1.0000001 + y * 1e-9;
        y = 3.75 * y * (1 - y / 5);
        z = z * 0.99999L + 1e-3L;
        sum += a ^ (uint64_t)(x * 1e6) ^ (uint64_t)(z * 1e6L);
    }
    return sum + (uint64_t)(y * 1e6);
}

static void compute(void) {
    static _Atomic uint64_t expected;
    uint64_t sum = compute_sum(), none = 0;
    if (!atomic_compare_exchange_strong(&expected, &none, sum) && none != sum) atomic_store(&wrong, 1);
}

static void allocate(void) {
    enum { N = 16 };
    unsigned char *block[N];
    for (int i = 0; i < N; i++) {
        size_t size = 24 + (size_t)i * 150;
        block[i] = malloc(size);
        if (!block[i]) abort();
        memset(block[i], i + 1, size);
    }
    for (int i = 0; i < N; i++) {
        size_t size = 24 + (size_t)i * 150;
        for (size_t k = 0; k < size; k += 61)
            if (block[i][k] != i + 1) atomic_store(&wrong, 2);
        free(block[i]);
    }
}

static void calls(void) {
    for (int i = 0; i < 50; i++)
        if (getppid() <= 0) atomic_store(&wrong, 3);
}

static int compare(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

static void sort(void) {
    int list[200];
    unsigned seed = 7;
    for (int i = 0; i < 200; i++) list[i] = (int)((seed = seed * 1664525u + 1013904223u) >> 8);
    qsort(list, 200, sizeof *list, compare);
    for (int i = 1; i < 200; i++)
        if (list[i - 1] > list[i]) atomic_store(&wrong, 4);
}

static void naps(void) {
    struct timespec nap = {0, 1000};
    /* The signal that ends the program cuts a nap short, whatever SA_RESTART says. */
    if (clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, 0) && !atomic_load(&stop)) atomic_store(&wrong, 5);
}

static void dozes(void) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    if ((until.tv_nsec += doze_ns) >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    if (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, 0) && !atomic_load(&stop)) atomic_store(&wrong, 7);
}

static void copy(void) {
    static __thread char from[1 << 16], to[1 << 16];
    from[77]++;
    memcpy(to, from, sizeof to);
    if (to[77] != from[77]) atomic_store(&wrong, 6);
}

static void fill(void) {
    enum { LENGTH = 64 << 20 };
    unsigned char *memory = mmap(0, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) abort();
    memset(memory, 7, LENGTH);
    for (int i = 0; i < LENGTH; i += 4099)
        if (memory[i] != 7) atomic_store(&wrong, 9);
    munmap(memory, LENGTH);
}

static void format(void) {
    char text[512];
    for (int i = 0; i < 50; i++) {
        int length = snprintf(text, sizeof text, "%.200f", 0.1);
        if (length != 202 || text[0] != '0') atomic_store(&wrong, 8);
    }
}

static void *work(void *unused) {
    atomic_fetch_add(&ready, 1);
    while (!atomic_load(&stop)) {
        if (!strcmp(kind, "malloc")) allocate();
        else if (!strcmp(kind, "calls")) calls();
        else if (!strcmp(kind, "sort")) sort();
        else if (!strcmp(kind, "naps")) naps();
        else if (!strcmp(kind, "dozes")) dozes();
        else if (!strcmp(kind, "copy")) copy();
        else if (!strcmp(kind, "fill")) fill();
        else if (!strcmp(kind, "format")) format();
        else compute();
        atomic_fetch_add(&rounds, 1);
    }
    return unused;
}

static void end(int signal) {
    (void)signal;
    atomic_store(&stop, 1);
}

int main(int argc, char **argv) {
    if (argc < 3 || argc > 4) return 90;
    kind = argv[1];
    doze_ns = argc > 3 ? atol(argv[3]) * 1000000 : 0;
    if (doze_ns < 0 || doze_ns > 1000000000) return 92;
    int n = atoi(argv[2]);
    if (n < 1 || n > MOST) return 91;
    struct sigaction action = {.sa_handler = end, .sa_flags = SA_RESTART};
    sigaction(SIGTERM, &action, 0);
    pthread_t threads[MOST];
    for (int i = 1; i < n; i++) pthread_create(&threads[i], 0, work, 0);
    while (atomic_load(&ready) < n - 1) sched_yield();
    printf("ready\n");
    fflush(stdout);
    work(0);
    for (int i = 1; i < n; i++) pthread_join(threads[i], 0);
    printf("ended wrong %d rounds %lu\n", atomic_load(&wrong), atomic_load(&rounds));
    return atomic_load(&wrong);
}
