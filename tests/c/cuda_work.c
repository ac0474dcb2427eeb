// A CUDA program with two workers, one for each device: copies both ways, a fill, kernels, and its
// own check of what came out. main also launches a graph, copies from device to device, allocates,
// and can become a user of CUPTI itself.
//
// Commands: "work N" rounds by each worker, "start" and "stop" (rounds without end, one each
// PAUSE_US), "graph N", "peers N", "memory N", "marks N" (NVTX: two ranges within one another, one
// over both and a moment, N times), "state N" (calls that only ask for state), "count", "capture" and "captured" (a graph, between the two),
// "fork" (a child that ends at once), "exec" (a shell that ends with its input),
// "churn" (threads that launch, wait, check and end, one after the other at CHURN places; with "contexts": that make and
// destroy a context, at CONTEXTS places) and "calm" (until they have ended), "other PATH" (subscribe to the CUPTI there and trace 10 kernels), "idle" (trace no more, but stay subscribed),
// "again" (trace 10 more), "leave" (end that), "quit", "exit", "_exit", "abort". Each is answered
// by its first word and what it did.
#include "kit.h"
#include <cuda.h>
#include <dlfcn.h>
#include <nvtx.h>
#include <sys/wait.h>
#include <time.h>

enum { WORKERS = 2, WORDS = 4096, STEPS = 3, CHURN = 8, CONTEXTS = 3, CHURN_WORDS = 64 };

KERNEL(step, "_Z4stepPjj")
KERNEL(reduce, "_ZN4test6reduceIfEEvPKT_PS1_")

#define MUST(call) do { int error_ = (call); if (error_) fail("%s: %d", #call, error_); } while (0)

struct worker {
    pthread_t thread;
    int device;
    long rounds, bad;
    uint32_t *words;
};
static struct worker workers[WORKERS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long wanted[WORKERS]; // rounds that are still to do; -1: without end
static useconds_t pause_us = 5000;

static void one_round(struct worker *w, cudaStream_t stream, uint32_t *host, uint32_t *back) {
    dim3 grid = {16u << w->device, 2, 1}, block = {64, 2, 1}, one = {1, 1, 1};
    uint32_t count = WORDS;
    void *args[] = {&w->words, &count};
    for (int i = 0; i < WORDS; i++) host[i] = (uint32_t)(i + w->rounds);
    MUST(cudaMemsetAsync(w->words, 0, WORDS * 4, stream));
    MUST(cudaMemcpyAsync(w->words, host, WORDS * 4, cudaMemcpyHostToDevice, stream));
    for (int n = 0; n < STEPS; n++) MUST(cudaLaunchKernel((void *)step, grid, block, args, 0, stream));
    MUST(cudaLaunchKernel((void *)reduce, one, block, 0, 256, stream));
    MUST(cudaMemcpyAsync(back, w->words, WORDS * 4, cudaMemcpyDeviceToHost, stream));
    MUST(cudaStreamSynchronize(stream));
    for (int i = 0; i < WORDS; i++) w->bad += back[i] != host[i] + STEPS;
    __atomic_add_fetch(&w->rounds, 1, __ATOMIC_RELEASE);
}

static void *work(void *argument) {
    struct worker *w = argument;
    uint32_t *host = malloc(WORDS * 4), *back = malloc(WORDS * 4);
    cudaStream_t stream;
    MUST(cudaSetDevice(w->device));
    MUST(cudaStreamCreate(&stream));
    MUST(cudaMalloc((void **)&w->words, WORDS * 4));
    pthread_mutex_lock(&lock);
    wanted[w->device] = 0;
    pthread_cond_broadcast(&changed);
    for (;;) {
        while (!wanted[w->device]) pthread_cond_wait(&changed, &lock);
        bool endless = wanted[w->device] < 0;
        pthread_mutex_unlock(&lock);
        one_round(w, stream, host, back);
        if (endless) usleep(pause_us);
        pthread_mutex_lock(&lock);
        if (wanted[w->device] > 0) wanted[w->device]--;
        pthread_cond_broadcast(&changed);
    }
    return 0;
}

static void want(long rounds) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < WORKERS; i++) wanted[i] = rounds;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

