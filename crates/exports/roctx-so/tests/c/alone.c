// Uses ROCTx without a profiler, then as a registration library that hooks the tables, then through
// the callback of the old library. Exit code: the line of the first failed check.
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

void roctxMarkA(const char *);
int roctxRangePushA(const char *);
int roctxRangePop(void);
uint64_t roctxRangeStartA(const char *);
void roctxRangeStop(uint64_t);
int roctxGetThreadId(uint64_t *);
int roctxProfilerPause(uint64_t);
int roctxProfilerResume(uint64_t);
int roctxNameOsThread(const char *);
int roctxNameHsaAgent(const char *, const void *);
int roctxNameHipDevice(const char *, int);
int roctxNameHipStream(const char *, const void *);
uint32_t roctx_version_major(void);
void roctxRegisterTracerCallback(int (*)(uint32_t, uint32_t, void *));
uint32_t rocprofiler_register_import_roctx(void);

#define IS(condition) do { if (!(condition)) _exit(__LINE__ & 0xff); } while (0)

static void **tables[3];
static unsigned registered, seen;
static int (*real_push)(const char *);

static int our_push(const char *text) {
  if (!strcmp(text, "the first")) seen++;
  return real_push(text);
}

#ifdef REGISTER
// The registration library: it is this program.
uint32_t rocprofiler_register_library_api_table(const char *name, uint32_t (*import)(void), uint32_t version, void **list, uint64_t count,
                                                uint64_t *id) {
  IS(!strcmp(name, "roctx") && count == 3 && id && import == rocprofiler_register_import_roctx && import() == version);
  for (int n = 0; n < 3; n++) tables[n] = list[n];
  IS((uintptr_t)tables[0][0] == 56 && (uintptr_t)tables[1][0] == 24 && (uintptr_t)tables[2][0] == 40);
  real_push = (int (*)(const char *))tables[0][2];
  tables[0][2] = (void *)our_push;
  registered++;
  return 1;
}
#endif

static void *levels(void *argument) {
  // Each thread has its own.
  for (int round = 0; round < 1000; round++) {
    IS(roctxRangePop() == -1);
    for (int n = 0; n < 100; n++) IS(roctxRangePushA("level") == n);
    for (int n = 99; n >= 0; n--) IS(roctxRangePop() == n);
  }
  return argument;
}

static atomic_ullong sum;
static void *ids(void *argument) {
  uint64_t last = 0;
  for (int n = 0; n < 10000; n++) {
    uint64_t id = roctxRangeStartA("range");
    IS(id > last);
    last = id;
    atomic_fetch_add(&sum, id);
    roctxRangeStop(id);
  }
  return argument;
}

static char told[64];
static uint64_t told_id;
static int tell(uint32_t domain, uint32_t operation, void *data) {
  struct { const char *message; uint64_t id; } *what = data;
  IS(domain == 6);
  size_t at = strlen(told);
  told[at] = "MPpSs"[operation];
  if (operation == 0) IS(!strcmp(what->message, "mark"));
  if (operation == 3) told_id = what->id;
  if (operation == 4) IS(what->id == told_id && !what->message);
  return 0;
}

int main(void) {
  IS(roctxRangePushA("the first") == 0);
  IS(roctxRangePop() == 0);
#ifdef REGISTER
  // The very first call is already seen, once.
  IS(registered == 1 && seen == 1);
#endif
  pthread_t thread[4];
  for (int n = 0; n < 4; n++) IS(!pthread_create(&thread[n], NULL, n < 2 ? levels : ids, NULL));
  for (int n = 0; n < 4; n++) pthread_join(thread[n], NULL);
  // Ids 1 to 20000, each once.
  IS(atomic_load(&sum) == 20000ull * 20001 / 2);
  uint64_t tid = 0;
  IS(roctxGetThreadId(&tid) == 0 && tid == (uint64_t)syscall(SYS_gettid));
  IS(roctxGetThreadId(NULL) != 0);
  IS(!roctxProfilerPause(0) && !roctxProfilerResume(0) && !roctxNameOsThread("main") && !roctxNameHsaAgent("gpu", "") &&
     !roctxNameHipDevice("gpu", 0) && !roctxNameHipStream("stream", NULL));
  roctxMarkA(NULL);
  IS(roctx_version_major() == 4);
  roctxRegisterTracerCallback(tell);
  roctxMarkA("mark");
  roctxRangePushA("push");
  roctxRangePop();
  roctxRangeStop(roctxRangeStartA("start"));
  roctxRegisterTracerCallback(NULL);
  roctxMarkA("mark");
  IS(!strcmp(told, "MPpSs"));
  return 0;
}
