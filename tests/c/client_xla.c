// The calls of XLA's profiler for ROCm (xla/backends/profiler/gpu/rocm_profiler_sdk.cc), in its order: forced by the
// library's constructor, beside a visible rocprofiler_configure; one context for symbols, and one that has HIP calls in the
// buffer and as callbacks, dispatches and copies, and a thread for the buffer.
#include "client.h"

static rocprofiler_context_id_t utility, context;
static rocprofiler_buffer_id_t buffer;

static void annotations(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t *user, void *data) {
  if (record.operation == ROCPROFILER_HIP_RUNTIME_API_ID_hipModuleLaunchKernel) calls(record, user, data);
}

static int initialize(rocprofiler_client_finalize_t finalize, void *data) {
  (void)finalize;
  CHECK(rocprofiler_iterate_callback_tracing_kinds(a_callback_kind, NULL));
  unsigned gpus = 0;
  CHECK(rocprofiler_query_available_agents(ROCPROFILER_AGENT_INFO_VERSION_0, agents, sizeof(rocprofiler_agent_t), &gpus));
  CHECK(rocprofiler_create_context(&utility));
  static const rocprofiler_tracing_operation_t objects[] = {ROCPROFILER_CODE_OBJECT_DEVICE_KERNEL_SYMBOL_REGISTER};
  CHECK(rocprofiler_configure_callback_tracing_service(utility, ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT, objects, 1, code_objects, NULL));
  CHECK(rocprofiler_start_context(utility));
  CHECK(rocprofiler_create_context(&context));
  CHECK(rocprofiler_create_buffer(context, 100 * 4096, 20 * 4096, ROCPROFILER_BUFFER_POLICY_LOSSLESS, records, data, &buffer));
  CHECK(rocprofiler_configure_buffer_tracing_service(context, ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API, NULL, 0, buffer));
  CHECK(rocprofiler_configure_buffer_tracing_service(context, ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH, NULL, 0, buffer));
  CHECK(rocprofiler_configure_buffer_tracing_service(context, ROCPROFILER_BUFFER_TRACING_MEMORY_COPY, NULL, 0, buffer));
  CHECK(rocprofiler_configure_callback_tracing_service(context, ROCPROFILER_CALLBACK_TRACING_HIP_RUNTIME_API, NULL, 0, annotations, NULL));
  rocprofiler_callback_thread_t thread;
  CHECK(rocprofiler_create_callback_thread(&thread));
  CHECK(rocprofiler_assign_callback_thread(buffer, thread));
  int valid = 0;
  CHECK(rocprofiler_context_is_valid(context, &valid));
  return valid ? 0 : -1;
}

static void finalize(void *data) {
  (void)data;
  rocprofiler_stop_context(utility);
  rocprofiler_stop_context(context);
}

EXPORT rocprofiler_tool_configure_result_t *rocprofiler_configure(uint32_t version, const char *text, uint32_t priority,
                                                                  rocprofiler_client_id_t *id) {
  static rocprofiler_tool_configure_result_t result = {sizeof result, initialize, finalize, NULL};
  (void)version, (void)text, (void)priority;
  id->name = "XLA's calls";
  return &result;
}

__attribute__((constructor)) static void force(void) { CHECK(rocprofiler_force_configure(rocprofiler_configure)); }

void client_begin(const char *argument) { (void)argument; }

static rocprofiler_status_t client_start(void) { return CHECK(rocprofiler_start_context(context)); }

static rocprofiler_status_t client_stop(void) {
  rocprofiler_status_t status = CHECK(rocprofiler_stop_context(context));
  return status ? status : CHECK(rocprofiler_flush_buffer(buffer));
}

static rocprofiler_status_t client_flush(void) { return CHECK(rocprofiler_flush_buffer(buffer)); }
