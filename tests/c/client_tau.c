// The calls of TAU's rocprofiler-sdk layer (src/Profile/TauRocProfilerSDK.cpp), in its order: one context that is started
// at the end of its initialisation and never stopped, a buffer of one page, a thread for it, a flush before TAU ends, and
// one whenever a code object goes.
#include "client.h"

static rocprofiler_context_id_t context;
static rocprofiler_buffer_id_t buffer;

static void objects(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t *user, void *data) {
  if (record.operation == ROCPROFILER_CODE_OBJECT_LOAD && record.phase == ROCPROFILER_CALLBACK_PHASE_UNLOAD) {
    rocprofiler_status_t status = rocprofiler_flush_buffer(buffer);
    if (status != ROCPROFILER_STATUS_ERROR_BUFFER_BUSY) CHECK(status);
  }
  code_objects(record, user, data);
}

static int initialize(rocprofiler_client_finalize_t finalize, void *data) {
  (void)finalize;
  unsigned gpus = 0;
  CHECK(rocprofiler_query_available_agents(ROCPROFILER_AGENT_INFO_VERSION_0, agents, sizeof(rocprofiler_agent_t), &gpus));
  if (!data || !gpus) return 1;
  CHECK(rocprofiler_iterate_buffer_tracing_kinds(a_buffer_kind, NULL));
  CHECK(rocprofiler_create_context(&context));
  static const rocprofiler_tracing_operation_t symbols_only[] = {ROCPROFILER_CODE_OBJECT_DEVICE_KERNEL_SYMBOL_REGISTER};
  CHECK(rocprofiler_configure_callback_tracing_service(context, ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT, symbols_only, 1, objects, NULL));
  CHECK(rocprofiler_configure_callback_tracing_service(context, ROCPROFILER_CALLBACK_TRACING_MARKER_CORE_API, NULL, 0, calls, NULL));
  CHECK(rocprofiler_create_buffer(context, 4096, 4096 - 4096 / 8, ROCPROFILER_BUFFER_POLICY_LOSSLESS, records, data, &buffer));
  static const rocprofiler_buffer_tracing_kind_t kinds[] = {
      ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API, ROCPROFILER_BUFFER_TRACING_HIP_COMPILER_API, ROCPROFILER_BUFFER_TRACING_HSA_CORE_API,
      ROCPROFILER_BUFFER_TRACING_HSA_AMD_EXT_API, ROCPROFILER_BUFFER_TRACING_MEMORY_COPY,      ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH,
      ROCPROFILER_BUFFER_TRACING_SCRATCH_MEMORY,  ROCPROFILER_BUFFER_TRACING_MEMORY_ALLOCATION};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    CHECK(rocprofiler_configure_buffer_tracing_service(context, kinds[i], NULL, 0, buffer));
  rocprofiler_callback_thread_t thread;
  CHECK(rocprofiler_create_callback_thread(&thread));
  CHECK(rocprofiler_assign_callback_thread(buffer, thread));
  int valid = 0;
  CHECK(rocprofiler_context_is_valid(context, &valid));
  if (!valid) return -1;
  CHECK(rocprofiler_start_context(context));
  return 0;
}

static void finalize(void *data) { (void)data; }

EXPORT rocprofiler_tool_configure_result_t *rocprofiler_configure(uint32_t version, const char *text, uint32_t priority,
                                                                  rocprofiler_client_id_t *id) {
  static char tool_data[] = "";
  static rocprofiler_tool_configure_result_t result = {sizeof result, initialize, finalize, tool_data};
  (void)version, (void)text, (void)priority, (void)id;
  return &result;
}

// TAU is there when the process starts. If the client comes later, client_begin configures it.
void client_begin(const char *argument) {
  (void)argument;
  int initialized = 0;
  CHECK(rocprofiler_is_initialized(&initialized));
  if (!initialized) CHECK(rocprofiler_force_configure(rocprofiler_configure));
}

static rocprofiler_status_t client_start(void) { return ROCPROFILER_STATUS_SUCCESS; }
static rocprofiler_status_t client_stop(void) { return CHECK(rocprofiler_flush_buffer(buffer)); }
static rocprofiler_status_t client_flush(void) { return CHECK(rocprofiler_flush_buffer(buffer)); }
