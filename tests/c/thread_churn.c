// thread_churn [KERNELS]: threads that come and go. Each makes a stream, allocates, copies there, fills the first half, launches a
// kernel, copies back, waits, frees, destroys its stream and ends; a new one then takes its place. Compiled against the HIP
// stand-in, AMD's HIP (KERNELS: the code object) and the CUDA stand-in.
//
// Commands: "go THREADS COUNT" has THREADS at a time until COUNT have ended; "start THREADS" does so until "stop". "go" and "stop"
// answer with the counts since the beginning: "ended N kernels K copies C sets S bad B", B being the number of threads whose bytes
// did not come back as they were sent. "quit" ends the program.
#if defined __HIP_PLATFORM_AMD__
// A call of AMD's HIP on the null stream uses streams that another thread has destroyed (lab/README.md), and the modelled GPU does not
// carry out kernels, by one of which AMD's HIP fills memory. So all calls name a stream, and bytes that were set are not looked at.
#include "hip_kit.h"
static kernels_t kernels;
enum { ON_NULL = 0, SETS = 0 };
#elif __has_include("hip.h")
#include "hip.h"
#include "kit.h"
KERNEL(step, "_Z4stepPfi")
enum { ON_NULL = 1, SETS = 1 };
#else
#include <cuda.h>
#include "kit.h"
KERNEL(step, "_Z4stepPfi")
enum { ON_NULL = 1, SETS = 1 };
#define hipError_t cudaError_t
#define hipStream_t cudaStream_t
#define hipStreamCreate cudaStreamCreate
#define hipStreamSynchronize cudaStreamSynchronize
#define hipStreamDestroy cudaStreamDestroy
#define hipMalloc cudaMalloc
#define hipFree cudaFree
#define hipMemcpyAsync cudaMemcpyAsync
#define hipMemcpyHostToDevice cudaMemcpyHostToDevice
#define hipMemcpyDeviceToHost cudaMemcpyDeviceToHost
#define hipMemsetAsync cudaMemsetAsync
#define hipLaunchKernel cudaLaunchKernel
#define NO_EVENTS
#endif

#define MUST(call)                                                  \
  do {                                                              \
    int error_ = (call);                                            \
    if (error_) fail("line %d, %s: %d", __LINE__, #call, error_);   \
  } while (0)

// AMD's HIP copies up to 16 KiB by a kernel.
enum { PIECE = 64 << 10, MOST = 256 };

static atomic_ulong ended, launched, copied, set, bad;
static unsigned threads;
static unsigned long last;  // how many are to end, 0: until `stopping`
static atomic_bool stopping;
static pthread_t driver;

static void launch(unsigned groups, hipStream_t stream, void *at) {
#if defined __HIP_PLATFORM_AMD__
  int n = 0;
  void *arguments[] = {&at, &at, &at, &n};
  MUST(hipModuleLaunchKernel(kernels.vadd, groups, 1, 1, 64, 1, 1, 0, stream, arguments, NULL));
#else
  (void)at;
  dim3 grid = {groups, 1, 1}, block = {64, 1, 1};
  MUST(hipLaunchKernel((const void *)step, grid, block, NULL, 0, stream));
#endif
  launched++;
}

static void *work(void *argument) {
  unsigned number = (unsigned)(uintptr_t)argument;
  size_t bytes = (1 + number % 3) * PIECE, half = bytes / 2;
  unsigned char *out = malloc(bytes), *back = malloc(bytes), *at, filled = (unsigned char)(number * 31 + 1);
  hipStream_t stream, second;
  if (!out || !back) fail("malloc");
  for (size_t i = 0; i < bytes; i++) out[i] = (unsigned char)(number * 7 + i * 3 + i / 256);
  MUST(hipStreamCreate(&stream));
  second = stream;
  MUST(hipMalloc((void **)&at, bytes));
  MUST(hipMemcpyAsync(at, out, bytes, hipMemcpyHostToDevice, stream));
  // On the null stream it comes after what the stream has to do.
  MUST(hipMemsetAsync(at, filled, half, ON_NULL && number % 4 == 3 ? NULL : stream));
  launch(1 + number % 5, stream, at);
#ifndef NO_EVENTS
  // Half of the threads copy back on a second stream, which waits for an event that is gone before it has happened.
  if (number % 2) {
    hipEvent_t event;
    MUST(hipStreamCreate(&second));
    MUST(hipEventCreate(&event));
    MUST(hipEventRecord(event, stream));
    MUST(hipStreamWaitEvent(second, event, 0));
    MUST(hipEventDestroy(event));
  }
#endif
  MUST(hipMemcpyAsync(back, at, bytes, hipMemcpyDeviceToHost, second));
  MUST(hipStreamSynchronize(second));
  bool wrong = memcmp(out + half, back + half, half);
  for (size_t i = 0; SETS && i < half; i++) wrong |= back[i] != filled;
  bad += wrong;
  copied += 2;
  set++;
  MUST(hipFree(at));
  if (second != stream) MUST(hipStreamDestroy(second));
  MUST(hipStreamDestroy(stream));
  free(out);
  free(back);
  ended++;
  return NULL;
}

static void *drive(void *unused) {
  static unsigned number;
  pthread_t running[MOST];
  unsigned long until = ended + last;
  for (unsigned n = 0; n < threads; n++) running[n] = start_thread(work, (void *)(uintptr_t)number++);
  for (unsigned n = 0; last ? ended < until : !stopping; n = (n + 1) % threads) {
    pthread_join(running[n], NULL);
    running[n] = start_thread(work, (void *)(uintptr_t)number++);
  }
  for (unsigned n = 0; n < threads; n++) pthread_join(running[n], NULL);
  return unused;
}

static void begin(void) {
  if (!threads || threads > MOST) fail("%u threads", threads);
  stopping = false;
  driver = start_thread(drive, NULL);
}

static void end(const char *word) {
  pthread_join(driver, NULL);
  say("%s ended %lu kernels %lu copies %lu sets %lu bad %lu", word, ended, launched, copied, set, bad);
}

int main(int argc, char **argv) {
  (void)argc, (void)argv;
#if defined __HIP_PLATFORM_AMD__
  if (argc < 2) fail("usage: thread_churn KERNELS");
  kernels = load_kernels(argv[1]);
#endif
  say("ready");
  char line[64];
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (sscanf(line, "go %u %lu", &threads, &last) == 2 && last) {
      begin();
      end("go");
    } else if (sscanf(line, "start %u", &threads) == 1) {
      last = 0;
      begin();
      say("start");
    } else if (!strcmp(line, "stop")) {
      stopping = true;
      end("stop");
    } else {
      fail("unknown command \"%s\"", line);
    }
  }
  say("done");
  return 0;
}
