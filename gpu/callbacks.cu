// Whether a subscription with callbacks on launches may come and go alongside launching threads: `callbacks LIBCUPTI SECONDS MODE`, with MODE
// "callbacks" (subscribe, callbacks on launches, kernel records, everything off again, finalize), "kept" (the same without finalize) or "none"
// (kernel records and finalize alone). Eight threads launch and check what their kernels computed. Prints the cycles and what was counted as one
// line of JSON; a crash or a wrong result ends it otherwise. No code of ours is in the process.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

typedef void (*Callback)(void *, int, uint32_t, const void *);
// cuLaunchKernel, cuLaunchKernel_ptsz, cuLaunchCooperativeKernel, cuGraphLaunch, cuLaunchKernelEx, cuLaunchKernelEx_ptsz
static const uint32_t LAUNCHES[] = {307, 442, 477, 514, 652, 653};
static const int DRIVER_API = 1, CONCURRENT_KERNEL = 10, ENTER = 0;
static std::atomic<bool> stop;
static std::atomic<unsigned long> launched, seen, inside, bytes, wrong, late;
static std::atomic<bool> on;

__global__ void add(unsigned *value) { atomicAdd(value, 1); }

static void called(void *, int, uint32_t, const void *data) {
  inside++;
  if (*(const int *)data == ENTER) (on ? seen : late)++;
  inside--;
}
static void requested(uint8_t **buffer, size_t *size, size_t *most) {
  *size = 1 << 20, *most = 0;
  if (posix_memalign((void **)buffer, 64, *size)) *buffer = 0, *size = 0;
}
static void completed(void *, uint32_t, uint8_t *buffer, size_t, size_t valid) { bytes += valid, free(buffer); }

static void launches() {
  unsigned *value, result, mine = 0;
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  cudaMalloc(&value, 4);
  cudaMemset(value, 0, 4);
  cudaDeviceSynchronize();
  while (!stop) {
    for (int n = 0; n < 200; n++) add<<<1, 1, 0, stream>>>(value);
    mine += 200, launched += 200;
    if (cudaMemcpyAsync(&result, value, 4, cudaMemcpyDeviceToHost, stream) || cudaStreamSynchronize(stream) || result != mine) {
      wrong++;
      return;
    }
  }
}

static double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + time.tv_nsec * 1e-9;
}

int main(int count, char **word) {
  if (count != 4) return 2;
  void *cupti = dlopen(word[1], RTLD_NOW);
  if (!cupti) return fprintf(stderr, "%s\n", dlerror()), 2;
#define FIND(name, ...) auto name = (int (*)(__VA_ARGS__))dlsym(cupti, #name)
  FIND(cuptiSubscribe, void **, Callback, void *);
  FIND(cuptiUnsubscribe, void *);
  FIND(cuptiEnableCallback, uint32_t, void *, int, uint32_t);
  FIND(cuptiActivityEnable, int);
  FIND(cuptiActivityDisable, int);
  FIND(cuptiActivityRegisterCallbacks, void *, void *);
  FIND(cuptiActivityFlushAll, uint32_t);
  FIND(cuptiFinalize);
  bool calls = strcmp(word[3], "none"), finalize = strcmp(word[3], "kept");
  if (cudaFree(0)) return 2;
  std::vector<std::thread> threads;
  for (int n = 0; n < 8; n++) threads.emplace_back(launches);
  double end = now() + atof(word[2]);
  unsigned long cycles = 0;
  int error = 0;
#define CHECK(call) do { int result = (call); if (result && !error) error = result, fprintf(stderr, "%s: %d in cycle %lu\n", #call, result, cycles); } while (0)
  while (now() < end && !wrong) {
    void *handle = 0;
    if (calls) {
      CHECK(cuptiSubscribe(&handle, called, 0));
      on = true;
      for (uint32_t id : LAUNCHES) CHECK(cuptiEnableCallback(1, handle, DRIVER_API, id));
    }
    CHECK(cuptiActivityRegisterCallbacks((void *)requested, (void *)completed));
    CHECK(cuptiActivityEnable(CONCURRENT_KERNEL));
    usleep(20000);
    if (calls) {
      for (uint32_t id : LAUNCHES) CHECK(cuptiEnableCallback(0, handle, DRIVER_API, id));
      CHECK(cuptiUnsubscribe(handle));
      on = false;
    }
    CHECK(cuptiActivityDisable(CONCURRENT_KERNEL));
    usleep(20000);
    while (inside) usleep(100);
    CHECK(cuptiActivityFlushAll(1));
    if (finalize) CHECK(cuptiFinalize());
    cycles++;
  }
  stop = true;
  for (auto &thread : threads) thread.join();
  printf("{\"mode\": \"%s\", \"cycles\": %lu, \"launched\": %lu, \"seen\": %lu, \"late\": %lu, \"bytes\": %lu, \"wrong\": %lu, \"error\": %d}\n", word[3],
         cycles, launched.load(), seen.load(), late.load(), bytes.load(), wrong.load(), error);
  return wrong != 0;
}
