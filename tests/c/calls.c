// calls KERNELS: makes API calls and counts them itself: the truth that a trace of calls is compared with. Commands:
//   calls N       N rounds of everything on the main thread
//   workers N M   N threads at once, each M rounds of hipGetDevice and hipGetLastError; each says "worker TID M"
//   short N       N threads, each of which calls hipGetLastError twice and ends
//   hsa N         a thread that uses only HSA: N rounds of signal_create, load, store, destroy; says "only TID N"
//   tight N       N times hipGetLastError on the main thread as fast as may be; says "took N NS NS-OF-CPU"
//   launches N    N kernels on the main thread as fast as may be; says "took N NS-OF-CPU"; then waits for them
//   events N      an event is recorded N times in a row on the main thread; says "took N NS-OF-CPU"; then waits for it
//   tables        one line "table NAME ADDRESS SIZE" per live API table
//   counts        "counts NAME=N ...": all calls so far
//   quit
// Each but "quit" answers with its name when it is done.
#include "hip_kit.h"
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>
#include <sys/syscall.h>
#include <time.h>

#define COUNTED(X)                                                                                                       \
  X(hipGetDevice) X(hipSetDevice) X(hipGetLastError) X(hipMalloc) X(hipFree) X(hipMemcpyAsync) X(hipModuleLaunchKernel) \
  X(hipStreamSynchronize) X(hipEventRecord) X(hipEventSynchronize) X(hipDeviceGetAttribute) X(hsa_signal_create)        \
  X(hsa_signal_load_relaxed) X(hsa_signal_store_relaxed) X(hsa_signal_destroy)

#define NUMBER(name) N_##name,
enum { COUNTED(NUMBER) COUNT };
static atomic_ulong count[COUNT];
#define NAME(name) #name,
static const char *names[COUNT] = {COUNTED(NAME)};
// A call that is counted: the count is up before the call begins.
#define C(name) (atomic_fetch_add(&count[N_##name], 1), name)

static kernels_t kernels;
static work_t work;
static hipEvent_t event;
static float *host;

static void round_of_calls(void) {
  int device, value, n = ELEMENTS;
  float factor = 2, *more;
  HIP(C(hipGetDevice)(&device));
  HIP(C(hipSetDevice)(device));
  HIP(C(hipDeviceGetAttribute)(&value, hipDeviceAttributeWarpSize, device));
  HIP(C(hipMalloc)((void **)&more, 4096));
  HIP(C(hipMemcpyAsync)(work.a, host, ELEMENTS * sizeof(float), hipMemcpyHostToDevice, work.stream));
  void *vadd[] = {&work.a, &work.b, &work.c, &n}, *scale[] = {&work.c, &factor, &n};
  HIP(C(hipModuleLaunchKernel)(kernels.vadd, 5, 1, 1, 64, 1, 1, 0, work.stream, vadd, NULL));
  HIP(C(hipModuleLaunchKernel)(kernels.scale, 6, 1, 1, 32, 1, 1, 128, work.stream, scale, NULL));
  HIP(C(hipEventRecord)(event, work.stream));
  HIP(C(hipEventSynchronize)(event));
  HIP(C(hipMemcpyAsync)(host, work.a, ELEMENTS * sizeof(float), hipMemcpyDeviceToHost, work.stream));
  HIP(C(hipStreamSynchronize)(work.stream));
  HIP(C(hipFree)(more));
  HIP(C(hipGetLastError)());
}

static void *worker(void *argument) {
  unsigned rounds = (unsigned)(uintptr_t)argument;
  int device;
  for (unsigned n = 0; n < rounds; n++) {
    HIP(C(hipGetDevice)(&device));
    HIP(C(hipGetLastError)());
  }
  say("worker %ld %u", syscall(SYS_gettid), rounds);
  return NULL;
}

static void *short_life(void *argument) {
  HIP(C(hipGetLastError)());
  HIP(C(hipGetLastError)());
  return argument;
}

static void *only_hsa(void *argument) {
  unsigned rounds = (unsigned)(uintptr_t)argument;
  for (unsigned n = 0; n < rounds; n++) {
    hsa_signal_t signal;
    if (C(hsa_signal_create)(1, 0, NULL, &signal)) fail("hsa_signal_create failed");
    if (C(hsa_signal_load_relaxed)(signal) != 1) fail("a signal has another value");
    C(hsa_signal_store_relaxed)(signal, 3);
    if (C(hsa_signal_destroy)(signal)) fail("hsa_signal_destroy failed");
  }
  say("only %ld %u", syscall(SYS_gettid), rounds);
  return NULL;
}

