// A tool that writes each of its hooks to LOG (a path of the target's), with NAME in front, and how
// many HIP calls it has had between attach and detach. KIND says which generation's functions it
// has: 0 rocprofiler_configure alone, 1 also rocprofiler_configure_attach, 2
// rocprofiler_configure_experimental. Kinds 0 and 2 start their context when they are initialised
// and never again.
#include "../../crates/target/sdk-control/tests/c/sdk.h"
#include <stdio.h>
#include <string.h>

enum { HIP_RUNTIME = 5, LOSSLESS = 2 };

static rocprofiler_context_id_t context;
static rocprofiler_buffer_id_t buffer;
static unsigned long calls;
static int data;

static void note(const char *what) {
  FILE *log = fopen(LOG, "a");
  if (!log) return;
  fprintf(log, "%s %s\n", NAME, what);
  fclose(log);
}

static void records(rocprofiler_context_id_t c, rocprofiler_buffer_id_t b, rocprofiler_record_header_t **headers, size_t count, void *d,
                    uint64_t drop) {
  (void)c, (void)b, (void)d, (void)headers, (void)drop;
  calls += count;
}

static int tool_init(client_finalize end, void *d) {
  note(end && d == &data ? "init" : "init with what?");
  int failed = rocprofiler_create_context(&context) || rocprofiler_create_buffer(context, 1 << 16, 1 << 14, LOSSLESS, records, NULL, &buffer) ||
               rocprofiler_configure_buffer_tracing_service(context, HIP_RUNTIME, NULL, 0, buffer);
  if (!failed && KIND != 1) failed = rocprofiler_start_context(context);
  return failed;
}
// A tool without a detach says here what it has had in all.
static void tool_fini(void *d) {
  char line[64] = "fini";
  if (KIND == 0) snprintf(line, sizeof line, "fini calls=%lu", calls);
  note(d == &data ? line : "fini of what?");
}

#if KIND > 0
static void tool_detach(void *d) {
  (void)rocprofiler_flush_buffer(buffer);
  char line[64];
  snprintf(line, sizeof line, "%s calls=%lu", d == &data ? "detach" : "detach of what?", calls);
  note(line);
  calls = 0;
}
#endif

#if KIND == 1
static int tool_attach(client_finalize end, rocprofiler_context_id_t *contexts, uint64_t count, void *d) {
  note(!end && count == 1 && contexts[0].handle == context.handle && d == &data ? "attach" : "attach with what?");
  return rocprofiler_start_context(contexts[0]);
}
rocprofiler_tool_configure_attach_result_t *rocprofiler_configure_attach(uint32_t version, const char *words, uint32_t priority,
                                                                         rocprofiler_client_id_t *me) {
  static rocprofiler_tool_configure_attach_result_t result = {sizeof result, tool_attach, tool_detach, &data};
  (void)priority;
  note(version == 10201 && !strcmp(words, "1.2.1") && !strcmp(me->name, NAME) ? "configure_attach" : "configure_attach with what?");
  return &result;
}
#endif

#if KIND == 2
static void tool_reattach(void *d) { note(d == &data ? "reattach" : "reattach of what?"); }
typedef struct {
  size_t size;
  int (*initialize)(client_finalize, void *);
  void (*finalize)(void *);
  void *tool_data;
  void (*tool_reattach)(void *);
  void (*tool_detach)(void *);
} experimental_t;
experimental_t *rocprofiler_configure_experimental(uint32_t version, const char *words, uint32_t priority, rocprofiler_client_id_t *me) {
  static experimental_t result = {sizeof result, tool_init, tool_fini, &data, tool_reattach, tool_detach};
  (void)version, (void)words, (void)priority;
  me->name = NAME;
  note("configure_experimental");
  return &result;
}
#else
rocprofiler_tool_configure_result_t *rocprofiler_configure(uint32_t version, const char *words, uint32_t priority, rocprofiler_client_id_t *me) {
  static rocprofiler_tool_configure_result_t result = {sizeof result, tool_init, tool_fini, &data};
  (void)version, (void)words, (void)priority;
  me->name = NAME;
  note("configure");
  return &result;
}
#endif
