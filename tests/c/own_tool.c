// own_tool SDK KERNELS WHEN [objects]: a program that brings a tool of its own, as frameworks do. It
// configures it by rocprofiler_force_configure of the library SDK, before its first call of HIP or
// after it (WHEN is "first" or "late"), with buffers for dispatches and HIP calls, a callback service
// for HIP calls, and with one for code objects where "objects" is said. Commands:
//   window N   records N dispatches, and flushes as soon as their stream is idle
//   alone      the main thread, and each that it makes from now on, runs on one processor, and none of them before the
//              others have given it up; says "alone", or "alone no" where that is not allowed
//   calls N    records N calls of HIP that wait for nothing, and flushes at once
//   both N     two threads start a context each at the same moment, make N calls of HIP and hand over what there is
//   slow N     the same with a buffer callback of 20 ms, and two more threads that flush all the time
//   stop N     eight threads make calls that are reported, and one of them stops the context from
//              within a callback; N times. Counts functions that were entered after that.
//   names      the kernels that were told, by the structs that the callback was given
//   drop       destroys the module, and says what was unloaded with it
//   quit
#include "hip_kit.h"
#include <dlfcn.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>

typedef struct { uint64_t handle; } context_id, buffer_id;
typedef struct { uint64_t hash_or_category_and_kind; void *payload; } header_t;
typedef struct { uint64_t internal, external, ancestor; } correlation_t;
typedef struct {
  context_id context; uint64_t thread_id; correlation_t correlation; int kind, operation, phase; void *payload;
} record_t;
typedef struct { uint64_t size, kernel_id, code_object_id; const char *kernel_name; uint64_t rest[8]; } symbol_t;
typedef struct { uint64_t size, code_object_id, agent, hsa_agent; const char *uri; uint64_t rest[6]; } object_t;
typedef struct { size_t size; const char *name; uint32_t handle; } client_id;
typedef struct { size_t size; int (*initialize)(void *, void *); void (*finalize)(void *); void *data; } result_t;

enum { HIP_CALLS = 5, DISPATCHES = 11, LOSSLESS = 2, CODE_OBJECTS = 10, HIP_CALLBACKS = 5, ENTER = 1, EXIT = 2 };

static int (*create_context)(context_id *), (*start_context)(context_id), (*stop_context)(context_id);
static int (*create_buffer)(context_id, size_t, size_t, int, void *, void *, buffer_id *), (*flush_buffer)(buffer_id);
static int (*buffer_tracing)(context_id, int, const int *, size_t, buffer_id);
static int (*callback_tracing)(context_id, int, const int *, size_t, void *, void *);
static int (*force_configure)(void *);

static context_id tracing, objects, calls;
static buffer_id buffer;
static bool with_objects;
static atomic_ulong kernels, hip, bad, refused, late, told;
static atomic_bool slow, stopped;

static void nap(long ms) { nanosleep(&(struct timespec){0, ms * 1000000}, NULL); }

static void records(context_id c, buffer_id b, header_t **headers, size_t count, void *data, uint64_t dropped) {
  (void)c, (void)data;
  // It cannot be waited for from within: it says so at once.
  if (flush_buffer(b) != 14) bad++;
  if (slow) nap(20);
  bad += dropped;
  for (size_t i = 0; i < count; i++) {
    unsigned kind = headers[i]->hash_or_category_and_kind >> 32;
    if (kind == DISPATCHES) kernels++;
    else if (kind == HIP_CALLS) hip++;
    else bad++;
  }
}

enum { MOST = 256 };
static symbol_t symbols[MOST];
static object_t loaded[MOST];
static const void *words[2 * MOST];
static unsigned symbols_told, objects_told, symbols_gone, objects_gone, early;

