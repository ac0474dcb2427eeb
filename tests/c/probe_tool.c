// A library with a rocprofiler_configure that was not requested, as libtorch has: every call of it is noted.
#include "probe.h"

EXPORT void *rocprofiler_configure(uint32_t version, const char *text, uint32_t priority, void *id) {
  (void)version, (void)text, (void)priority, (void)id;
  note("configure");
  return NULL;
}
EXPORT void *rocprofiler_configure_attach(uint32_t version, const char *text, uint32_t priority, void *id) {
  (void)version, (void)text, (void)priority, (void)id;
  note("configure_attach");
  return NULL;
}
