/* CUPTI alone: switched on and off with the simplest buffers, and nothing read of what it records. What of a slowdown is CUPTI's and what
 * is ours is seen beside this. count.cu and rates.py load it, and give it commands of words, several of them with ';' between:
 *
 *   load PATH            the CUPTI to use
 *   set N BYTES VALUE    an attribute (CUpti_ActivityAttribute), which is read back
 *   period MS            CUPTI's own flushes
 *   on KIND...           kinds of records (CUpti_ActivityKind); where the driver's calls are among them, without the one that CUPTI makes
 *   less runtime|driver N...   calls that are left out of their kind
 *   calls runtime|driver N...  these calls alone, without their kind
 *   unified              moves of unified memory are counted
 *   bursts ON_US OFF_US KIND...   from now on these kinds are on and off in turns, on a thread of its own
 *   bursts-end           no more; tells how many turns there were, and the last one's milliseconds of switching on and off
 *   flush 0|1, off, finalize; timed-off tells the milliseconds of each kind
 *
 * The commands run on a thread of their own, as a profiler's do that comes from outside; with "here" in front on the caller's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define BUFFER ((size_t)1 << 20)
#define BUFFERS 128
#define DRIVER 4
#define OWN_CALL 719

static unsigned char *base;
static atomic_uchar taken[BUFFERS];
static atomic_ulong asked, none, bytes_back;
static int zeroed;
static void *cupti;
static unsigned on[32];
static int number_on;

static void requested(uint8_t **buffer, size_t *size, size_t *records) {
    *records = 0;
    atomic_fetch_add(&asked, 1);
    for (int at = 0; at < BUFFERS; at++) {
        unsigned char before = 0;
        if (atomic_compare_exchange_strong(&taken[at], &before, 1)) {
            *buffer = base + at * BUFFER;
            *size = BUFFER;
            return;
        }
    }
    atomic_fetch_add(&none, 1);
    *buffer = NULL;
    *size = 0;
}

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    (void)context, (void)stream, (void)size;
    if (!buffer) return;
    atomic_fetch_add(&bytes_back, valid);
    if (zeroed) memset(buffer, 0, valid);
    atomic_store(&taken[(buffer - base) / BUFFER], 0);
}

static uint32_t call1(const char *name, uintptr_t one) {
    uint32_t (*function)(uintptr_t) = cupti ? (uint32_t(*)(uintptr_t))dlsym(cupti, name) : NULL;
    return function ? function(one) : 9999;
}

static uint32_t load(const char *path) {
    cupti = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!cupti) return 9998;
    if (!base) {
        base = mmap(NULL, BUFFER * BUFFERS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        /* Memory for those that are used at all. */
        memset(base, 0, 32 * BUFFER);
    }
    uint32_t (*callbacks)(void *, void *) = (uint32_t(*)(void *, void *))dlsym(cupti, "cuptiActivityRegisterCallbacks");
    return callbacks ? callbacks((void *)requested, (void *)completed) : 9997;
}

static uint32_t set(unsigned which, size_t bytes, uint64_t value, uint64_t *read) {
    uint32_t (*get)(unsigned, size_t *, void *) = (uint32_t(*)(unsigned, size_t *, void *))dlsym(cupti, "cuptiActivityGetAttribute");
    uint32_t (*put)(unsigned, size_t *, void *) = (uint32_t(*)(unsigned, size_t *, void *))dlsym(cupti, "cuptiActivitySetAttribute");
    uint64_t before = 0;
    size_t size = bytes;
    uint32_t code = get(which, &size, &before);
    uint32_t result = put(which, &size, &value);
    if (which == 5 && result == 0) zeroed = value != 0;
    uint32_t again = get(which, &size, read);
    *read = (*read & 0xffffffffffu) | (before << 40);
    return result ? result : code ? code : again;
}

static pthread_t burster;
static atomic_int bursting;
static unsigned burst_kinds[32], burst_number;
static unsigned long burst_on, burst_off;
static atomic_ulong burst_turns, burst_error;
static double switched_ms[2];

static double milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static void *burst(void *none) {
    (void)none;
    while (atomic_load(&bursting)) {
        for (int off = 0; off < 2; off++) {
            double begin = milliseconds();
            for (unsigned at = 0; at < burst_number; at++) {
                uint32_t code = call1(off ? "cuptiActivityDisable" : "cuptiActivityEnable", burst_kinds[at]);
                if (code) atomic_store(&burst_error, code);
            }
            switched_ms[off] = milliseconds() - begin;
            unsigned long us = off ? burst_off : burst_on;
            struct timespec wait = {us / 1000000, us % 1000000 * 1000};
            nanosleep(&wait, NULL);
        }
        call1("cuptiActivityFlushAll", 0);
        atomic_fetch_add(&burst_turns, 1);
    }
    return NULL;
}

struct job {
    char words[8192];
    char answer[512];
};

