// Contexts that come and go: `contexts SECONDS THREADS`.
//
// THREADS threads run at a time. Each makes a context and a module, launches LAUNCHES kernels, checks what they counted, and destroys both;
// as many more launch in the primary context. "end" on standard input, SIGTERM and the end of SECONDS end the program. It answers as
// gpu/kit.py reads it: once the first context has been destroyed, and with its counts at its end.
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

constexpr int LAUNCHES = 50;
static std::atomic<long> ends, wrong;
static std::atomic<bool> stop;

static const char *TEXT = R"(.version 7.0
.target sm_52
.address_size 64
.visible .entry count_up(.param .u64 to) {
  .reg .u64 %a; .reg .u32 %b;
  ld.param.u64 %a, [to];
  cvta.to.global.u64 %a, %a;
  atom.global.add.u32 %b, [%a], 1;
  ret;
})";

// Launches in the current context and checks the result.
static bool launch(CUfunction function, CUstream stream) {
    CUdeviceptr counter = 0;
    unsigned counted = 0;
    bool right = !cuMemAlloc(&counter, sizeof counted) && !cuMemsetD32Async(counter, 0, 1, stream);
    void *arguments[] = {&counter};
    for (int at = 0; right && at < LAUNCHES; at++) right = !cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr);
    right = right && !cuMemcpyDtoHAsync(&counted, counter, sizeof counted, stream) && !cuStreamSynchronize(stream) && counted == LAUNCHES;
    return !cuMemFree(counter) && right;
}

// One context from its start to its end; or the primary one, until the program ends.
static bool work(CUcontext primary) {
    CUdevice device;
    CUcontext context = primary;
    CUmodule module;
    CUfunction function;
    CUstream stream;
    if (cuDeviceGet(&device, 0) || (primary ? cuCtxSetCurrent(primary) : cuCtxCreate(&context, 0, 0, device))) return false;
    bool right = !cuModuleLoadData(&module, TEXT) && !cuModuleGetFunction(&function, module, "count_up")
        && !cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    do right = right && launch(function, stream);
    while (primary && right && !stop && !usleep(300));
    right = right && !cuStreamDestroy(stream) && !cuModuleUnload(module);
    return (primary || !cuCtxDestroy(context)) && right;
}

static double seconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

int main(int count, char **words) {
    CUdevice device;
    CUcontext primary;
    if (count != 3) return 2;
    double end = seconds() + atof(words[1]);
    signal(SIGTERM, [](int) { stop = true; });
    if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&primary, device) || !work(nullptr)) return 1;
    printf("@ {\"ready\": true}\n");
    fflush(stdout);
    std::thread([] {
        char line[64];
        while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n")) {}
        stop = true;
    }).detach();
    std::vector<std::thread> threads;
    for (int at = 0; at < atoi(words[2]); at++) {
        threads.emplace_back([=] { while (!stop && seconds() < end) ends++, wrong += !work(nullptr); });
        threads.emplace_back([=] { wrong += !work(primary); });
    }
    while (!stop && seconds() < end) usleep(10000);
    stop = true;
    for (auto &thread : threads) thread.join();
    printf("@ {\"ends\": %ld, \"wrong\": %ld}\n", ends.load(), wrong.load());
    return wrong != 0;
}