// Until no worker is in a round: a stopped one ends its round first.
static void rest(void) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < WORKERS; i++)
        while (wanted[i]) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void totals(const char *word) {
    long rounds = 0, bad = 0;
    for (int i = 0; i < WORKERS; i++) {
        rounds += __atomic_load_n(&workers[i].rounds, __ATOMIC_ACQUIRE);
        bad += workers[i].bad;
    }
    say("%s rounds %ld bad %ld", word, rounds, bad);
}

// Threads that come and go.
static struct {
    pthread_t keepers[CHURN];
    bool over;
    int places;
    long ends, bad;
} churn;

static void *churn_thread(void *unused) {
    dim3 one = {1, 1, 1}, block = {CHURN_WORDS, 1, 1};
    uint32_t count = CHURN_WORDS, *words, back[CHURN_WORDS];
    void *args[] = {&words, &count};
    cudaStream_t stream;
    (void)unused;
    MUST(cudaStreamCreate(&stream));
    MUST(cudaMalloc((void **)&words, sizeof back));
    MUST(cudaMemsetAsync(words, 0, sizeof back, stream));
    for (int n = 0; n < STEPS; n++) MUST(cudaLaunchKernel((void *)step, one, block, args, 0, stream));
    MUST(cudaMemcpyAsync(back, words, sizeof back, cudaMemcpyDeviceToHost, stream));
    MUST(cudaStreamSynchronize(stream));
    for (int i = 0; i < CHURN_WORDS; i++)
        if (back[i] != STEPS) __atomic_add_fetch(&churn.bad, 1, __ATOMIC_RELAXED);
    MUST(cudaFree(words));
    MUST(cudaStreamDestroy(stream));
    usleep(pause_us);
    __atomic_add_fetch(&churn.ends, 1, __ATOMIC_RELAXED);
    return 0;
}

static void *churn_context(void *unused) {
    CUcontext own;
    CUdeviceptr at;
    MUST(cuCtxCreate(&own, 0, 0));
    MUST(cuMemAlloc(&at, 1024));
    MUST(cuMemFree(at));
    // Not all at the same time.
    usleep(pause_us + (useconds_t)(__atomic_load_n(&churn.ends, __ATOMIC_RELAXED) * 7919 % 10 * pause_us / 10));
    MUST(cuCtxDestroy(own));
    __atomic_add_fetch(&churn.ends, 1, __ATOMIC_RELAXED);
    return unused;
}

static void *churn_keeper(void *contexts) {
    while (!__atomic_load_n(&churn.over, __ATOMIC_ACQUIRE))
        pthread_join(start_thread(contexts ? churn_context : churn_thread, 0), 0);
    return 0;
}

static CUcontext contexts[2];
static CUstream main_stream;
static CUgraphExec graph;
static CUfunction main_kernel;
static CUdeviceptr peer[2];

static void make_graph(void) {
    CUmodule module;
    CUgraph made;
    MUST(cuCtxSetCurrent(contexts[0]));
    MUST(cuModuleLoadData(&module, ""));
    MUST(cuModuleGetFunction(&main_kernel, module, "_Z9graph_onePj"));
    MUST(cuStreamCreate(&main_stream, 0));
    CUlaunchConfig config = {4, 1, 1, 32, 1, 1, 128, main_stream, 0, 0};
    MUST(cuStreamBeginCapture(main_stream, 0));
    MUST(cuLaunchKernelEx(&config, main_kernel, 0, 0));
    MUST(cuMemsetD32Async(peer[0], 7, 256, main_stream));
    MUST(cuLaunchKernelEx(&config, main_kernel, 0, 0));
    MUST(cuStreamEndCapture(main_stream, &made));
    MUST(cuGraphInstantiateWithFlags(&graph, made, 0));
    MUST(cuGraphDestroy(made));
}

// Another user of CUPTI.
static struct {
    void *library;
    void *subscriber;
    int (*subscribe)(void **, void (*)(void *, int, uint32_t, const void *), void *);
    int (*unsubscribe)(void *);
    int (*callbacks)(void (*)(uint8_t **, size_t *, size_t *), void (*)(CUcontext, uint32_t, uint8_t *, size_t, size_t));
    int (*clock)(uint64_t (*)(void));
    int (*enable)(uint32_t);
    int (*disable)(uint32_t);
    int (*flush)(uint32_t);
    int (*next)(uint8_t *, size_t, uint32_t **);
    int (*finalize)(void);
    long kernels;
} other;

