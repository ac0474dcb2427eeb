// Whether threads that call CUDA stand CUPTI's first use: `start LIBCUPTI MODE CYCLES DELAY_US`, with MODE "bare" (CUPTI as it is) or "closed"
// (the driver's pointer to CUPTI's callback leads through a function that returns at once while CUPTI is first used). 14 threads capture, launch
// and destroy graphs and check their results; CUPTI is used, finalized and used again. It waits DELAY_US before it gets the memory of its table
// of callbacks, which it makes at its first use: 13.5 lets the callback read the table before (CUDA-043). No code of midair is in the process.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <thread>
#include <unistd.h>
#include <vector>

static const int THREADS = 14, CONCURRENT_KERNEL = 10;
struct Range {
  uintptr_t start, end;
  bool has(uintptr_t at) const { return at >= start && at < end; }
};
static Range code;
static uintptr_t driver;
static std::vector<Range> data;
static std::atomic<int> ready, delay;
static std::atomic<bool> stop;
static std::atomic<unsigned long> rounds, wrong, kept_out;

// The table has 1,000 to 4,000 entries of four bytes.
extern "C" void *__libc_calloc(size_t, size_t);
extern "C" void *calloc(size_t count, size_t size) noexcept {
  if (size == 4 && count > 1000 && count < 4000 && code.has((uintptr_t)__builtin_return_address(0))) usleep(delay);
  return __libc_calloc(count, size);
}

__global__ void add(unsigned *value) { atomicAdd(value, 1); }

static void work() {
  unsigned *value, result, mine = 0;
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaMalloc(&value, 4);
  cudaMemsetAsync(value, 0, 4, stream);
  cudaStreamSynchronize(stream);
  // A call on the default stream would end a capture.
  for (ready++; ready < THREADS;) usleep(100);
  while (!stop) {
    cudaGraph_t graph;
    cudaGraphExec_t instance;
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    add<<<1, 1, 0, stream>>>(value);
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiate(&instance, graph, 0);
    cudaGraphLaunch(instance, stream);
    cudaGraphDestroy(graph);
    for (int n = 0; n < 5; n++) add<<<1, 1, 0, stream>>>(value);
    mine += 6, rounds++;
    cudaMemcpyAsync(&result, value, 4, cudaMemcpyDeviceToHost, stream);
    if (cudaStreamSynchronize(stream) || result != mine) wrong++;
    cudaGraphExecDestroy(instance);
  }
}

static void requested(uint8_t **buffer, size_t *size, size_t *most) {
  *size = 1 << 20, *most = 0;
  if (posix_memalign((void **)buffer, 64, *size)) *buffer = 0, *size = 0;
}
static void completed(void *, uint32_t, uint8_t *buffer, size_t, size_t) { free(buffer); }

static int look(dl_phdr_info *info, size_t, void *cupti) {
  bool is_driver = false;
  for (int pass = 0; pass < 2; pass++)
    for (int n = 0; n < info->dlpi_phnum; n++) {
      auto &part = info->dlpi_phdr[n];
      Range range = {info->dlpi_addr + part.p_vaddr, info->dlpi_addr + part.p_vaddr + part.p_memsz};
      if (part.p_type != PT_LOAD) continue;
      if (range.has((uintptr_t)cupti) && (part.p_flags & PF_X)) code = range;
      is_driver |= range.has(driver);
      if (pass && is_driver && (part.p_flags & PF_W)) data.push_back(range);
    }
  return 0;
}

typedef uintptr_t (*Callback)(void *, uintptr_t, uintptr_t, uintptr_t);
static std::atomic<Callback> callback;
static std::atomic<bool> open_;
static std::atomic<int> inside;
static pthread_t user;
static uintptr_t *word;

static uintptr_t relay(void *own, uintptr_t domain, uintptr_t call, uintptr_t arguments) {
  uintptr_t said = 0;
  inside++;
  if (open_ || pthread_equal(pthread_self(), user)) said = callback.load()(own, domain, call, arguments);
  else kept_out++;
  inside--;
  return said;
}

// Replaces the only word of the driver that points into CUPTI's code, and waits until no thread is in CUPTI.
static bool close_callback() {
  std::vector<uintptr_t *> found;
  for (auto &range : data)
    for (auto at = (uintptr_t *)((range.start + 7) & ~7ull); (uintptr_t)(at + 1) < range.end; at++)
      if (code.has(*(volatile uintptr_t *)at)) found.push_back(at);
  if (found.size() != 1) return false;
  word = found[0], callback = (Callback)*word, open_ = true;
  *(volatile uintptr_t *)word = (uintptr_t)relay;
  usleep(1000);
  for (open_ = false; inside;) usleep(20);
  return true;
}
static void open_callback() {
  open_ = true;
  if (word && *word == (uintptr_t)relay) *(volatile uintptr_t *)word = (uintptr_t)callback.load();
  word = 0;
}

int main(int count, char **argument) {
  if (count != 5) return 2;
  void *cupti = dlopen(argument[1], RTLD_NOW);
  if (!cupti || cudaFree(0)) return fprintf(stderr, "%s\n", cupti ? "no GPU" : dlerror()), 2;
#define FIND(name, ...) auto name = (int (*)(__VA_ARGS__))dlsym(cupti, #name)
  FIND(cuptiSupportedDomains, size_t *, void **);
  FIND(cuptiActivityRegisterCallbacks, void *, void *);
  FIND(cuptiActivityEnable, int);
  FIND(cuptiActivityDisable, int);
  FIND(cuptiActivityFlushAll, uint32_t);
  FIND(cuptiFinalize);
  driver = (uintptr_t)dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuInit");
  dl_iterate_phdr(look, (void *)cuptiFinalize);
  std::vector<std::thread> threads;
  for (int n = 0; n < THREADS; n++) threads.emplace_back(work);
  while (ready < THREADS) usleep(1000);
  bool closed = !strcmp(argument[2], "closed");
  unsigned long cycles = 0, unfound = 0;
  int error = 0;
  user = pthread_self(), delay = atoi(argument[4]);
  for (; cycles < strtoul(argument[3], 0, 10) && !error; cycles++) {
    size_t domains;
    void *list;
    if (closed) error |= cuptiSupportedDomains(&domains, &list), unfound += !close_callback();
    error |= cuptiActivityRegisterCallbacks((void *)requested, (void *)completed) | cuptiActivityEnable(CONCURRENT_KERNEL);
    open_callback();
    usleep(15000);
    error |= cuptiActivityDisable(CONCURRENT_KERNEL) | cuptiActivityFlushAll(1);
    unfound += !close_callback();
    usleep(2000);
    error |= cuptiFinalize();
    open_callback();
  }
  stop = true;
  for (auto &thread : threads) thread.join();
  printf("{\"mode\": \"%s\", \"cycles\": %lu, \"rounds\": %lu, \"wrong\": %lu, \"kept_out\": %lu, \"unfound\": %lu, \"error\": %d}\n", argument[2], cycles,
         rounds.load(), wrong.load(), kept_out.load(), unfound, error);
  return wrong || error;
}