static void one(char *words, char *answer) {
    char *rest = NULL, *verb = strtok_r(words, " ", &rest);
    uint32_t code = 0;
    size_t length = strlen(answer);
    uint64_t read = 0;
    int arguments = 0;
    if (!verb) return;
    if (!strcmp(verb, "load")) {
        code = load(strtok_r(NULL, " ", &rest));
    } else if (!strcmp(verb, "set")) {
        unsigned long number[3] = {0};
        for (char *word; arguments < 3 && (word = strtok_r(NULL, " ", &rest));) number[arguments++] = strtoul(word, NULL, 0);
        code = set(number[0], number[1], number[2], &read);
        snprintf(answer + length, 512 - length, "%lu was %lu is %lu; ", number[0], (unsigned long)(read >> 40), (unsigned long)(read & 0xffffffffffu));
        length = strlen(answer);
    } else if (!strcmp(verb, "period")) {
        code = call1("cuptiActivityFlushPeriod", strtoul(strtok_r(NULL, " ", &rest), NULL, 0));
    } else if (!strcmp(verb, "on")) {
        /* Finalized since, it has forgotten them. */
        uint32_t (*callbacks)(void *, void *) = (uint32_t(*)(void *, void *))dlsym(cupti, "cuptiActivityRegisterCallbacks");
        code = callbacks((void *)requested, (void *)completed);
        for (char *word; (word = strtok_r(NULL, " ", &rest));) {
            unsigned kind = strtoul(word, NULL, 0);
            uint32_t now = call1("cuptiActivityEnable", kind);
            if (now == 0 && number_on < 32) on[number_on++] = kind;
            if (kind == DRIVER) {
                uint32_t (*api)(uint32_t, uint8_t) = (uint32_t(*)(uint32_t, uint8_t))dlsym(cupti, "cuptiActivityEnableDriverApi");
                if (api) api(OWN_CALL, 0);
            }
            code = code ? code : now;
        }
    } else if (!strcmp(verb, "less") || !strcmp(verb, "calls")) {
        const char *which = strtok_r(NULL, " ", &rest);
        int runtime = which && !strcmp(which, "runtime"), wanted = !strcmp(verb, "calls");
        uint32_t (*api)(uint32_t, uint8_t) =
            (uint32_t(*)(uint32_t, uint8_t))dlsym(cupti, runtime ? "cuptiActivityEnableRuntimeApi" : "cuptiActivityEnableDriverApi");
        if (!api) code = 9995;
        for (char *word; api && (word = strtok_r(NULL, " ", &rest));) {
            uint32_t now = api(strtoul(word, NULL, 0), wanted);
            code = code ? code : now;
        }
    } else if (!strcmp(verb, "unified")) {
        uint32_t counters[4][4] = {{2, 1, 0, 1}, {2, 2, 0, 1}, {2, 8, 0, 1}, {2, 4, 0, 1}};
        uint32_t (*configure)(void *, uint32_t) = (uint32_t(*)(void *, uint32_t))dlsym(cupti, "cuptiActivityConfigureUnifiedMemoryCounter");
        code = configure ? configure(counters, 4) : 9994;
    } else if (!strcmp(verb, "off") || !strcmp(verb, "timed-off")) {
        int timed = verb[0] == 't';
        while (number_on) {
            struct timespec begin, end;
            clock_gettime(CLOCK_MONOTONIC, &begin);
            uint32_t now = call1("cuptiActivityDisable", on[--number_on]);
            clock_gettime(CLOCK_MONOTONIC, &end);
            code = code ? code : now;
            if (timed) {
                length = strlen(answer);
                snprintf(answer + length, 512 - length, "%u:%.1f ", on[number_on], (end.tv_sec - begin.tv_sec) * 1e3 + (end.tv_nsec - begin.tv_nsec) / 1e6);
            }
        }
        length = strlen(answer);
    } else if (!strcmp(verb, "bursts")) {
        uint32_t (*callbacks)(void *, void *) = (uint32_t(*)(void *, void *))dlsym(cupti, "cuptiActivityRegisterCallbacks");
        char *on_us = strtok_r(NULL, " ", &rest), *off_us = strtok_r(NULL, " ", &rest);
        code = on_us && off_us && !bursting ? callbacks((void *)requested, (void *)completed) : 9995;
        if (!code) {
            burst_on = strtoul(on_us, NULL, 0), burst_off = strtoul(off_us, NULL, 0), burst_number = 0;
            for (char *word; burst_number < 32 && (word = strtok_r(NULL, " ", &rest));) burst_kinds[burst_number++] = strtoul(word, NULL, 0);
            burst_turns = 0;
            burst_error = 0;
            bursting = 1;
            if (pthread_create(&burster, NULL, burst, NULL)) code = 9994, bursting = 0;
        }
    } else if (!strcmp(verb, "bursts-end")) {
        if (atomic_exchange(&bursting, 0)) pthread_join(burster, NULL);
        code = burst_error;
        snprintf(answer + length, 512 - length, "%lu turns, %.2f ms on, %.2f ms off; ", (unsigned long)burst_turns, switched_ms[0], switched_ms[1]);
        length = strlen(answer);
    } else if (!strcmp(verb, "flush")) {
        code = call1("cuptiActivityFlushAll", strtoul(strtok_r(NULL, " ", &rest), NULL, 0));
    } else if (!strcmp(verb, "finalize")) {
        code = call1("cuptiFinalize", 0);
    } else {
        code = 9996;
    }
    if (code) snprintf(answer + length, 512 - length, "%s: %u; ", verb, code);
}

static void *work(void *given) {
    struct job *job = given;
    cpu_set_t all;
    memset(&all, 0xff, sizeof all);
    if (job->words[0] != '!') sched_setaffinity(0, sizeof all, &all);
    char *rest = NULL;
    for (char *part = strtok_r(job->words + 1, ";", &rest); part; part = strtok_r(NULL, ";", &rest)) one(part, job->answer);
    return NULL;
}

/* What went wrong and what was read back; nothing where all went well. */
const char *raw_command(const char *words) {
    static struct job job;
    int here = !strncmp(words, "here ", 5);
    memset(&job, 0, sizeof job);
    snprintf(job.words, sizeof job.words, "%c%s", here ? '!' : ' ', here ? words + 5 : words);
    if (here) {
        work(&job);
    } else {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, &job)) return "no thread";
        pthread_join(thread, NULL);
    }
    return job.answer;
}

void raw_counts(unsigned long out[3]) {
    out[0] = atomic_load(&asked);
    out[1] = atomic_load(&none);
    out[2] = atomic_load(&bytes_back);
}
