// CUPTI without midair, used and finalized again and again alongside threads that make and destroy contexts: `finalize SECONDS THREADS [apart]`.
//
// With "apart" no context is being made or destroyed while CUPTI is finalized. The program says after how many cycles it died, or that it
// did not. CUPTI is the one that LD_LIBRARY_PATH leads to.
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cuda.h>
#include <cupti.h>
#include <mutex>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

static std::mutex lock;
static std::condition_variable changed;
static bool closed, apart;
static int inside;
static std::atomic<bool> stop;
static std::atomic<long> made, wrong, cycles;

// A call that makes or destroys a context.
struct Call {
    Call() {
        std::unique_lock<std::mutex> held(lock);
        changed.wait(held, [] { return !closed; });
        inside++;
    }
    ~Call() {
        std::lock_guard<std::mutex> held(lock);
        inside--;
        changed.notify_all();
    }
};

static void work() {
    CUdevice device;
    CUcontext context;
    CUdeviceptr at;
    wrong += cuDeviceGet(&device, 0) != 0;
    while (!stop) {
        {
            Call call;
            wrong += cuCtxCreate(&context, 0, 0, device) != 0;
        }
        wrong += cuMemAlloc(&at, 4) || cuMemsetD32(at, 0, 1) || cuMemFree(at);
        {
            Call call;
            wrong += cuCtxDestroy(context) != 0;
        }
        made++;
    }
}

static void CUPTIAPI request(uint8_t **buffer, size_t *size, size_t *records) {
    *size = 1 << 20;
    *buffer = static_cast<uint8_t *>(aligned_alloc(8, *size));
    *records = 0;
}

static void CUPTIAPI complete(CUcontext, uint32_t, uint8_t *buffer, size_t, size_t) { free(buffer); }

static void finalize() {
    std::unique_lock<std::mutex> held(lock);
    if (apart) {
        closed = true;
        changed.wait(held, [] { return !inside; });
    }
    held.unlock();
    wrong += cuptiFinalize() != CUPTI_SUCCESS;
    held.lock();
    closed = false;
    changed.notify_all();
}

int main(int count, char **words) {
    if (count < 3) return 2;
    apart = count > 3;
    for (int end : {SIGSEGV, SIGABRT})
        signal(end, [](int) {
            dprintf(1, "died in cycle %ld, after %ld contexts\n", cycles.load(), made.load());
            _exit(1);
        });
    if (cuInit(0)) return 1;
    std::vector<std::thread> threads;
    for (int at = 0; at < atoi(words[2]); at++) threads.emplace_back(work);
    const CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET};
    for (time_t end = time(nullptr) + atoi(words[1]); time(nullptr) < end; cycles++) {
        cuptiActivityRegisterCallbacks(request, complete);
        for (auto kind : kinds) wrong += cuptiActivityEnable(kind) != CUPTI_SUCCESS;
        usleep(60000);
        for (auto kind : kinds) wrong += cuptiActivityDisable(kind) != CUPTI_SUCCESS;
        usleep(5000);
        cuptiActivityFlushAll(1);
        usleep(5000);
        finalize();
        usleep(20000);
    }
    stop = true;
    for (auto &thread : threads) thread.join();
    printf("whole after %ld cycles and %ld contexts, %ld wrong\n", cycles.load(), made.load(), wrong.load());
    return wrong != 0;
}