static void object(record_t record, void **word, void *data) {
  (void)data;
  bool is_load = record.phase == ENTER;
  if (record.operation == 1) {
    const object_t *it = record.payload;
    if (it->code_object_id >= MOST) fail("too many code objects");
    if (is_load) loaded[it->code_object_id] = *it, objects_told++, *word = &loaded[it->code_object_id];
    else {
      bad += memcmp(&loaded[it->code_object_id], it, sizeof *it) != 0 || *word != &loaded[it->code_object_id];
      objects_gone++;
    }
    // Its kernels go before it does.
    if (!is_load)
      for (unsigned i = 0; i < MOST; i++) early += symbols[i].code_object_id == it->code_object_id && words[i] != NULL;
  } else {
    const symbol_t *it = record.payload;
    if (it->kernel_id >= MOST) fail("too many kernels");
    if (is_load) symbols[it->kernel_id] = *it, symbols_told++, *word = &symbols[it->kernel_id], words[it->kernel_id] = *word;
    else {
      bad += memcmp(&symbols[it->kernel_id], it, sizeof *it) != 0 || *word != words[it->kernel_id];
      words[it->kernel_id] = NULL;
      symbols_gone++;
    }
  }
}

static void call(record_t record, void **word, void *data) {
  // The first thing that it does.
  bool after = stopped;
  (void)word, (void)data;
  if (record.phase != ENTER) return;
  told++;
  late += after;
}

static __thread bool i_stop;
static void call_or_stop(record_t record, void **word, void *data) {
  call(record, word, data);
  if (record.phase == ENTER && i_stop) {
    i_stop = false;
    refused += stop_context(calls) != 0;
    stopped = true;
  }
}

static int initialize(void *end, void *data) {
  (void)end, (void)data;
  refused += create_context(&tracing) != 0;
  refused += create_buffer(tracing, 1 << 20, 1 << 19, LOSSLESS, records, NULL, &buffer) != 0;
  refused += buffer_tracing(tracing, DISPATCHES, NULL, 0, buffer) != 0;
  refused += buffer_tracing(tracing, HIP_CALLS, NULL, 0, buffer) != 0;
  refused += create_context(&calls) != 0;
  refused += callback_tracing(calls, HIP_CALLBACKS, NULL, 0, call_or_stop, NULL) != 0;
  if (with_objects) {
    refused += create_context(&objects) != 0;
    refused += callback_tracing(objects, CODE_OBJECTS, NULL, 0, object, NULL) != 0;
    refused += start_context(objects) != 0;
  }
  return 0;
}

static void finalize(void *data) {
  (void)data;
  say("end objects %u gone %u symbols %u gone %u early %u bad %lu refused %lu", objects_told, objects_gone, symbols_told, symbols_gone, early,
      bad, refused);
}

static result_t *configure(uint32_t version, const char *text, uint32_t priority, client_id *me) {
  static result_t result = {sizeof result, initialize, finalize, NULL};
  (void)version, (void)text, (void)priority;
  me->name = "the program's own tool";
  return &result;
}

static atomic_bool over;
static void *flushes(void *argument) {
  while (!over) refused += flush_buffer(buffer) != 0;
  return argument;
}

static atomic_uint running;
static void *makes_calls(void *argument) {
  running++;
  int value;
  while (!over) HIP(hipDeviceGetAttribute(&value, hipDeviceAttributeWarpSize, 0));
  return argument;
}

// Starts a context when the other thread does. Afterwards its own calls are seen.
static atomic_uint there;
static unsigned both_calls;
static void *starts(void *context) {
  there++;
  while (there < 2) sched_yield();
  refused += start_context(*(context_id *)context) != 0;
  int value;
  for (unsigned i = 0; i < both_calls; i++) HIP(hipDeviceGetAttribute(&value, hipDeviceAttributeWarpSize, 0));
  if (context == &tracing) refused += flush_buffer(buffer) != 0;
  return NULL;
}

static void window(kernels_t *k, work_t *w, unsigned count) {
  unsigned long before = kernels, calls_before = hip;
  refused += start_context(tracing) != 0;
  for (unsigned i = 0; i < count; i++) launch_vadd(k, w, 4);
  HIP(hipStreamSynchronize(w->stream));
  refused += flush_buffer(buffer) != 0;
  unsigned long got = kernels - before, got_calls = hip - calls_before;
  refused += stop_context(tracing) != 0;
  say("window kernels %lu hip %lu refused %lu bad %lu", got, got_calls, refused, bad);
}

