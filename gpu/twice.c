// Kinds of CUPTI's activities, switched on and off by a thread of its own beside the program's launches, and a look at what CUPTI records
// afterwards: how many calls have the same correlation id. Loaded by twice.py. None of midair's code is used.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KINDS = 16, SINGLES = 128, CALLS = 200000, BUFFER = 8 << 20, DRIVER = 4, RUNTIME = 5 };

static int (*register_callbacks)(void *, void *), (*enable)(uint32_t), (*disable)(uint32_t), (*flush)(uint32_t);
static int (*enable_runtime)(uint32_t, uint8_t), (*enable_driver)(uint32_t, uint8_t);
static int (*next_record)(uint8_t *, size_t, uint8_t **);

// Of all records that were returned since the last look: their number by kind, and correlation id and call of each call.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned of_kind[128], calls;
static uint64_t call[CALLS];

static struct {
  uint32_t kinds[KINDS], runtime[SINGLES], driver[SINGLES];
  int kinds_count, runtime_count, driver_count, turns;
  // Whether single calls are switched on again before the kinds are switched off.
  int restores;
  _Atomic int done;
} plan;

static void requested(uint8_t **buffer, size_t *size, size_t *records) {
  *buffer = aligned_alloc(8, BUFFER);
  *size = *buffer ? BUFFER : 0;
  *records = 0;
}

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
  (void)context, (void)stream, (void)size;
  pthread_mutex_lock(&lock);
  uint8_t *record = NULL;
  while (valid && next_record(buffer, valid, &record) == 0) {
    uint32_t kind = *(uint32_t *)record;
    if (kind < 128) of_kind[kind]++;
    // CUpti_ActivityAPI: kind, call, two times, process, thread, correlation id.
    if ((kind == DRIVER || kind == RUNTIME) && calls < CALLS)
      call[calls++] = (uint64_t)*(uint32_t *)(record + 32) << 32 | kind << 16 | *(uint16_t *)(record + 4);
  }
  pthread_mutex_unlock(&lock);
  free(buffer);
}

// Finds CUPTI. Returns 0.
int open_cupti(const char *path) {
  void *cupti = dlopen(path, RTLD_NOW);
  if (!cupti) return -1;
  register_callbacks = dlsym(cupti, "cuptiActivityRegisterCallbacks");
  enable = dlsym(cupti, "cuptiActivityEnable");
  disable = dlsym(cupti, "cuptiActivityDisable");
  flush = dlsym(cupti, "cuptiActivityFlushAll");
  next_record = dlsym(cupti, "cuptiActivityGetNextRecord");
  enable_runtime = dlsym(cupti, "cuptiActivityEnableRuntimeApi");
  enable_driver = dlsym(cupti, "cuptiActivityEnableDriverApi");
  int complete = register_callbacks && enable && disable && flush && next_record && enable_runtime && enable_driver;
  return complete ? 0 : -2;
}

static void *switching(void *unused) {
  (void)unused;
  for (int turn = 0; turn < plan.turns; turn++) {
    for (int n = 0; n < plan.kinds_count; n++) enable(plan.kinds[n]);
    for (int n = 0; n < plan.runtime_count; n++) enable_runtime(plan.runtime[n], 0);
    for (int n = 0; n < plan.driver_count; n++) enable_driver(plan.driver[n], 0);
    usleep(2000 + (turn * 37) % 500);
    for (int n = 0; plan.restores && n < plan.runtime_count; n++) enable_runtime(plan.runtime[n], 1);
    for (int n = 0; plan.restores && n < plan.driver_count; n++) enable_driver(plan.driver[n], 1);
    for (int n = plan.kinds_count; n-- > 0;) disable(plan.kinds[n]);
    usleep(700);
    if (turn % 16 == 15) flush(0);
  }
  usleep(20000);
  flush(1);
  plan.done = 1;
  return NULL;
}

// Begins to switch: all kinds on, single calls off, some time, all kinds off. `done` tells the end.
int begin(const uint32_t *kinds, int kinds_count, const uint32_t *runtime, int runtime_count, const uint32_t *driver, int driver_count, int turns,
          int restores) {
  if (kinds_count > KINDS || runtime_count > SINGLES || driver_count > SINGLES) return -1;
  memcpy(plan.kinds, kinds, (size_t)kinds_count * 4);
  memcpy(plan.runtime, runtime, (size_t)runtime_count * 4);
  memcpy(plan.driver, driver, (size_t)driver_count * 4);
  if (register_callbacks(requested, completed)) return -2;
  plan.kinds_count = kinds_count, plan.runtime_count = runtime_count, plan.driver_count = driver_count, plan.turns = turns, plan.restores = restores;
  plan.done = 0;
  pthread_t thread;
  return pthread_create(&thread, NULL, switching, NULL) || pthread_detach(thread);
}

int done(void) { return plan.done; }

static int by_id(const void *one, const void *other) {
  uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
  return (a > b) - (a < b);
}

// Begins a look: what is recorded from here on counts.
int look_begins(const uint32_t *kinds, int count) {
  pthread_mutex_lock(&lock);
  memset(of_kind, 0, sizeof of_kind);
  calls = 0;
  pthread_mutex_unlock(&lock);
  // Whoever used CUPTI since has its own callbacks there.
  int status = register_callbacks(requested, completed);
  for (int n = 0; n < count; n++) status = status ? status : enable(kinds[n]);
  return status;
}

// Ends it. Writes "KIND=COUNT ..." and, for calls with one id, "ID: KIND/CALL KIND/CALL". Returns how many these are.
int look_ends(const uint32_t *kinds, int count, char *text, size_t size) {
  for (int n = count; n-- > 0;) disable(kinds[n]);
  flush(1);
  pthread_mutex_lock(&lock);
  size_t at = 0;
  int twice = 0;
  text[0] = 0;
  for (int kind = 0; kind < 128; kind++)
    if (of_kind[kind] && at < size) at += (size_t)snprintf(text + at, size - at, "%d=%u ", kind, of_kind[kind]);
  qsort(call, calls, sizeof call[0], by_id);
  for (unsigned n = 1; n < calls; n++)
    if (call[n] >> 32 == call[n - 1] >> 32 && ++twice <= 4 && at < size)
      at += (size_t)snprintf(text + at, size - at, "%u: %u/%u %u/%u; ", (unsigned)(call[n] >> 32), (unsigned)(call[n - 1] >> 16 & 0xffff),
                             (unsigned)(call[n - 1] & 0xffff), (unsigned)(call[n] >> 16 & 0xffff), (unsigned)(call[n] & 0xffff));
  pthread_mutex_unlock(&lock);
  return twice;
}
