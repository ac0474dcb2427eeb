// A CUDA program that counts its own work, and says on request how much there was so far and when.
//
//   count plain THREADS    kernels only, each thread on a stream of its own
//   count mixed THREADS    kernels, copies in three directions, fills, events, allocations
//   count graph THREADS    each thread launches a graph that was instantiated before the first answer
//   count regraph THREADS  each thread instantiates a graph, launches it 200 times, and begins anew
//   count capture 1        captures a graph again and again, instantiates it, launches it, waits for it and destroys it
//   count marks THREADS    as mixed, each step in a range of NVTX, with more allocations, also of memory that moves by itself
//   count waits THREADS    kernels of some milliseconds, and a wait for each: on the processor, asleep, or in a copy
//   count idle 0 [CPU]     nothing by itself: "rate" and "times" only; the answering thread stays on that processor
//
// One line on standard input, one line "@ {json}" on standard output:
//   mark             the threads pause outside of CUDA, the device is waited for, the counts are told with the time (CLOCK_BOOTTIME, ns)
//   rate SECONDS K   kernel K (empty or vecadd) is launched for so long on this thread; launches per second
//   times N          N kernels of known different lengths, each between two events; the events' times
//   raw COMMANDS     CUPTI alone (raw.c, which the variable RAW_LIBRARY names): what it answers
//   rest COMMANDS    the same while the threads pause outside of CUDA; with "sync" in front the device has nothing to do, either
//   end              the threads stop; the last counts
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>
#include <sched.h>
#include <string>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

constexpr int ELEMENTS = 4096;
constexpr int GRAPH_KERNELS = 12;

__global__ void count_add(float *to, int n) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n) to[at] += 1.0f;
}
template <int FACTOR> __global__ void count_scale(float *to, int n) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n) to[at] *= FACTOR;
}
__global__ void count_empty() {}
__global__ void count_vecadd(const float *a, const float *b, float *to, int n) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n) to[at] = a[at] + b[at];
}
__global__ void count_spin(long long ticks, float *to) {
    long long end = clock64() + ticks;
    float value = threadIdx.x;
    while (clock64() < end) value = value * 1.0001f + 0.5f;
    if (value == 42.0f) *to = value;
}

enum Kind { ADD, SCALE, H2D, D2H, D2D, FILL, GRAPHS, CALLS, KINDS };
static const char *NAMES[KINDS] = {"add", "scale", "h2d", "d2h", "d2d", "fill", "graphs", "launch_calls"};

struct alignas(128) Counts {
    std::atomic<uint64_t> of[KINDS];
};
static Counts counts[64];
static std::atomic<uint64_t> errors;
static std::atomic<bool> paused, stopped;
static std::atomic<int> inside;

static bool ok(cudaError_t code, const char *what) {
    if (code == cudaSuccess) return true;
    if (errors++ < 5) fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(code));
    return false;
}
#define OK(call) ok((call), #call)

static uint64_t boottime() {
    timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return uint64_t(now.tv_sec) * 1000000000u + now.tv_nsec;
}
static double seconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

// Where a thread may be held: outside of every call of CUDA.
static void gate() {
    inside--;
    while (paused) usleep(20);
    inside++;
    while (paused) {
        inside--;
        while (paused) usleep(20);
        inside++;
    }
}

struct Worker {
    int id;
    std::string mode;
    cudaStream_t stream{};
    float *device{}, *other{}, *host{};
    cudaGraphExec_t graph{};

    void prepare() {
        OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        OK(cudaMalloc(&device, ELEMENTS * sizeof(float)));
        OK(cudaMalloc(&other, ELEMENTS * sizeof(float)));
        OK(cudaMallocHost(&host, ELEMENTS * sizeof(float)));
        OK(cudaMemset(device, 0, ELEMENTS * sizeof(float)));
        if (mode == "graph") {
            instantiate();
            for (int at = 0; at < 3; at++) OK(cudaGraphLaunch(graph, stream));
        }
        OK(cudaStreamSynchronize(stream));
    }

    void instantiate() {
        cudaGraph_t made;
        OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        for (int at = 0; at < GRAPH_KERNELS; at++) {
            if (at % 3)
                count_add<<<16, 256, 0, stream>>>(device, ELEMENTS);
            else
                count_scale<2><<<16, 256, 0, stream>>>(device, ELEMENTS);
        }
        OK(cudaStreamEndCapture(stream, &made));
        OK(cudaGraphInstantiate(&graph, made, 0));
        OK(cudaGraphDestroy(made));
    }

    void add() {
        count_add<<<16, 256, 0, stream>>>(device, ELEMENTS);
        if (OK(cudaGetLastError())) {
            counts[id].of[ADD]++;
            counts[id].of[CALLS]++;
        }
    }

    void scale() {
        count_scale<3><<<16, 256, 0, stream>>>(device, ELEMENTS);
        if (OK(cudaGetLastError())) {
            counts[id].of[SCALE]++;
            counts[id].of[CALLS]++;
        }
    }