static uint64_t now(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void tight(unsigned long rounds) {
  uint64_t began = now(CLOCK_MONOTONIC), cpu = now(CLOCK_THREAD_CPUTIME_ID);
  for (unsigned long n = 0; n < rounds; n++) (void)hipGetLastError();
  cpu = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
  uint64_t took = now(CLOCK_MONOTONIC) - began;
  atomic_fetch_add(&count[N_hipGetLastError], rounds);
  say("took %lu %lu %lu", rounds, took, cpu);
}

static void launches(unsigned long rounds) {
  uint64_t cpu = now(CLOCK_THREAD_CPUTIME_ID);
  for (unsigned long n = 0; n < rounds; n++) launch_vadd(&kernels, &work, 5);
  cpu = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
  atomic_fetch_add(&count[N_hipModuleLaunchKernel], rounds);
  HIP(C(hipStreamSynchronize)(work.stream));
  say("took %lu %lu", rounds, cpu);
}

static void events(unsigned long rounds) {
  uint64_t cpu = now(CLOCK_THREAD_CPUTIME_ID);
  for (unsigned long n = 0; n < rounds; n++) HIP(hipEventRecord(event, work.stream));
  cpu = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
  atomic_fetch_add(&count[N_hipEventRecord], rounds);
  HIP(C(hipEventSynchronize)(event));
  say("took %lu %lu", rounds, cpu);
}

// A HIP function calls a function that gives the live table; an HSA function loads a pointer to it.
// A decoder of its own, so that a mistake in the profiler's is not repeated here.
static void *hip_table(const void *function) {
  const unsigned char *code = function;
  for (int n = 0; n < 64; n++)
    if (code[n] == 0xe8) {
      int32_t displacement;
      memcpy(&displacement, code + n + 1, 4);
      return ((void *(*)(void))(uintptr_t)(code + n + 5 + displacement))();
    }
  return NULL;
}

static void *hsa_table(const void *function) {
  const unsigned char *code = function, endbr[4] = {0xf3, 0x0f, 0x1e, 0xfa}, load[3] = {0x48, 0x8b, 0x05};
  if (!memcmp(code, endbr, 4)) code += 4;
  if (memcmp(code, load, 3)) return NULL;
  int32_t displacement;
  memcpy(&displacement, code + 3, 4);
  return *(void **)(uintptr_t)(code + 7 + displacement);
}

extern void __hipRegisterFunction(void);

static void tables(void) {
  const struct { const char *name; void *table; bool hsa; } table[] = {
      {"hip", hip_table((const void *)hipGetLastError), false},
      {"hip_compiler", hip_table((const void *)__hipRegisterFunction), false},
      {"hsa_core", hsa_table((const void *)hsa_signal_create), true},
      {"hsa_amd", hsa_table((const void *)hsa_amd_signal_create), true},
  };
  for (int n = 0; n < 4; n++) {
    uint64_t first;
    if (!table[n].table) fail("the table %s cannot be found", table[n].name);
    memcpy(&first, table[n].table, 8);
    say("table %s %lu %lu", table[n].name, (unsigned long)(uintptr_t)table[n].table, (unsigned long)(table[n].hsa ? first >> 32 : first));
  }
}

static void counts(void) {
  printf("counts");
  for (int n = 0; n < COUNT; n++) printf(" %s=%lu", names[n], atomic_load(&count[n]));
  printf("\n");
  fflush(stdout);
}

static void workers(unsigned number, void *(*body)(void *), unsigned rounds, unsigned at_once) {
  pthread_t thread[64];
  while (number > 0) {
    unsigned some = number < at_once ? number : at_once;
    for (unsigned n = 0; n < some; n++) thread[n] = start_thread(body, (void *)(uintptr_t)rounds);
    for (unsigned n = 0; n < some; n++) pthread_join(thread[n], NULL);
    number -= some;
  }
}

int main(int argc, char **argv) {
  if (argc < 2) fail("usage: calls KERNELS");
  kernels = load_kernels(argv[1]);
  work = new_work();
  HIP(hipEventCreate(&event));
  host = calloc(ELEMENTS, sizeof(float));
  // Everything once, so that what the runtime makes at first use is there.
  round_of_calls();
  say("ready");
  char line[64];
  unsigned number, rounds;
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (sscanf(line, "calls %u", &number) == 1) {
      for (unsigned n = 0; n < number; n++) round_of_calls();
      say("calls");
    } else if (sscanf(line, "workers %u %u", &number, &rounds) == 2 && number <= 64) {
      workers(number, worker, rounds, 64);
      say("workers");
    } else if (sscanf(line, "short %u", &number) == 1) {
      workers(number, short_life, 0, 8);
      say("short");
    } else if (sscanf(line, "hsa %u", &number) == 1) {
      workers(1, only_hsa, number, 1);
      say("hsa");
    } else if (sscanf(line, "tight %u", &number) == 1) {
      tight(number);
      say("tight");
    } else if (sscanf(line, "launches %u", &number) == 1) {
      launches(number);
      say("launches");
    } else if (sscanf(line, "events %u", &number) == 1) {
      events(number);
      say("events");
    } else if (!strcmp(line, "tables")) {
      tables();
      say("tables");
    } else if (!strcmp(line, "counts")) {
      counts();
    } else {
      fail("unknown command \"%s\"", line);
    }
  }
  counts();
  HIP(hipEventDestroy(event));
  end_work(&work);
  HIP(hipModuleUnload(kernels.module));
  say("done");
  return 0;
}
