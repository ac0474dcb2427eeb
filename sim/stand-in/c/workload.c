/* A small training loop: two GPUs, a thread and two streams each, kernels with C++ names, copies both ways, and gradients sent from
 * GPU to GPU. It knows nothing of profilers.
 *
 *   workload [ITERATIONS [PAUSE_US [any [SECONDS]]]]     (0 iterations: until SECONDS are over or it is killed)
 *
 * "any": any process of the same user may trace it, whatever kernel.yama.ptrace_scope says below 2.
 *
 * Prints "iter N" by the first thread, and at the end per device "device D kernels K copies C peers P bad B", B being the number of
 * words that did not come back as they were sent. */
#include "hip.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 1 << 16, DEVICES = 2 };

KERNEL(gemm, "_Z4gemmILi128ELi64EEvPKfS1_Pfiii")
KERNEL(softmax, "_Z7softmaxPKfPfi")
KERNEL(layer_norm, "_ZN2nn9layerNormEPKfPfS2_if")
KERNEL(relu, "_ZN2nn4reluIfEEvPT_i")
KERNEL(sgd, "_Z8sgd_stepPfPKff")

static void must(hipError_t error, const char *what) {
    if (error) {
        fprintf(stderr, "%s: %s\n", what, hipGetErrorString(error));
        exit(1);
    }
}
#define MUST(call) must(call, #call)

static long iterations;
static useconds_t pause_us;
static time_t last_second;
static uint32_t *device_words[DEVICES];

static time_t second(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

struct worker {
    pthread_t thread;
    int device;
    long kernels, copies, peers, bad;
};

static void launch(struct worker *w, void (*kernel)(void), unsigned groups, unsigned items, hipStream_t stream) {
    dim3 grid = {groups, 1, 1}, block = {items, 1, 1};
    MUST(hipLaunchKernel((const void *)kernel, grid, block, 0, 0, stream));
    w->kernels++;
}

static void *work(void *argument) {
    struct worker *w = argument;
    int peer = (w->device + 1) % DEVICES;
    uint32_t *host, *back;
    hipStream_t compute, io;
    hipEvent_t loaded;
    MUST(hipSetDevice(w->device));
    MUST(hipHostMalloc((void **)&host, WORDS * 4, 0));
    MUST(hipHostMalloc((void **)&back, WORDS * 4, 0));
    MUST(hipStreamCreate(&compute));
    MUST(hipStreamCreate(&io));
    MUST(hipEventCreate(&loaded));
    for (long n = 0; (!iterations || n < iterations) && (!last_second || second() < last_second); n++) {
        uint32_t *words = device_words[w->device];
        memset(host, (int)(n & 0x7f), WORDS * 4);
        MUST(hipMemcpyAsync(words, host, WORDS * 4, hipMemcpyHostToDevice, io));
        MUST(hipEventRecord(loaded, io));
        MUST(hipStreamWaitEvent(compute, loaded, 0));
        w->copies++;
        for (unsigned layer = 0; layer < 3; layer++) {
            launch(w, gemm, 64, 256, compute);
            launch(w, layer_norm, 16, 128, compute);
            launch(w, relu, 8, 128, compute);
        }
        launch(w, softmax, 24, 128, compute);
        launch(w, sgd, 12, 128, compute);
        MUST(hipMemcpyAsync(back, words, WORDS * 4, hipMemcpyDeviceToHost, compute));
        w->copies++;
        MUST(hipStreamSynchronize(compute));
        w->bad += memcmp(host, back, WORDS * 4) != 0;
        if (w->device == 0) {
            /* The second half of the peer's memory takes the gradients. */
            MUST(hipMemcpyPeerAsync(device_words[peer] + WORDS, peer, words, w->device, WORDS * 4, io));
            MUST(hipStreamSynchronize(io));
            w->peers++;
            printf("iter %ld\n", n);
            fflush(stdout);
        }
        if (pause_us) usleep(pause_us);
    }
    MUST(hipEventDestroy(loaded));
    MUST(hipStreamDestroy(compute));
    MUST(hipStreamDestroy(io));
    MUST(hipHostFree(host));
    MUST(hipHostFree(back));
    return 0;
}

int main(int argc, char **argv) {
    struct worker workers[DEVICES] = {0};
    int count = 0;
    iterations = argc > 1 ? atol(argv[1]) : 0;
    pause_us = argc > 2 ? (useconds_t)atol(argv[2]) : 0;
    if (argc > 4 && atol(argv[4])) last_second = second() + atol(argv[4]);
    /* A kernel without Yama does not know the request, and needs none. */
    if (argc > 3 && !strcmp(argv[3], "any")) prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    MUST(hipGetDeviceCount(&count));
    if (count < DEVICES) {
        fprintf(stderr, "%d devices, %d wanted\n", count, DEVICES);
        return 1;
    }
    for (int d = 0; d < DEVICES; d++) {
        MUST(hipSetDevice(d));
        MUST(hipDeviceEnablePeerAccess((d + 1) % DEVICES, 0));
        MUST(hipMalloc((void **)&device_words[d], 2 * WORDS * 4));
        MUST(hipMemset(device_words[d], 0, 2 * WORDS * 4));
    }
    for (int d = 0; d < DEVICES; d++) {
        workers[d].device = d;
        if (pthread_create(&workers[d].thread, 0, work, &workers[d])) return 1;
    }
    for (int d = 0; d < DEVICES; d++) {
        struct worker *w = &workers[d];
        pthread_join(w->thread, 0);
        printf("device %d kernels %ld copies %ld peers %ld bad %ld\n", d, w->kernels, w->copies, w->peers, w->bad);
    }
    for (int d = 0; d < DEVICES; d++) MUST(hipFree(device_words[d]));
    return 0;
}
