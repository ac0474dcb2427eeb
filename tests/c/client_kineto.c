// The calls of PyTorch Kineto's AMD plug-in (libkineto/src/RocprofLogger.cpp), in its order: it registers itself when it
// first starts, by a visible rocprofiler_configure that it also forces; a context of kernel symbols that always runs; one
// of all HIP calls but ten, of dispatches and copies, started and stopped with each window, and flushed at its end.
#include "client.h"

static rocprofiler_context_id_t utility, context;
static rocprofiler_buffer_id_t buffer;
static rocprofiler_tracing_operation_t wanted[1024];
static size_t wanted_count;
static atomic_ulong arguments;

static int want(rocprofiler_callback_tracing_kind_t kind, rocprofiler_tracing_operation_t operation, void *data) {
  static const char *const omitted[] = {"hipGetDevice",         "hipSetDevice",          "hipGetLastError",    "hipCtxSetCurrent",
                                        "hipGetDevicePropertiesR0600", "hipGetDeviceCount", "hipDeviceGetAttribute",
                                        "hipRuntimeGetVersion", "hipPeekAtLastError",    "hipModuleGetFunction"};
  const char *name = NULL;
  (void)data;
  CHECK(rocprofiler_query_callback_tracing_kind_operation_name(kind, operation, &name, NULL));
  for (size_t i = 0; i < sizeof omitted / sizeof *omitted; i++)
    if (name && !strcmp(name, omitted[i])) return 0;
  if (wanted_count < sizeof wanted / sizeof *wanted) wanted[wanted_count++] = operation;
  return 0;
}

static int an_argument(rocprofiler_callback_tracing_kind_t kind, rocprofiler_tracing_operation_t operation, uint32_t number, const void *value,
                       int32_t indirection, const char *type, const char *name, const char *text, int32_t dereferenced, void *data) {
  (void)kind, (void)operation, (void)number, (void)indirection, (void)type, (void)dereferenced, (void)data;
  arguments += value && name && text;
  return 0;
}

static void api(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t *user, void *data) {
  if (record.kind != ROCPROFILER_CALLBACK_TRACING_HIP_RUNTIME_API) return;
  bool launch = record.operation == ROCPROFILER_HIP_RUNTIME_API_ID_hipModuleLaunchKernel;
  if (launch) calls(record, user, data);
  if (record.phase == ROCPROFILER_CALLBACK_PHASE_EXIT && launch)
    CHECK(rocprofiler_iterate_callback_tracing_kind_operation_args(record, an_argument, 1, NULL));
}

static int initialize(rocprofiler_client_finalize_t finalize, void *data) {
  (void)finalize, (void)data;
  CHECK(rocprofiler_iterate_callback_tracing_kinds(a_callback_kind, NULL));
  CHECK(rocprofiler_iterate_buffer_tracing_kinds(a_buffer_kind, NULL));
  unsigned gpus = 0;
  CHECK(rocprofiler_query_available_agents(ROCPROFILER_AGENT_INFO_VERSION_0, agents, sizeof(rocprofiler_agent_t), &gpus));
  CHECK(rocprofiler_create_context(&utility));
  static const rocprofiler_tracing_operation_t objects[] = {ROCPROFILER_CODE_OBJECT_DEVICE_KERNEL_SYMBOL_REGISTER};
  CHECK(rocprofiler_configure_callback_tracing_service(utility, ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT, objects, 1, code_objects, NULL));
  int valid = 0;
  CHECK(rocprofiler_context_is_valid(utility, &valid));
  if (!valid) return -1;
  CHECK(rocprofiler_start_context(utility));
  CHECK(rocprofiler_iterate_callback_tracing_kind_operations(ROCPROFILER_CALLBACK_TRACING_HIP_RUNTIME_API, want, NULL));
  CHECK(rocprofiler_create_context(&context));
  CHECK(rocprofiler_configure_callback_tracing_service(context, ROCPROFILER_CALLBACK_TRACING_HIP_RUNTIME_API, wanted, wanted_count, api, NULL));
  CHECK(rocprofiler_create_buffer(context, 0x40000, 0x20000, ROCPROFILER_BUFFER_POLICY_LOSSLESS, records, NULL, &buffer));
  CHECK(rocprofiler_configure_buffer_tracing_service(context, ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH, NULL, 0, buffer));
  CHECK(rocprofiler_configure_buffer_tracing_service(context, ROCPROFILER_BUFFER_TRACING_MEMORY_COPY, NULL, 0, buffer));
  CHECK(rocprofiler_context_is_valid(context, &valid));
  return valid ? 0 : -1;
}

static void finalize(void *data) {
  (void)data;
  rocprofiler_stop_context(utility);
  rocprofiler_stop_context(context);
  rocprofiler_flush_buffer(buffer);
}

EXPORT rocprofiler_tool_configure_result_t *rocprofiler_configure(uint32_t version, const char *text, uint32_t priority,
                                                                  rocprofiler_client_id_t *id) {
  static rocprofiler_tool_configure_result_t result = {sizeof result, initialize, finalize, NULL};
  (void)version, (void)text, (void)priority;
  id->name = "kineto's calls";
  return &result;
}

void client_begin(const char *argument) { (void)argument; }

static rocprofiler_status_t client_start(void) {
  int initialized = 0, active = 0;
  rocprofiler_is_initialized(&initialized);
  if (initialized == 0) CHECK(rocprofiler_force_configure(rocprofiler_configure));
  if (!context.handle) return ROCPROFILER_STATUS_ERROR;
  CHECK(rocprofiler_context_is_active(context, &active));
  return active ? ROCPROFILER_STATUS_SUCCESS : CHECK(rocprofiler_start_context(context));
}

static rocprofiler_status_t client_stop(void) {
  int active = 0;
  CHECK(rocprofiler_context_is_active(context, &active));
  if (!active) return ROCPROFILER_STATUS_SUCCESS;
  CHECK(rocprofiler_stop_context(context));
  return CHECK(rocprofiler_flush_buffer(buffer));
}

static rocprofiler_status_t client_flush(void) { return gathered > 1000 && arguments ? CHECK(rocprofiler_flush_buffer(buffer)) : ROCPROFILER_STATUS_ERROR; }
