// The helper that AMD's register loads under ROCP_TOOL_ATTACH=1: it brings the listener thread and registers a table
// named "rocattach". Every call of its table's functions is noted.
#include "probe.h"
#include <pthread.h>
#include <signal.h>

typedef int register_table(const char *name, void *import, uint32_t version, void **tables, uint64_t count, uint64_t *id);

static void used(void) { note("rocattach table used"); }
static struct { uint64_t size; void (*entry[11])(void); } table = {
    96, {used, used, used, used, used, used, used, used, used, used, used}};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;

static void *listen_for_ever(void *argument) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, NULL);
  pthread_mutex_lock(&lock);
  for (;;) pthread_cond_wait(&never, &lock);
  return argument;
}

EXPORT int rocprofiler_attach_set_api_table(const char *name, uint64_t version, uint64_t instance, void **tables, uint64_t count,
                                            register_table *give) {
  (void)version, (void)instance, (void)tables, (void)count;
  char line[64];
  snprintf(line, sizeof line, "helper set_api_table %s", name);
  note(line);
  pthread_t thread;
  if (pthread_create(&thread, NULL, listen_for_ever, NULL)) return 1;
  pthread_setname_np(thread, "rocp-bg-attach");
  void *own[1] = {&table};
  uint64_t id = 0;
  return give("rocattach", NULL, 10201, own, 1, &id);
}