int main(int argc, char **argv) {
  if (argc < 4) fail("usage: own_tool SDK KERNELS first|late [objects]");
  void *sdk = dlopen(argv[1], RTLD_NOW);
  if (!sdk) fail("%s", dlerror());
  struct { const char *name; void *to; } names[] = {
      {"rocprofiler_create_context", &create_context}, {"rocprofiler_start_context", &start_context},
      {"rocprofiler_stop_context", &stop_context}, {"rocprofiler_create_buffer", &create_buffer},
      {"rocprofiler_flush_buffer", &flush_buffer}, {"rocprofiler_configure_buffer_tracing_service", &buffer_tracing},
      {"rocprofiler_configure_callback_tracing_service", &callback_tracing}, {"rocprofiler_force_configure", &force_configure}};
  for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
    if (!(*(void **)names[i].to = dlsym(sdk, names[i].name))) fail("no %s", names[i].name);
  with_objects = argc > 4;
  bool first = !strcmp(argv[3], "first");
  if (first) refused += force_configure(configure) != 0;
  kernels_t k = load_kernels(argv[2]);
  work_t w = new_work();
  if (!first) refused += force_configure(configure) != 0;
  say("ready");
  char line[64];
  unsigned number;
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (sscanf(line, "window %u", &number) == 1) {
      window(&k, &w, number);
    } else if (!strcmp(line, "alone")) {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(sched_getcpu(), &one);
      bool is = !sched_setaffinity(0, sizeof one, &one) && !sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){1});
      say(is ? "alone" : "alone no");
    } else if (sscanf(line, "calls %u", &number) == 1) {
      unsigned long before = hip;
      refused += start_context(tracing) != 0;
      int value;
      for (unsigned i = 0; i < number; i++) HIP(hipDeviceGetAttribute(&value, hipDeviceAttributeWarpSize, 0));
      refused += flush_buffer(buffer) != 0;
      unsigned long got = hip - before;
      refused += stop_context(tracing) != 0;
      say("calls hip %lu refused %lu bad %lu", got, refused, bad);
    } else if (sscanf(line, "both %u", &number) == 1) {
      both_calls = number;
      pthread_t threads[2] = {start_thread(starts, &tracing), start_thread(starts, &calls)};
      for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
      say("both hip %lu told %lu refused %lu bad %lu", hip, told, refused, bad);
    } else if (sscanf(line, "slow %u", &number) == 1) {
      slow = true;
      over = false;
      pthread_t threads[2] = {start_thread(flushes, NULL), start_thread(flushes, NULL)};
      for (unsigned i = 0; i < number; i++) window(&k, &w, 5);
      over = true;
      for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
      slow = false;
      say("slow refused %lu bad %lu", refused, bad);
    } else if (sscanf(line, "stop %u", &number) == 1) {
      pthread_t threads[8];
      over = false;
      for (int i = 0; i < 8; i++) threads[i] = start_thread(makes_calls, NULL);
      while (running < 8) sched_yield();
      unsigned idle = 0;
      for (unsigned i = 0; i < number; i++) {
        stopped = false;
        unsigned long before = told;
        refused += start_context(calls) != 0;
        i_stop = true;
        int value;
        // Until it is reported: the context is on at once, its hooks within milliseconds.
        for (unsigned tries = 0; i_stop && tries < 1000000; tries++) HIP(hipDeviceGetAttribute(&value, hipDeviceAttributeWarpSize, 0));
        idle += i_stop || told == before;
        HIP(hipDeviceGetAttribute(&value, hipDeviceAttributeWarpSize, 0));
      }
      over = true;
      for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
      running = 0;
      say("stop late %lu idle %u refused %lu", late, idle, refused);
    } else if (!strcmp(line, "names")) {
      for (unsigned i = 0; i < MOST; i++)
        if (symbols[i].kernel_name) say("kernel %u %s of %s", i, symbols[i].kernel_name, loaded[symbols[i].code_object_id].uri);
      say("names");
    } else if (!strcmp(line, "drop")) {
      HIP(hipModuleUnload(k.module));
      flush_buffer(buffer);
      say("drop objects %u symbols %u early %u bad %lu", objects_gone, symbols_gone, early, bad);
    } else {
      fail("what is \"%s\"?", line);
    }
  }
  say("done");
  return 0;
}
