// A foreign profiler's SDK as it stands in a process: every call of its functions is noted.
// It takes tables when it is given some and changes nothing in them.
#include "probe.h"

EXPORT int rocprofiler_set_api_table(const char *name, uint64_t version, uint64_t instance, void **tables, uint64_t count) {
  (void)version, (void)instance, (void)tables, (void)count;
  char line[64];
  snprintf(line, sizeof line, "set_api_table %s", name);
  note(line);
  return 0;
}
EXPORT int rocprofiler_attach(void) {
  note("attach");
  return 0;
}
EXPORT int rocprofiler_detach(void) {
  note("detach");
  return 0;
}
EXPORT int rocprofiler_force_configure(void *configure) {
  (void)configure;
  note("force_configure");
  return 0;
}
EXPORT int rocprofiler_load_attachment_tool(const char *path) {
  (void)path;
  note("load_attachment_tool");
  return 0;
}
EXPORT int rocprofiler_get_status(int *status) {
  (void)status;
  note("get_status");
  return 0;
}
EXPORT int rocprofiler_create_context(uint64_t *context) {
  (void)context;
  note("create_context");
  return 1;
}
