// packets_tool: a tool that counts on a GPU by AMD's interface, so that its process needs the packets of a counter. Each
// time that it is asked what to count it appends a line to the file of TOOL_LOG in the process's environment.
#include "../../crates/target/sdk-control/tests/c/sdk.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  uint64_t handle;
} handle_t;
typedef struct {
  uint64_t size;
  rocprofiler_agent_id_t id;
  int type;
} agent_t;
typedef struct {
  handle_t id;
  const char *text[4];
  uint64_t flags;
} counter_t;
typedef int (*set_config)(rocprofiler_context_id_t, handle_t);
typedef int (*counters_callback)(rocprofiler_agent_id_t, handle_t *, size_t, void *);
typedef void (*choose_callback)(rocprofiler_context_id_t, rocprofiler_agent_id_t, set_config, void *);
enum { GPU = 2, LOSSLESS = 2, OK = 0, FAILED = 1 };

static rocprofiler_context_id_t context;
static rocprofiler_buffer_id_t buffer;
static rocprofiler_agent_id_t gpu;
static handle_t waves, config;

static void *function(const char *name) {
  void *sdk = dlopen("librocprofiler-sdk.so.1", RTLD_NOW | RTLD_NOLOAD);
  return sdk ? dlsym(sdk, name) : NULL;
}
#define CALL(name, types, ...) ((int(*) types)function("rocprofiler_" #name))(__VA_ARGS__)

static int find_gpu(int version, const void **list, size_t count, void *data) {
  (void)version, (void)data;
  for (size_t n = 0; n < count; n++)
    if (((const agent_t *)list[n])->type == GPU) gpu = ((const agent_t *)list[n])->id;
  return OK;
}

static int find_waves(rocprofiler_agent_id_t agent, handle_t *list, size_t count, void *data) {
  (void)agent, (void)data;
  counter_t info;
  for (size_t n = 0; n < count; n++)
    if (!CALL(query_counter_info, (handle_t, int, void *), list[n], 1, &info) && !strcmp(info.text[0], "SQ_WAVES")) waves = list[n];
  return OK;
}

static void records(rocprofiler_context_id_t c, rocprofiler_buffer_id_t b, rocprofiler_record_header_t **headers, size_t count, void *data,
                    uint64_t drop) {
  (void)c, (void)b, (void)headers, (void)count, (void)data, (void)drop;
}

static void choose(rocprofiler_context_id_t id, rocprofiler_agent_id_t agent, set_config set, void *data) {
  (void)agent, (void)data;
  int status = set(id, config);
  const char *path = getenv("TOOL_LOG");
  FILE *log = path ? fopen(path, "a") : NULL;
  if (!log) return;
  fprintf(log, "chosen %d\n", status);
  fclose(log);
}

static int initialize(client_finalize end, void *data) {
  (void)end, (void)data;
  if (!function("rocprofiler_create_context")) return FAILED;
  int failed = CALL(query_available_agents, (int, agents_callback, size_t, void *), 1, find_gpu, sizeof(agent_t), NULL);
  failed |= CALL(iterate_agent_supported_counters, (rocprofiler_agent_id_t, counters_callback, void *), gpu, find_waves, NULL);
  failed |= CALL(create_counter_config, (rocprofiler_agent_id_t, handle_t *, size_t, handle_t *), gpu, &waves, 1, &config);
  failed |= CALL(create_context, (rocprofiler_context_id_t *), &context);
  failed |= CALL(create_buffer, (rocprofiler_context_id_t, size_t, size_t, int, buffer_callback, void *, rocprofiler_buffer_id_t *), context,
                 1 << 16, 1 << 14, LOSSLESS, records, NULL, &buffer);
  failed |= CALL(configure_device_counting_service,
                 (rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_agent_id_t, choose_callback, void *), context, buffer, gpu,
                 choose, NULL);
  return failed ? FAILED : OK;
}

static int attached(client_finalize end, rocprofiler_context_id_t *contexts, uint64_t count, void *data) {
  (void)end, (void)data;
  return count == 1 ? CALL(start_context, (rocprofiler_context_id_t), contexts[0]) : FAILED;
}

static void detached(void *data) { (void)data; }

rocprofiler_tool_configure_result_t *rocprofiler_configure(uint32_t version, const char *words, uint32_t priority, rocprofiler_client_id_t *me) {
  static rocprofiler_tool_configure_result_t result = {sizeof result, initialize, NULL, NULL};
  (void)version, (void)words, (void)priority;
  me->name = "a tool that counts";
  return &result;
}

rocprofiler_tool_configure_attach_result_t *rocprofiler_configure_attach(uint32_t version, const char *words, uint32_t priority,
                                                                         rocprofiler_client_id_t *me) {
  static rocprofiler_tool_configure_attach_result_t result = {sizeof result, attached, detached, NULL};
  (void)version, (void)words, (void)priority, (void)me;
  return &result;
}