    // In the strictest mode: a call of anybody's that must not be made meanwhile spoils the capture, and that is an error here.
    void capture() {
        cudaGraph_t made;
        cudaGraphExec_t ready;
        if (!OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal))) return;
        for (int at = 0; at < GRAPH_KERNELS; at++) count_add<<<16, 256, 0, stream>>>(device, ELEMENTS);
        // A capture is open for a while, as in a program that builds one out of much.
        usleep(200);
        if (!OK(cudaStreamEndCapture(stream, &made))) return;
        if (OK(cudaGraphInstantiate(&ready, made, 0)) && OK(cudaGraphLaunch(ready, stream))) {
            counts[id].of[GRAPHS]++;
            counts[id].of[ADD] += GRAPH_KERNELS;
            OK(cudaStreamSynchronize(stream));
            OK(cudaGraphExecDestroy(ready));
        }
        OK(cudaGraphDestroy(made));
    }

    void wait(uint32_t dice, cudaEvent_t asleep) {
        count_spin<<<1, 32, 0, stream>>>(1000000 + dice % 8000000, device);
        if (!OK(cudaGetLastError())) return;
        counts[id].of[CALLS]++;
        switch ((id + dice) % 3) {
        case 0: OK(cudaStreamSynchronize(stream)); break;
        case 1:
            OK(cudaEventRecord(asleep, stream));
            OK(cudaEventSynchronize(asleep));
            break;
        default:
            // Not page-locked: the call returns when it is done.
            float some[16];
            OK(cudaMemcpyAsync(some, device, sizeof some, cudaMemcpyDeviceToHost, stream));
            OK(cudaStreamSynchronize(stream));
        }
    }

    void copy(Kind kind) {
        bool to_device = kind == H2D, within = kind == D2D;
        auto direction = within ? cudaMemcpyDeviceToDevice : to_device ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
        void *to = within ? other : to_device ? device : host;
        const void *from = within || !to_device ? device : host;
        if (OK(cudaMemcpyAsync(to, from, 4096, direction, stream))) counts[id].of[kind]++;
    }

    // Memory that moves between host and device by itself, touched on both.
    void moving() {
        float *some;
        if (!OK(cudaMallocManaged(&some, ELEMENTS * sizeof(float)))) return;
        for (int at = 0; at < ELEMENTS; at += 64) some[at] = 1.0f;
        count_add<<<16, 256, 0, stream>>>(some, ELEMENTS);
        if (OK(cudaGetLastError())) {
            counts[id].of[ADD]++;
            counts[id].of[CALLS]++;
        }
        OK(cudaStreamSynchronize(stream));
        if (some[0] != 2.0f) errors++;
        OK(cudaFree(some));
    }

    void run() {
        bool marks = mode == "marks";
        cudaEvent_t event, asleep;
        OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        OK(cudaEventCreateWithFlags(&asleep, cudaEventDisableTiming | cudaEventBlockingSync));
        uint32_t dice = 7919u * (id + 1);
        inside++;
        for (uint64_t step = 0; !stopped && !errors; step++) {
            gate();
            dice = dice * 1664525u + 1013904223u;
            if (mode == "regraph" && step % 200 == 0) {
                OK(cudaStreamSynchronize(stream));
                if (graph) OK(cudaGraphExecDestroy(graph));
                instantiate();
            }
            if (mode == "graph" || mode == "regraph") {
                if (OK(cudaGraphLaunch(graph, stream))) {
                    counts[id].of[GRAPHS]++;
                    counts[id].of[SCALE] += GRAPH_KERNELS / 3;
                    counts[id].of[ADD] += GRAPH_KERNELS - GRAPH_KERNELS / 3;
                }
                if (step % 50 == 49) OK(cudaStreamSynchronize(stream));
                continue;
            }
            if (mode == "waits") {
                wait(dice, asleep);
                continue;
            }
            if (mode == "capture") {
                capture();
                continue;
            }
            unsigned what = mode == "plain" ? 15 : (dice >> 24) % 16;
            if (marks) nvtxRangePushA("step");
            switch (what) {
            case 0: copy(H2D); break;
            case 1: copy(D2H); break;
            case 2: copy(D2D); break;
            case 3:
                if (OK(cudaMemsetAsync(other, 0, 4096, stream))) counts[id].of[FILL]++;
                break;
            case 4: OK(cudaStreamSynchronize(stream)); break;
            case 5:
                OK(cudaEventRecord(event, stream));
                OK(cudaEventSynchronize(event));
                break;
            case 6:
                if (marks && (dice >> 8) % 64 == 1) moving();
                if ((dice >> 8) % (marks ? 4 : 32) == 0) {
                    void *some;
                    if (OK(cudaMalloc(&some, 1 << 16))) OK(cudaFree(some));
                }
                break;
            case 7: case 8: scale(); break;
            default: add();
            }
            if (marks) nvtxRangePop();
            if (mode == "plain" && step % 200 == 199) OK(cudaStreamSynchronize(stream));
        }
        inside--;
        OK(cudaStreamSynchronize(stream));
    }
};

