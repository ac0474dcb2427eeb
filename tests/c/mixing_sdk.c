// A foreign SDK that does with tools and tables what AMD's does when it is attached by a register
// library: at the first table it loads the tools of ROCP_TOOL_LIBRARIES and configures them; attach
// and detach call theirs. What it is asked is noted.
#include "probe.h"
#include <dlfcn.h>

typedef struct { size_t size; int (*initialize)(void *, void *); void (*finalize)(void *); void *data; } result_t;
typedef struct { size_t size; int (*attach)(void *, void *, uint64_t, void *); void (*detach)(void *); void *data; } attach_result_t;
typedef void *configure_t(uint32_t, const char *, uint32_t, void *);

static attach_result_t *tool;

static void load(const char *path) {
  static struct { size_t size; const char *name; uint32_t handle; } id = {24, NULL, 1};
  void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  configure_t *configure = library ? (configure_t *)dlsym(library, "rocprofiler_configure") : NULL;
  configure_t *configure_attach = library ? (configure_t *)dlsym(library, "rocprofiler_configure_attach") : NULL;
  result_t *result = configure ? configure(10201, "1.2.1", 0, &id) : NULL;
  tool = result && configure_attach ? configure_attach(10201, "1.2.1", 0, &id) : NULL;
  note(!library ? "sdk: no such tool" : result ? "sdk: tool configured" : "sdk: tool declined");
  if (result) result->initialize(NULL, result->data);
}

EXPORT int rocprofiler_set_api_table(const char *name, uint64_t version, uint64_t instance, void **tables, uint64_t count) {
  static int first = 1;
  (void)version, (void)instance, (void)tables, (void)count;
  if (first && getenv("ROCP_TOOL_LIBRARIES")) load(getenv("ROCP_TOOL_LIBRARIES"));
  first = 0;
  char line[64];
  snprintf(line, sizeof line, "sdk: table %s", name);
  note(line);
  return 0;
}
EXPORT int rocprofiler_attach(void) {
  note("sdk: attach");
  return tool ? tool->attach(NULL, NULL, 0, tool->data) : 17;
}
EXPORT int rocprofiler_detach(void) {
  note("sdk: detach");
  if (tool) tool->detach(tool->data);
  return 0;
}
