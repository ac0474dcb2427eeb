// A tool that needs nothing of any SDK but to be called: each of its hooks is noted.
#include "probe.h"

typedef struct { size_t size; int (*initialize)(void *, void *); void (*finalize)(void *); void *data; } result_t;
typedef struct { size_t size; int (*attach)(void *, void *, uint64_t, void *); void (*detach)(void *); void *data; } attach_result_t;

static int initialize(void *end, void *data) {
  (void)end, (void)data;
  note("tool init");
  return 0;
}
static void finalize(void *data) {
  (void)data;
  note("tool fini");
}
static int attach(void *end, void *contexts, uint64_t count, void *data) {
  (void)end, (void)contexts, (void)count, (void)data;
  note("tool attach");
  return 0;
}
static void detach(void *data) {
  (void)data;
  note("tool detach");
}

EXPORT void *rocprofiler_configure(uint32_t version, const char *text, uint32_t priority, void *id) {
  static result_t result = {sizeof result, initialize, finalize, NULL};
  (void)version, (void)text, (void)priority, (void)id;
  note("tool configure");
  return &result;
}
EXPORT void *rocprofiler_configure_attach(uint32_t version, const char *text, uint32_t priority, void *id) {
  static attach_result_t result = {sizeof result, attach, detach, NULL};
  (void)version, (void)text, (void)priority, (void)id;
  note("tool configure_attach");
  return &result;
}