static void other_callback(void *user, int domain, uint32_t id, const void *data) {
    (void)user, (void)domain, (void)id, (void)data;
}
static void other_request(uint8_t **buffer, size_t *size, size_t *most) {
    *buffer = malloc(1 << 16);
    *size = 1 << 16;
    *most = 0;
}
static void other_complete(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    (void)context, (void)stream, (void)size;
    uint32_t *record = 0;
    while (valid && !other.next(buffer, valid, &record)) other.kernels += *record == 10;
    free(buffer);
}
static void *named(const char *name) {
    void *found = dlsym(other.library, name);
    if (!found) fail("no %s", name);
    return found;
}

// As PyTorch's profiler: ticks of the processor where it has a counter that can be read.
static uint64_t other_clock(void) {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
#endif
}

// Buffers, kinds, ten kernels, and what came of them.
static void trace(void) {
    other.kernels = 0;
    MUST(other.callbacks(other_request, other_complete));
    MUST(other.enable(10));
    for (int i = 0; i < 10; i++) MUST(cuLaunchKernel(main_kernel, 4, 1, 1, 32, 1, 1, 0, main_stream, 0, 0));
    MUST(cuStreamSynchronize(main_stream));
    MUST(other.flush(1));
}

static void become_other(const char *path) {
    other.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!other.library) fail("%s", dlerror());
    *(void **)&other.subscribe = named("cuptiSubscribe");
    *(void **)&other.unsubscribe = named("cuptiUnsubscribe");
    *(void **)&other.callbacks = named("cuptiActivityRegisterCallbacks");
    *(void **)&other.clock = named("cuptiActivityRegisterTimestampCallback");
    *(void **)&other.enable = named("cuptiActivityEnable");
    *(void **)&other.disable = named("cuptiActivityDisable");
    *(void **)&other.flush = named("cuptiActivityFlushAll");
    *(void **)&other.next = named("cuptiActivityGetNextRecord");
    *(void **)&other.finalize = named("cuptiFinalize");
    other.kernels = 0;
    int subscribed = other.subscribe(&other.subscriber, other_callback, 0);
    if (!subscribed) trace();
    say("other subscribe %d kernels %ld", subscribed, other.kernels);
}

static void many(const char *command, long n) {
    if (!strcmp(command, "graph")) {
        for (long i = 0; i < n; i++) MUST(cuGraphLaunch(graph, main_stream));
        MUST(cuStreamSynchronize(main_stream));
    } else if (!strcmp(command, "peers")) {
        for (long i = 0; i < n; i++) MUST(cuMemcpyPeerAsync(peer[1], contexts[1], peer[0], contexts[0], 1024, main_stream));
        MUST(cuCtxSynchronize());
    } else if (!strcmp(command, "marks")) {
        int deepest = 0;
        for (long i = 0; i < n; i++) {
            uint64_t over = nvtxRangeStartA("over");
            nvtxRangePushA("outer");
            deepest = nvtxRangePushA("inner");
            MUST(cuLaunchKernel(main_kernel, 4, 1, 1, 32, 1, 1, 0, main_stream, 0, 0));
            nvtxRangePop();
            nvtxRangePop();
            nvtxRangeEnd(over);
            nvtxMarkA("moment");
        }
        MUST(cuStreamSynchronize(main_stream));
        say("marks done %ld depth %d", n, deepest);
        return;
    } else if (!strcmp(command, "state")) {
        CUcontext now;
        for (long i = 0; i < n; i++) MUST(cuCtxGetCurrent(&now));
    } else {
        for (long i = 0; i < n; i++) {
            CUdeviceptr at;
            MUST(cuMemAlloc(&at, (size_t)(4096 * (i + 1))));
            MUST(cuMemFree(at));
        }
    }
    say("%s done %ld", command, n);
}

