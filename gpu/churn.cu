// Threads that come and go while they use CUDA, and check their own results.
//
//   churn SECONDS THREADS [graphs]
//
// THREADS threads run at a time. Each makes a stream, launches LAUNCHES kernels (with "graphs": one graph of as many, captured by the
// thread), copies the result back, compares it, and ends; another takes its place. "end" on standard input, SIGTERM and the end of
// SECONDS end the program. It answers as gpu/kit.py reads it: once the first thread has ended, and with its counts at its end.
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

constexpr int LAUNCHES = 10, ELEMENTS = 256;
static std::atomic<long> ends, wrong;
static std::atomic<bool> stop;
static bool graphs;

__global__ void churn_add(int *to, int value) { to[threadIdx.x] += value; }

static bool work(int value) {
    cudaStream_t stream;
    int *memory = nullptr, result[ELEMENTS];
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) return false;
    bool right = cudaMallocAsync(&memory, sizeof result, stream) == cudaSuccess
        && cudaMemsetAsync(memory, 0, sizeof result, stream) == cudaSuccess;
    if (right && graphs) {
        cudaGraph_t graph;
        cudaGraphExec_t made;
        right = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess;
        for (int at = 0; right && at < LAUNCHES; at++) churn_add<<<1, ELEMENTS, 0, stream>>>(memory, value);
        right = right && cudaStreamEndCapture(stream, &graph) == cudaSuccess && cudaGraphInstantiate(&made, graph, 0) == cudaSuccess
            && cudaGraphLaunch(made, stream) == cudaSuccess && cudaStreamSynchronize(stream) == cudaSuccess;
        if (right) cudaGraphExecDestroy(made), cudaGraphDestroy(graph);
    } else {
        for (int at = 0; at < LAUNCHES; at++) churn_add<<<1, ELEMENTS, 0, stream>>>(memory, value);
    }
    right = right && cudaMemcpyAsync(result, memory, sizeof result, cudaMemcpyDeviceToHost, stream) == cudaSuccess
        && cudaFreeAsync(memory, stream) == cudaSuccess && cudaStreamSynchronize(stream) == cudaSuccess;
    for (int at = 0; right && at < ELEMENTS; at++) right = result[at] == LAUNCHES * value;
    return cudaStreamDestroy(stream) == cudaSuccess && right;
}

static double seconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

int main(int count, char **words) {
    if (count < 3) return 2;
    double end = seconds() + atof(words[1]);
    int width = atoi(words[2]);
    graphs = count > 3 && !strcmp(words[3], "graphs");
    signal(SIGTERM, [](int) { stop = true; });
    if (!work(7)) return 1;
    printf("@ {\"ready\": true}\n");
    fflush(stdout);
    std::thread([] {
        char line[64];
        while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n")) {}
        stop = true;
    }).detach();
    // Each keeper starts one thread after the other.
    std::vector<std::thread> keepers;
    for (int at = 0; at < width; at++)
        keepers.emplace_back([=] {
            for (int turn = 0; !stop && seconds() < end; turn++)
                std::thread([=] { ends++, wrong += !work(1 + (at + turn) % 100); }).join();
        });
    for (auto &keeper : keepers) keeper.join();
    printf("@ {\"ends\": %ld, \"wrong\": %ld}\n", ends.load(), wrong.load());
    return wrong != 0;
}
