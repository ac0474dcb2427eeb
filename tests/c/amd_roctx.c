// A ROCTx library in the shape of AMD's: one object holds its three tables, and each function reaches it through a reference that
// the first call makes. Compiled twice: with the way to the object in each function, and (amd_roctx_called.c) in a function of its own.
// As AMD builds it; what tests compile otherwise has less.
#pragma GCC optimize("O2")
#include <stdint.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef WAY
#define WAY __attribute__((always_inline)) inline
#endif
#define API __attribute__((visibility("default")))

static int level;
static uint64_t last;
static void mark(const char *text) { (void)text; }
static int push(const char *text) { return (void)text, level++; }
static int pop(void) { return level ? --level : -1; }
static uint64_t start(const char *text) { return (void)text, ++last; }
static void stop(uint64_t id) { (void)id; }
static int get_thread_id(uint64_t *tid) { return *tid = (uint64_t)syscall(SYS_gettid), 0; }
static int pause_profiler(uint64_t tid) { return (void)tid, 0; }
static int resume_profiler(uint64_t tid) { return (void)tid, 0; }
static int name_thread(const char *name) { return (void)name, 0; }
static int name_agent(const char *name, const void *agent) { return (void)name, (void)agent, 0; }
static int name_device(const char *name, int device) { return (void)name, (void)device, 0; }
static int name_stream(const char *name, const void *stream) { return (void)name, (void)stream, 0; }

struct tables {
  struct {
    size_t size;
    void (*mark)(const char *);
    int (*push)(const char *);
    int (*pop)(void);
    uint64_t (*start)(const char *);
    void (*stop)(uint64_t);
    int (*get_thread_id)(uint64_t *);
  } core;
  struct {
    size_t size;
    int (*pause)(uint64_t), (*resume)(uint64_t);
  } control;
  struct {
    size_t size;
    int (*thread)(const char *), (*agent)(const char *, const void *), (*device)(const char *, int), (*stream)(const char *, const void *);
  } name;
};

static struct tables object, *pointer, **reference;
static unsigned char guard;

static __attribute__((noinline, cold)) void make(void) {
  object = (struct tables){{sizeof object.core, mark, push, pop, start, stop, get_thread_id},
                           {sizeof object.control, pause_profiler, resume_profiler},
                           {sizeof object.name, name_thread, name_agent, name_device, name_stream}};
  pointer = &object;
  reference = &pointer;
  __atomic_store_n(&guard, 1, __ATOMIC_RELEASE);
}

static WAY struct tables *tables(void) {
  if (__builtin_expect(!__atomic_load_n(&guard, __ATOMIC_ACQUIRE), 0)) make();
  return *__atomic_load_n(&reference, __ATOMIC_RELAXED);
}

API void roctxMarkA(const char *text) { tables()->core.mark(text); }
API int roctxRangePushA(const char *text) { return tables()->core.push(text); }
API int roctxRangePop(void) { return tables()->core.pop(); }
API uint64_t roctxRangeStartA(const char *text) { return tables()->core.start(text); }
API void roctxRangeStop(uint64_t id) { tables()->core.stop(id); }
API int roctxGetThreadId(uint64_t *tid) { return tables()->core.get_thread_id(tid); }
API int roctxProfilerPause(uint64_t tid) { return tables()->control.pause(tid); }
API int roctxProfilerResume(uint64_t tid) { return tables()->control.resume(tid); }
API int roctxNameOsThread(const char *name) { return tables()->name.thread(name); }
API int roctxNameHsaAgent(const char *name, const void *agent) { return tables()->name.agent(name, agent); }
API int roctxNameHipDevice(const char *name, int device) { return tables()->name.device(name, device); }
API int roctxNameHipStream(const char *name, const void *stream) { return tables()->name.stream(name, stream); }