static void tell(int threads) {
    uint64_t sums[KINDS] = {};
    for (int id = 0; id < threads; id++)
        for (int kind = 0; kind < KINDS; kind++) sums[kind] += counts[id].of[kind];
    std::string text = "@ {\"time\": " + std::to_string(boottime()) + ", \"errors\": " + std::to_string(errors);
    for (int kind = 0; kind < KINDS; kind++) text += std::string(", \"") + NAMES[kind] + "\": " + std::to_string(sums[kind]);
    printf("%s}\n", text.c_str());
}

static void mark(int threads) {
    paused = true;
    while (inside > 0) usleep(20);
    OK(cudaDeviceSynchronize());
    tell(threads);
    paused = false;
}

static void raw(const char *words) {
    static const char *(*command)(const char *);
    if (!command) {
        const char *path = getenv("RAW_LIBRARY");
        void *library = path ? dlopen(path, RTLD_NOW) : nullptr;
        if (library) command = reinterpret_cast<const char *(*)(const char *)>(dlsym(library, "raw_command"));
    }
    printf("@ {\"raw\": \"%s\"}\n", command ? command(words) : "no library");
}

static void rest(const char *words) {
    paused = true;
    while (inside > 0) usleep(20);
    bool sync = !strncmp(words, "sync ", 5);
    if (sync) OK(cudaDeviceSynchronize());
    raw(words + (sync ? 5 : 0));
    paused = false;
}

static void rate(double length, bool empty) {
    static float *a, *b, *to;
    constexpr int n = 1 << 20;
    if (!a) {
        for (float **some : {&a, &b, &to}) {
            OK(cudaMalloc(some, n * sizeof(float)));
            OK(cudaMemset(*some, 0, n * sizeof(float)));
        }
    }
    uint64_t launches = 0;
    double begin = seconds(), end = begin;
    do {
        for (int at = 0; at < 100; at++) {
            if (empty)
                count_empty<<<1, 1>>>();
            else
                count_vecadd<<<n / 256, 256>>>(a, b, to, n);
        }
        launches += 100;
        OK(cudaStreamSynchronize(0));
        end = seconds();
    } while (end - begin < length);
    OK(cudaGetLastError());
    printf("@ {\"rate\": %.3f, \"launches\": %lu, \"errors\": %lu}\n", launches / (end - begin), launches, errors.load());
}

static void times(int n) {
    float *to;
    OK(cudaMalloc(&to, sizeof(float)));
    cudaEvent_t begin, end;
    OK(cudaEventCreate(&begin));
    OK(cudaEventCreate(&end));
    uint64_t from = boottime();
    std::string list;
    for (int at = 0; at < n; at++) {
        // 50 us to about 3 ms at 1.98 GHz, each another.
        long long ticks = 100000 + 6000000ll * at / n;
        OK(cudaEventRecord(begin));
        count_spin<<<1, 32>>>(ticks, to);
        OK(cudaEventRecord(end));
        OK(cudaEventSynchronize(end));
        float took = 0;
        OK(cudaEventElapsedTime(&took, begin, end));
        list += (at ? ", " : "") + std::to_string(llround(took * 1e6));
    }
    printf("@ {\"from\": %lu, \"to\": %lu, \"errors\": %lu, \"ns\": [%s]}\n", from, boottime(), errors.load(), list.c_str());
    OK(cudaFree(to));
}

int main(int words, char **word) {
    setvbuf(stdout, nullptr, _IOLBF, 0);
    std::string mode = words > 1 ? word[1] : "plain";
    int threads = words > 2 ? atoi(word[2]) : 1;
    if (threads > 64) return 2;
    OK(cudaFree(nullptr));
    if (words > 3) {
        // This thread alone: CUDA's threads run where they like.
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(atoi(word[3]), &one);
        sched_setaffinity(0, sizeof one, &one);
    }
    std::vector<Worker> workers;
    for (int id = 0; id < threads; id++) workers.push_back({id, mode});
    for (auto &worker : workers) worker.prepare();
    std::vector<std::thread> running;
    for (auto &worker : workers) running.emplace_back([&worker] { worker.run(); });
    printf("@ {\"ready\": true, \"graph_kernels\": %d}\n", GRAPH_KERNELS);
    char line[4096];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        double length;
        int n;
        char kernel[16] = "";
        if (!strncmp(line, "mark", 4))
            mark(threads);
        else if (sscanf(line, "rate %lf %15s", &length, kernel) == 2)
            rate(length, !strcmp(kernel, "empty"));
        else if (sscanf(line, "times %d", &n) == 1)
            times(n);
        else if (!strncmp(line, "raw ", 4))
            raw(line + 4);
        else if (!strncmp(line, "rest ", 5))
            rest(line + 5);
        else
            break;
    }
    stopped = true;
    for (auto &thread : running) thread.join();
    OK(cudaDeviceSynchronize());
    tell(threads);
    return errors ? 1 : 0;
}
