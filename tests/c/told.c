// told LIBRARY KERNELS: makes calls of HIP, HSA and ROCTx (from LIBRARY) and prints each, with its
// arguments and what it returned, as "call TID FUNCTION ARGUMENT... -> RESULT". Commands, each
// answered with itself:
//   round N   N rounds
//   stop      hipSetDevice(98)
//   block     a thread begins to wait for a signal; unblock ends that
//   quit
#include "hip_kit.h"
#include <dlfcn.h>
#include <hsa/hsa.h>
#include <inttypes.h>
#include <sys/syscall.h>

static void (*mark)(const char *), (*stop)(uint64_t);
static int (*push)(const char *), (*pop)(void);
static uint64_t (*start)(const char *);
static long tid;

#define TOLD(result, function, format, ...) say("call %ld " function " " format "-> %ld", tid, __VA_ARGS__, (long)(result))
#define P(pointer) (uintptr_t)(pointer)
#define X "%#" PRIxPTR " "

static void round_of_calls(kernels_t *kernels, work_t *work, float *host) {
  static int value;
  static void *memory;
  static hipPitchedPtr pitched;
  static hsa_signal_t signal;
  int n = ELEMENTS;
  void *arguments[] = {&work->a, &work->b, &work->c, &n};
  TOLD(push("a range"), "roctxRangePushA", "%s ", "a range");
  TOLD(hipSetDevice(99), "hipSetDevice", "%d ", 99);
  TOLD(hipDeviceGetAttribute(&value, hipDeviceAttributeWarpSize, 0), "hipDeviceGetAttribute", X "%d %d ", P(&value), hipDeviceAttributeWarpSize, 0);
  TOLD(hipMalloc(&memory, 12345), "hipMalloc", X "%d ", P(&memory), 12345);
  TOLD(hipMemcpyAsync(memory, host, 12340, hipMemcpyHostToDevice, work->stream), "hipMemcpyAsync", X X "%d %d " X, P(memory), P(host), 12340,
       hipMemcpyHostToDevice, P(work->stream));
  TOLD(hipMalloc3D(&pitched, (hipExtent){64, 7, 3}), "hipMalloc3D", X "{%d, %d, %d} ", P(&pitched), 64, 7, 3);
  TOLD(hipModuleLaunchKernel(kernels->vadd, 5, 1, 1, 64, 1, 1, 0, work->stream, arguments, NULL), "hipModuleLaunchKernel",
       X "%d %d %d %d %d %d %d " X X "0x0 ", P(kernels->vadd), 5, 1, 1, 64, 1, 1, 0, P(work->stream), P(arguments));
  TOLD(hipStreamSynchronize(work->stream), "hipStreamSynchronize", X, P(work->stream));
  TOLD(hipFree(pitched.ptr), "hipFree", X, P(pitched.ptr));
  TOLD(hipFree(memory), "hipFree", X, P(memory));
  TOLD(hsa_signal_create(-7, 0, NULL, &signal), "hsa_signal_create", "%d %d 0x0 " X, -7, 0, P(&signal));
  TOLD(hsa_signal_load_relaxed(signal), "hsa_signal_load_relaxed", "{%" PRIu64 "} ", signal.handle);
  // Not among the operations that the tool asks for.
  hsa_signal_store_relaxed(signal, 5);
  TOLD(hsa_signal_destroy(signal), "hsa_signal_destroy", "{%" PRIu64 "} ", signal.handle);
  uint64_t id = start("until later");
  TOLD(id, "roctxRangeStartA", "%s ", "until later");
  mark("a mark");
  TOLD(0, "roctxMarkA", "%s ", "a mark");
  stop(id);
  TOLD(0, "roctxRangeStop", "%" PRIu64 " ", id);
  say("call %ld roctxRangePop -> %d", tid, pop());
}

static hsa_signal_t gate;
static void *waits(void *argument) {
  hsa_signal_wait_scacquire(gate, HSA_SIGNAL_CONDITION_EQ, 0, UINT64_MAX, HSA_WAIT_STATE_BLOCKED);
  return argument;
}

int main(int argc, char **argv) {
  if (argc < 3) fail("usage: told LIBRARY KERNELS");
  void *library = dlopen(argv[1], RTLD_NOW);
  if (!library) fail("%s", dlerror());
  *(void **)&mark = dlsym(library, "roctxMarkA");
  *(void **)&push = dlsym(library, "roctxRangePushA");
  *(void **)&pop = dlsym(library, "roctxRangePop");
  *(void **)&start = dlsym(library, "roctxRangeStartA");
  *(void **)&stop = dlsym(library, "roctxRangeStop");
  if (!mark || !push || !pop || !start || !stop) fail("not a ROCTx library");
  tid = syscall(SYS_gettid);
  kernels_t kernels = load_kernels(argv[2]);
  work_t work = new_work();
  float *host = calloc(ELEMENTS, sizeof *host);
  say("ready");
  char line[64];
  unsigned number;
  pthread_t thread = 0;
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (sscanf(line, "round %u", &number) == 1) {
      for (unsigned n = 0; n < number; n++) round_of_calls(&kernels, &work, host);
    } else if (!strcmp(line, "stop")) {
      TOLD(hipSetDevice(98), "hipSetDevice", "%d ", 98);
    } else if (!strcmp(line, "block")) {
      if (hsa_signal_create(1, 0, NULL, &gate)) fail("hsa_signal_create failed");
      thread = start_thread(waits, NULL);
    } else if (!strcmp(line, "unblock")) {
      hsa_signal_store_screlease(gate, 0);
      pthread_join(thread, NULL);
      hsa_signal_destroy(gate);
    } else {
      fail("unknown command \"%s\"", line);
    }
    say("%s", line);
  }
  say("done");
  return 0;
}
