// markers LIBRARY KERNELS: marks and ranges through the ROCTx library LIBRARY, around HIP calls. Commands:
//   nest N        N rounds on the main thread: range "outer N", in it range "inner, "quoted" N", in that mark "mark N" and a HIP
//                 call; range "apart N", begun inside, ended by another thread after all others
//   threads N M   N threads, each M times: range "thread N", in it a mark
//   named N       N times: range "first", in it vadd, range "second" with scale, and vadd again; then vadd in no range
//   open, shut    begins, and ends, one range of each sort
//   deep N        N levels of ranges
//   forget N      N ranges that stay open, each with one in it
//   long N        a mark with a message of N bytes
//   small         one call of each function of the tables for control and names
//   tid           "tid TID"
//   quit
// Each but "quit" answers with its name when it is done.
#include "hip_kit.h"
#include <dlfcn.h>
#include <sys/syscall.h>

#define FUNCTIONS(X)                                                                                        \
  X(void, roctxMarkA, (const char *)) X(int, roctxRangePushA, (const char *)) X(int, roctxRangePop, (void)) \
  X(uint64_t, roctxRangeStartA, (const char *)) X(void, roctxRangeStop, (uint64_t))
#define SMALL(X)                                                                                                 \
  X(int, roctxGetThreadId, (uint64_t *)) X(int, roctxProfilerPause, (uint64_t)) X(int, roctxProfilerResume, (uint64_t)) \
  X(int, roctxNameOsThread, (const char *)) X(int, roctxNameHsaAgent, (const char *, const void *))              \
  X(int, roctxNameHipDevice, (const char *, int)) X(int, roctxNameHipStream, (const char *, const void *))
#define DECLARE(result, name, arguments) static result(*name) arguments;
FUNCTIONS(DECLARE)
SMALL(DECLARE)

static void find(void *library) {
#define FIND(result, name, arguments) \
  if (!(*(void **)&name = dlsym(library, #name))) fail("no %s", #name);
  FUNCTIONS(FIND)
#define LOOK(result, name, arguments) *(void **)&name = dlsym(library, #name);
  SMALL(LOOK)
}

static void *stop(void *id) {
  roctxRangeStop((uint64_t)(uintptr_t)id);
  return NULL;
}

static void nest(unsigned number) {
  char text[64];
  int device;
#define TEXT(...) (snprintf(text, sizeof text, __VA_ARGS__), text)
  if (roctxRangePushA(TEXT("outer %u", number)) != 0) fail("not level 0");
  if (roctxRangePushA(TEXT("inner, \"quoted\" %u", number)) != 1) fail("not level 1");
  uint64_t id = roctxRangeStartA(TEXT("apart %u", number));
  roctxMarkA(TEXT("mark %u", number));
  HIP(hipGetDevice(&device));
  // The text that the ranges were begun with is gone long before they end.
  memset(text, '!', sizeof text);
  if (roctxRangePop() != 1) fail("not level 1");
  if (roctxRangePop() != 0) fail("not level 0");
  if (roctxRangePop() != -1) fail("a range that was not begun");
  pthread_join(start_thread(stop, (void *)(uintptr_t)id), NULL);
}

static atomic_uint started;
static void *thread(void *argument) {
  unsigned rounds = (unsigned)(uintptr_t)argument, number = atomic_fetch_add(&started, 1);
  char text[64];
  for (unsigned n = 0; n < rounds; n++) {
    if (roctxRangePushA(TEXT("thread %u", number)) != 0) fail("not level 0");
    roctxMarkA("in a thread");
    if (roctxRangePop() != 0) fail("not level 0");
  }
  say("thread %u %ld", number, syscall(SYS_gettid));
  return NULL;
}

static uint64_t open_id;

int main(int argc, char **argv) {
  if (argc < 3) fail("usage: markers LIBRARY KERNELS");
  void *library = dlopen(argv[1], RTLD_NOW);
  if (!library) fail("%s", dlerror());
  find(library);
  kernels_t kernels = load_kernels(argv[2]);
  say("ready");
  char line[64], *text;
  unsigned number, rounds;
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (sscanf(line, "nest %u", &number) == 1) {
      for (unsigned n = 0; n < number; n++) nest(n);
    } else if (sscanf(line, "threads %u %u", &number, &rounds) == 2 && number <= 16) {
      pthread_t threads[16];
      for (unsigned n = 0; n < number; n++) threads[n] = start_thread(thread, (void *)(uintptr_t)rounds);
      for (unsigned n = 0; n < number; n++) pthread_join(threads[n], NULL);
    } else if (sscanf(line, "named %u", &number) == 1) {
      work_t work = new_work();
      for (unsigned n = 0; n < number; n++) {
        roctxRangePushA("first");
        launch_vadd(&kernels, &work, 1);
        roctxRangePushA("second");
        launch_scale(&kernels, &work, 1);
        roctxRangePop();
        launch_vadd(&kernels, &work, 1);
        roctxRangePop();
        launch_vadd(&kernels, &work, 1);
      }
      HIP(hipStreamSynchronize(work.stream));
      end_work(&work);
    } else if (!strcmp(line, "open")) {
      roctxRangePushA("pushed and left");
      open_id = roctxRangeStartA("started and left");
    } else if (!strcmp(line, "shut")) {
      roctxRangeStop(open_id);
      roctxRangePop();
    } else if (sscanf(line, "deep %u", &number) == 1) {
      for (unsigned n = 0; n < number; n++) roctxRangePushA("level");
      for (unsigned n = 0; n < number; n++) roctxRangePop();
    } else if (sscanf(line, "forget %u", &number) == 1) {
      for (unsigned n = 0; n < number; n++) {
        roctxRangePushA("forgotten");
        roctxRangePushA("good");
        roctxRangePop();
      }
    } else if (sscanf(line, "long %u", &number) == 1) {
      if (!(text = malloc(number + 1))) fail("malloc failed");
      memset(text, 'x', number);
      text[number] = 0;
      roctxMarkA(text);
      free(text);
    } else if (!strcmp(line, "small")) {
      uint64_t tid;
      if (roctxGetThreadId(&tid) || tid != (uint64_t)syscall(SYS_gettid)) fail("not the thread's id");
      if (roctxProfilerPause(0) || roctxProfilerResume(tid) || roctxNameOsThread("main") || roctxNameHsaAgent("agent", line) ||
          roctxNameHipDevice("device", 3) || roctxNameHipStream("stream", NULL))
        fail("a function failed");
    } else if (!strcmp(line, "tid")) {
      printf("tid %ld\n", syscall(SYS_gettid));
    } else {
      fail("unknown command \"%s\"", line);
    }
    say("%s", strtok(line, " "));
  }
  HIP(hipModuleUnload(kernels.module));
  say("done");
  return 0;
}
