/* A process that allocates hard on many threads and has a few parked ones. It checks its own work.
 *
 * busy BUSY_THREADS PARKED...   with PARKED of: nanosleep poll cond read sem epoll mutex none
 * Says "ready" once all threads are where they shall be, prints a line per second on nothing else, ends with status 0 on the
 * first byte (or the end) of its standard input if all sums were right and no wait was cut short. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static atomic_int stop, wrong, ready;
static atomic_ulong rounds;

static void *busy(void *seed_) {
    unsigned seed = (unsigned)(uintptr_t)seed_ * 2654435761u + 1;
    enum { N = 64 };
    unsigned char *block[N] = {0};
    size_t size[N] = {0};
    unsigned char mark[N] = {0};
    atomic_fetch_add(&ready, 1);
    while (!atomic_load(&stop)) {
        seed = seed * 1664525u + 1013904223u;
        int i = (seed >> 16) % N;
        if (block[i]) {
            for (size_t k = 0; k < size[i]; k += 37)
                if (block[i][k] != mark[i]) atomic_store(&wrong, 1);
            free(block[i]);
            block[i] = 0;
        } else {
            size[i] = 1 + (seed >> 8) % 3000;
            mark[i] = (unsigned char)seed;
            block[i] = malloc(size[i]);
            if (!block[i]) abort();
            memset(block[i], mark[i], size[i]);
        }
        atomic_fetch_add(&rounds, 1);
    }
    for (int i = 0; i < N; i++) free(block[i]);
    return 0;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, held = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static sem_t sem;
static int pipes[2], epoll;

static void *parked(void *kind_) {
    const char *kind = kind_;
    prctl(PR_SET_NAME, kind);
    /* So that a thread that never allocated does not get its arena through us. */
    free(malloc(100));
    volatile double pi = 3.14159265358979;
    double sum = 0;
    atomic_fetch_add(&ready, 1);
    while (!atomic_load(&stop)) {
        for (int i = 0; i < 100; i++) sum += pi;
        if (!strcmp(kind, "nanosleep")) {
            struct timespec t = {3600, 0};
            if (nanosleep(&t, 0) && errno == EINTR && !atomic_load(&stop)) atomic_store(&wrong, 2);
        } else if (!strcmp(kind, "poll")) {
            struct pollfd p = {pipes[0], POLLIN, 0};
            if (poll(&p, 1, 3600 * 1000) < 0) atomic_store(&wrong, 3);
        } else if (!strcmp(kind, "cond")) {
            pthread_mutex_lock(&lock);
            while (!atomic_load(&stop)) pthread_cond_wait(&cond, &lock);
            pthread_mutex_unlock(&lock);
        } else if (!strcmp(kind, "read")) {
            char byte;
            if (read(pipes[0], &byte, 1) < 0) atomic_store(&wrong, 4);
        } else if (!strcmp(kind, "sem")) {
            if (sem_wait(&sem)) atomic_store(&wrong, 5);
        } else if (!strcmp(kind, "mutex")) {
            pthread_mutex_lock(&held);
            pthread_mutex_unlock(&held);
        } else if (!strcmp(kind, "epoll")) {
            struct epoll_event e;
            epoll_wait(epoll, &e, 1, -1); /* EINTR is what the kernel gives any stopped thread here */
        } else {
            pthread_mutex_lock(&lock);
            while (!atomic_load(&stop)) pthread_cond_wait(&cond, &lock);
            pthread_mutex_unlock(&lock);
        }
    }
    if (sum < 0) atomic_store(&wrong, 9);
    return 0;
}

static void on_trap(int signal) { (void)signal; }

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 4, parked_threads = 0;
    struct sigaction action = {.sa_handler = on_trap};
    sigaction(SIGTRAP, &action, 0);
    signal(SIGUSR2, SIG_IGN);
    if (pipe(pipes) || sem_init(&sem, 0, 0)) return 90;
    epoll = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN};
    epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[0], &e);
    pthread_mutex_lock(&held);
    pthread_t thread[256];
    int all = 0;
    for (int i = 0; i < n; i++) pthread_create(&thread[all++], 0, busy, (void *)(uintptr_t)i);
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "none")) continue;
        pthread_create(&thread[all++], 0, parked, argv[i]);
        parked_threads++;
    }
    while (atomic_load(&ready) < n + parked_threads) usleep(1000);
    printf("ready\n");
    fflush(stdout);
    /* The main thread is no candidate: it asks without sleeping. */
    fcntl(0, F_SETFL, O_NONBLOCK);
    char byte;
    while (read(0, &byte, 1) < 0 && errno == EAGAIN) sched_yield();
    atomic_store(&stop, 1);
    pthread_mutex_unlock(&held);
    pthread_mutex_lock(&lock);
    pthread_cond_broadcast(&cond);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < 256; i++) sem_post(&sem);
    for (int i = 0; i < parked_threads * 2; i++)
        if (write(pipes[1], "x", 1) != 1) return 91;
    for (int i = 0; i < all; i++) {
        if (i >= n && !strcmp(argv[i - n + 2], "nanosleep")) continue; /* sleeps for an hour */
        pthread_join(thread[i], 0);
    }
    printf("rounds %lu wrong %d\n", atomic_load(&rounds), atomic_load(&wrong));
    fflush(stdout);
    _exit(atomic_load(&wrong));
}
