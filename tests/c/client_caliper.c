// The calls of LLNL Caliper's rocprofiler service (src/services/rocprofiler/RocProfiler.cpp), in its order: linked into the
// program, found by its visible rocprofiler_configure; three contexts, external correlation ids on request, contexts
// started when a channel begins and stopped when it ends. The library has no constructor: "force" is what its loader does.
#include "client.h"

static rocprofiler_context_id_t hip, activity, objects;
static rocprofiler_buffer_id_t buffer;
static atomic_ulong requests;

static void api(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t *user, void *data) {
  if (record.kind == ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT) code_objects(record, user, data);
  if (record.kind != ROCPROFILER_CALLBACK_TRACING_HIP_RUNTIME_API) return;
  if (record.operation == ROCPROFILER_HIP_RUNTIME_API_ID_hipModuleLaunchKernel) calls(record, user, data);
}

static int external(rocprofiler_thread_id_t thread, rocprofiler_context_id_t context, rocprofiler_external_correlation_id_request_kind_t kind,
                    rocprofiler_tracing_operation_t operation, uint64_t internal, rocprofiler_user_data_t *id, void *data) {
  (void)thread, (void)context, (void)kind, (void)operation, (void)internal, (void)data;
  id->value = ++requests;
  return 0;
}

static int initialize(rocprofiler_client_finalize_t finalize, void *data) {
  (void)finalize, (void)data;
  CHECK(rocprofiler_create_context(&hip));
  CHECK(rocprofiler_create_context(&activity));
  CHECK(rocprofiler_create_context(&objects));
  CHECK(rocprofiler_configure_callback_tracing_service(hip, ROCPROFILER_CALLBACK_TRACING_HIP_RUNTIME_API, NULL, 0, api, NULL));
  CHECK(rocprofiler_configure_callback_tracing_service(objects, ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT, NULL, 0, api, NULL));
  CHECK(rocprofiler_create_buffer(activity, 16 << 20, 15 << 20, ROCPROFILER_BUFFER_POLICY_LOSSLESS, records, NULL, &buffer));
  CHECK(rocprofiler_configure_buffer_tracing_service(activity, ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH, NULL, 0, buffer));
  CHECK(rocprofiler_configure_buffer_tracing_service(activity, ROCPROFILER_BUFFER_TRACING_MEMORY_COPY, NULL, 0, buffer));
  static const rocprofiler_external_correlation_id_request_kind_t kinds[] = {ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_KERNEL_DISPATCH,
                                                                            ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_MEMORY_COPY};
  CHECK(rocprofiler_configure_external_correlation_id_request_service(activity, kinds, 2, external, NULL));
  unsigned gpus = 0;
  CHECK(rocprofiler_query_available_agents(ROCPROFILER_AGENT_INFO_VERSION_0, agents, sizeof(rocprofiler_agent_t), &gpus));
  return 0;
}

static void finalize(void *data) { (void)data; }

EXPORT rocprofiler_tool_configure_result_t *rocprofiler_configure(uint32_t version, const char *text, uint32_t priority,
                                                                  rocprofiler_client_id_t *id) {
  static rocprofiler_tool_configure_result_t result = {sizeof result, initialize, finalize, NULL};
  (void)version, (void)text, (void)priority;
  id->name = "Caliper's calls";
  return &result;
}

void client_begin(const char *argument) {
  (void)argument;
  // If the client is not linked into the program, client_begin configures it.
  int initialized = 0;
  CHECK(rocprofiler_is_initialized(&initialized));
  if (!initialized) CHECK(rocprofiler_force_configure(rocprofiler_configure));
}

static rocprofiler_status_t client_start(void) {
  CHECK(rocprofiler_start_context(hip));
  CHECK(rocprofiler_start_context(activity));
  return CHECK(rocprofiler_start_context(objects));
}

static rocprofiler_status_t client_stop(void) {
  const rocprofiler_context_id_t all[] = {hip, objects, activity};
  for (int i = 0; i < 3; i++) {
    int active = 0;
    CHECK(rocprofiler_context_is_active(all[i], &active));
    if (active) CHECK(rocprofiler_stop_context(all[i]));
  }
  return ROCPROFILER_STATUS_SUCCESS;
}

static rocprofiler_status_t client_flush(void) { return CHECK(rocprofiler_flush_buffer(buffer)); }
