/* Work without blocking calls, or with very short ones. */
#define _GNU_SOURCE
#include "work.h"
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t next(uint64_t *seed) {
    *seed ^= *seed << 13, *seed ^= *seed >> 7, *seed ^= *seed << 17;
    return *seed;
}

/* 64 blocks alive, each filled with its own number, which must still be there when it goes. */
static void do_malloc(struct slot *slot) {
    enum { LIVE = 64 };
    struct block { unsigned char *at; size_t size; unsigned char fill; } live[LIVE] = {{0}};
    uint64_t seed = 88172645463325252ull ^ (uint64_t)slot->tid << 20;
    do {
        for (int i = 0; i < 32; i++) {
            struct block *block = &live[next(&seed) % LIVE];
            if (block->at) {
                for (size_t k = 0; k < block->size; k += block->size / 4 + 1) CHECK(slot, block->at[k] == block->fill);
                free(block->at);
            }
            uint64_t r = next(&seed);
            block->size = r % 64 ? 16 + r / 64 % 2000 : 200000;
            block->fill = (unsigned char)r;
            block->at = malloc(block->size);
            if (!block->at) { CHECK(slot, errno == ENOMEM); block->size = 0; continue; }
            memset(block->at, block->fill, block->size);
        }
    } while (round_done(slot));
    for (int i = 0; i < LIVE; i++) free(live[i].at);
}

static void do_spin(struct slot *slot) {
    do {
        uint64_t seed = 1, sum = 0;
        for (int i = 0; i < 2000; i++) sum += next(&seed);
        static _Atomic uint64_t right;
        uint64_t none = 0;
        if (!atomic_compare_exchange_strong(&right, &none, sum)) CHECK(slot, none == sum);
    } while (round_done(slot));
}

static void do_dlopen(struct slot *slot) {
    const char *path = getenv("SMALL");
    do {
        void *library = dlopen(path, RTLD_NOW);
        CHECK(slot, library);
        if (!library) continue;
        int (*answer)(int) = (int (*)(int))dlsym(library, "small_answer");
        CHECK(slot, answer && answer(20) == 41);
        dlclose(library);
    } while (round_done(slot));
}

static int count_object(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    if (info->dlpi_phnum) ++*(int *)data;
    return 0;
}

static void do_phdr(struct slot *slot) {
    do {
        int objects = 0;
        dl_iterate_phdr(count_object, &objects);
        CHECK(slot, objects >= 3);
    } while (round_done(slot));
}

static void do_fork(struct slot *slot) {
    do {
        pid_t child = fork();
        if (!child) {
            char *p = malloc(100);
            memset(p, 7, 100);
            int code = p[50];
            free(p);
            _exit(code);
        }
        CHECK(slot, child > 0);
        int status = 0;
        pid_t got;
        while ((got = waitpid(child, &status, 0)) < 0 && errno == EINTR) slot->eintr++;
        CHECK(slot, got == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    } while (round_done(slot));
}

/* A child becomes another program at once. */
static void do_exec(struct slot *slot) {
    do {
        pid_t child = fork();
        if (!child) {
            execl("/bin/true", "true", (char *)0);
            _exit(9);
        }
        CHECK(slot, child > 0);
        int status = 0;
        pid_t got;
        while ((got = waitpid(child, &status, 0)) < 0 && errno == EINTR) slot->eintr++;
        CHECK(slot, got == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    } while (round_done(slot));
}

static void *short_lived(void *data) {
    *(int *)data += 1;
    return 0;
}

/* Makes and joins threads all the time. */
static void do_churn(struct slot *slot) {
    do {
        int counts[4] = {0};
        pthread_t threads[4];
        int made = 0;
        while (made < 4 && !pthread_create(&threads[made], 0, short_lived, &counts[made])) made++;
        for (int i = 0; i < made; i++) {
            pthread_join(threads[i], 0);
            CHECK(slot, counts[i] == 1);
        }
    } while (round_done(slot));
}

static void do_maps(struct slot *slot) {
    do {
        char *p = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) { CHECK(slot, errno == ENOMEM); continue; }
        p[4096] = 3;
        CHECK(slot, p[4096] == 3);
        munmap(p, 65536);
    } while (round_done(slot));
}

/* A short sleep at a time, as many programs wait. */
static void sleep_for(struct slot *slot, long ns) {
    do {
        struct timespec time = {0, ns};
        uint64_t began = now_ns();
        if (nanosleep(&time, 0)) slot->eintr++;
        else CHECK(slot, now_ns() - began >= (uint64_t)ns);
    } while (round_done(slot));
}
static void do_doze(struct slot *slot) { sleep_for(slot, 1000000); }
long nap_ns = 10000000;
static void do_nap(struct slot *slot) { sleep_for(slot, nap_ns); }

/* Floating point, vectors, the direction flag: registers that a careless attach would lose. */
static void do_registers(struct slot *slot) {
    do {
        double x = 1.0;
        for (int i = 1; i < 500; i++) x = x * 1.0000001 + 1.0 / i;
        long double y = 1.0L;
        for (int i = 1; i < 500; i++) y = y * 1.0000001L + 1.0L / i;
        double off = (double)y - x;
        CHECK(slot, off < 1e-9 && off > -1e-9);
    } while (round_done(slot));
}

job busy_job(const char *kind) {
    static const struct { const char *kind; job job; } jobs[] = {
        {"malloc", do_malloc}, {"spin", do_spin}, {"dlopen", do_dlopen}, {"phdr", do_phdr}, {"fork", do_fork}, {"exec", do_exec},
        {"churn", do_churn}, {"maps", do_maps}, {"doze", do_doze}, {"nap", do_nap}, {"registers", do_registers},
    };
    for (unsigned i = 0; i < sizeof jobs / sizeof *jobs; i++)
        if (!strcmp(kind, jobs[i].kind)) return jobs[i].job;
    return 0;
}
