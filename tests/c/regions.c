// regions LIBRARY KERNELS: a program that pauses and resumes its profiler through the ROCTx library LIBRARY, and knows what it did
// in which state. Commands:
//   inside N      N rounds of work with the kernel vadd, each in a range "inside"; a round is 1 kernel, 2 copies, an allocation and
//                 its release
//   outside N     the same with the kernel scale, in ranges "outside"
//   pause, resume calls of the main thread, for all threads
//   thread pause, thread resume
//                 calls of another thread, which name that thread
//   push TEXT, pop, start TEXT, stop
//                 a range of the main thread, and one that any thread may end
//   parallel N M  N threads at once, each M times: resume, a launch of vadd on a stream of its own, pause
//   into          an HSA call that calls back, and the callback pauses and makes another HSA call
//   out           the same, begun in the pause; the callback resumes first
//   tid           "tid TID"
//   quit
// Each but "quit" answers with its first word when it is done.
#include "hip_kit.h"
#include <dlfcn.h>
#include <hsa/hsa.h>
#include <sys/syscall.h>

static void (*roctxMarkA)(const char *);
static int (*roctxRangePushA)(const char *), (*roctxRangePop)(void);
static uint64_t (*roctxRangeStartA)(const char *);
static void (*roctxRangeStop)(uint64_t);
static int (*roctxProfilerPause)(uint64_t), (*roctxProfilerResume)(uint64_t);

static void find(void *library) {
  // The old library has neither pause nor resume.
#define FIND(name, needed) \
  if (!(*(void **)&name = dlsym(library, #name)) && needed) fail("no %s", #name);
  FIND(roctxMarkA, true)
  FIND(roctxRangePushA, true)
  FIND(roctxRangePop, true)
  FIND(roctxRangeStartA, true)
  FIND(roctxRangeStop, true)
  FIND(roctxProfilerPause, false)
  FIND(roctxProfilerResume, false)
}

static kernels_t kernels;
static work_t work;

static void round_of(bool inside, unsigned number) {
  void *memory;
  roctxRangePushA(inside ? "inside" : "outside");
  roctxMarkA(inside ? "mark inside" : "mark outside");
  HIP(hipMalloc(&memory, 1 << 20));
  if (inside) {
    launch_vadd(&kernels, &work, 4);
  } else {
    launch_scale(&kernels, &work, 4);
  }
  round_trip(&work, number);
  HIP(hipFree(memory));
  roctxRangePop();
}

static void control(bool pause, uint64_t thread) {
  if ((pause ? roctxProfilerPause : roctxProfilerResume)(thread)) fail("a call failed");
}

static void *control_here(void *pause) {
  control(pause != NULL, (uint64_t)syscall(SYS_gettid));
  return NULL;
}

static void *parallel(void *argument) {
  work_t own = new_work();
  for (unsigned n = (unsigned)(uintptr_t)argument; n; n--) {
    control(false, 0);
    launch_vadd(&kernels, &own, 4);
    HIP(hipStreamSynchronize(own.stream));
    control(true, 0);
  }
  end_work(&own);
  return NULL;
}

static hsa_status_t on_agent(hsa_agent_t agent, void *pause) {
  char name[64];
  control(pause != NULL, 0);
  return hsa_agent_get_info(agent, HSA_AGENT_INFO_NAME, name) == HSA_STATUS_SUCCESS ? HSA_STATUS_INFO_BREAK : HSA_STATUS_ERROR;
}

int main(int argc, char **argv) {
  if (argc < 3) fail("usage: regions LIBRARY KERNELS");
  void *library = dlopen(argv[1], RTLD_NOW);
  if (!library) fail("%s", dlerror());
  find(library);
  kernels = load_kernels(argv[2]);
  work = new_work();
  uint64_t id = 0;
  say("ready");
  char line[64];
  unsigned number, times;
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (sscanf(line, "inside %u", &number) == 1) {
      for (unsigned n = 0; n < number; n++) round_of(true, n);
    } else if (sscanf(line, "outside %u", &number) == 1) {
      for (unsigned n = 0; n < number; n++) round_of(false, n);
    } else if (!strcmp(line, "pause") || !strcmp(line, "resume")) {
      control(line[0] == 'p', 0);
    } else if (!strncmp(line, "thread ", 7)) {
      pthread_join(start_thread(control_here, line[7] == 'p' ? line : NULL), NULL);
    } else if (!strncmp(line, "push ", 5)) {
      roctxRangePushA(line + 5);
    } else if (!strcmp(line, "pop")) {
      if (roctxRangePop() < 0) fail("no range is open");
    } else if (!strncmp(line, "start ", 6)) {
      id = roctxRangeStartA(line + 6);
    } else if (!strcmp(line, "stop")) {
      roctxRangeStop(id);
    } else if (sscanf(line, "parallel %u %u", &number, &times) == 2 && number <= 16) {
      pthread_t threads[16];
      for (unsigned n = 0; n < number; n++) threads[n] = start_thread(parallel, (void *)(uintptr_t)times);
      for (unsigned n = 0; n < number; n++) pthread_join(threads[n], NULL);
    } else if (!strcmp(line, "into") || !strcmp(line, "out")) {
      if (hsa_iterate_agents(on_agent, line[0] == 'i' ? line : NULL) != HSA_STATUS_INFO_BREAK) fail("hsa_iterate_agents");
    } else if (!strcmp(line, "tid")) {
      printf("tid %ld\n", syscall(SYS_gettid));
    } else {
      fail("unknown command \"%s\"", line);
    }
    say("%s", strtok(line, " "));
  }
  end_work(&work);
  HIP(hipModuleUnload(kernels.module));
  say("done");
  return 0;
}