int main(void) {
    char line[4200];
    if (getenv("PAUSE_US")) pause_us = (useconds_t)atol(getenv("PAUSE_US"));
    if (getenv("LATE")) {
        say("early");
        hear_only("go");
    }
    MUST(cuInit(0));
    if (getenv("NO_CONTEXT")) {
        CUcontext own;
        if (getenv("OWN_CONTEXT")) MUST(cuCtxCreate(&own, 0, 0));
        say("initialised");
        hear_only("go");
    }
    for (int i = 0; i < WORKERS; i++) {
        MUST(cuDevicePrimaryCtxRetain(&contexts[i], i));
        MUST(cuCtxSetCurrent(contexts[i]));
        MUST(cuMemAlloc(&peer[i], 1024));
        workers[i].device = i;
        wanted[i] = 1; // until it is set up
    }
    make_graph();
    for (int i = 0; i < WORKERS; i++) workers[i].thread = start_thread(work, &workers[i]);
    rest();
    say("ready");
    while (hear(line, sizeof line)) {
        char *rest_of = strchr(line, ' ');
        if (rest_of) *rest_of++ = 0;
        long n = rest_of ? atol(rest_of) : 0;
        if (!strcmp(line, "work")) {
            want(n);
            rest();
            totals("work");
        } else if (!strcmp(line, "start")) {
            want(-1);
            totals("start");
        } else if (!strcmp(line, "stop")) {
            want(1);
            rest();
            totals("stop");
        } else if (!strcmp(line, "count")) {
            totals("count");
        } else if (!strcmp(line, "churn")) {
            churn.over = false;
            churn.places = rest_of ? CONTEXTS : CHURN;
            for (int i = 0; i < churn.places; i++) churn.keepers[i] = start_thread(churn_keeper, rest_of);
            say("churn");
        } else if (!strcmp(line, "calm")) {
            __atomic_store_n(&churn.over, true, __ATOMIC_RELEASE);
            for (int i = 0; i < churn.places; i++) pthread_join(churn.keepers[i], 0);
            say("calm ends %ld bad %ld", churn.ends, churn.bad);
        } else if (!strcmp(line, "other") && rest_of) {
            become_other(rest_of);
        } else if (!strcmp(line, "idle")) {
            MUST(other.disable(10));
            MUST(other.flush(1));
            say("idle");
        } else if (!strcmp(line, "again")) {
            // Who is subscribed already begins with the clock, as PyTorch's profiler does.
            MUST(other.clock(other_clock));
            trace();
            say("again kernels %ld", other.kernels);
        } else if (!strcmp(line, "leave")) {
            MUST(other.disable(10));
            MUST(other.unsubscribe(other.subscriber));
            MUST(other.finalize());
            say("leave");
        } else if (!strcmp(line, "graph") || !strcmp(line, "peers") || !strcmp(line, "memory") ||
                   !strcmp(line, "marks") || !strcmp(line, "state")) {
            many(line, n);
        } else if (!strcmp(line, "capture")) {
            MUST(cuStreamBeginCapture(main_stream, 0));
            MUST(cuLaunchKernel(main_kernel, 4, 1, 1, 32, 1, 1, 0, main_stream, 0, 0));
            say("capture");
        } else if (!strcmp(line, "captured")) {
            CUgraph made;
            CUgraphExec exec;
            MUST(cuStreamEndCapture(main_stream, &made));
            MUST(cuGraphInstantiateWithFlags(&exec, made, 0));
            MUST(cuGraphDestroy(made));
            MUST(cuGraphLaunch(exec, main_stream));
            MUST(cuStreamSynchronize(main_stream));
            MUST(cuGraphExecDestroy(exec));
            say("captured");
        } else if (!strcmp(line, "fork")) {
            pid_t child = fork();
            if (!child) _exit(7);
            int status;
            if (child < 0 || waitpid(child, &status, 0) != child) fail("fork");
            say("fork %d", WEXITSTATUS(status));
        } else if (!strcmp(line, "exec")) {
            execl("/bin/sh", "sh", "-c", "while read x; do :; done", (char *)0);
            fail("exec");
        } else if (!strcmp(line, "exit")) {
            exit(0);
        } else if (!strcmp(line, "_exit")) {
            _exit(0);
        } else if (!strcmp(line, "abort")) {
            abort();
        } else if (!strcmp(line, "quit")) {
            break;
        } else {
            fail("unknown command %s", line);
        }
    }
    totals("done");
    return 0;
}
