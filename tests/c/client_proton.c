// The calls of Triton's profiler Proton with rocprofiler-sdk (as of triton 3.9, without graphs), in its order: configured
// when its library is loaded, through functions that are looked up in a library that is found by its path; a context of
// code objects that always runs, and one of launches and dispatches that stays on once it was started.
// client_begin's argument: the directory of the SDK.
#include "client.h"

static rocprofiler_context_id_t always, profiling;
static rocprofiler_buffer_id_t buffer;
static rocprofiler_callback_thread_t thread;
static bool started;

#define FUNCTIONS(f)                                                                                                   \
  f(create_context) f(configure_callback_tracing_service) f(create_buffer) f(configure_buffer_tracing_service)         \
      f(create_callback_thread) f(assign_callback_thread) f(query_available_agents) f(start_context) f(stop_context)   \
          f(flush_buffer) f(force_configure) f(get_timestamp)
#define DECLARE(name) static __typeof__(&rocprofiler_##name) p_##name;
FUNCTIONS(DECLARE)

static int initialize(rocprofiler_client_finalize_t finalize, void *data) {
  (void)finalize, (void)data;
  CHECK(p_create_context(&always));
  static const rocprofiler_tracing_operation_t objects[] = {ROCPROFILER_CODE_OBJECT_LOAD, ROCPROFILER_CODE_OBJECT_DEVICE_KERNEL_SYMBOL_REGISTER};
  CHECK(p_configure_callback_tracing_service(always, ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT, objects, 2, code_objects, NULL));
  CHECK(p_create_context(&profiling));
  static const rocprofiler_tracing_operation_t launches[] = {
      ROCPROFILER_HIP_RUNTIME_API_ID_hipLaunchKernel,
      ROCPROFILER_HIP_RUNTIME_API_ID_hipExtLaunchKernel,
      ROCPROFILER_HIP_RUNTIME_API_ID_hipExtLaunchMultiKernelMultiDevice,
      ROCPROFILER_HIP_RUNTIME_API_ID_hipExtModuleLaunchKernel,
      ROCPROFILER_HIP_RUNTIME_API_ID_hipHccModuleLaunchKernel,
      ROCPROFILER_HIP_RUNTIME_API_ID_hipLaunchCooperativeKernel,
      ROCPROFILER_HIP_RUNTIME_API_ID_hipLaunchCooperativeKernelMultiDevice,
      ROCPROFILER_HIP_RUNTIME_API_ID_hipModuleLaunchKernel,
      ROCPROFILER_HIP_RUNTIME_API_ID_hipModuleLaunchCooperativeKernel,
      ROCPROFILER_HIP_RUNTIME_API_ID_hipModuleLaunchCooperativeKernelMultiDevice,
  };
  CHECK(p_configure_callback_tracing_service(profiling, ROCPROFILER_CALLBACK_TRACING_HIP_RUNTIME_API, launches,
                                             sizeof launches / sizeof *launches, calls, NULL));
  static const rocprofiler_tracing_operation_t ranges[] = {ROCPROFILER_MARKER_CORE_API_ID_roctxRangePushA,
                                                           ROCPROFILER_MARKER_CORE_API_ID_roctxRangePop};
  CHECK(p_configure_callback_tracing_service(profiling, ROCPROFILER_CALLBACK_TRACING_MARKER_CORE_API, ranges, 2, calls, NULL));
  const size_t size = 64 << 20;
  CHECK(p_create_buffer(profiling, size, size - size / 8, ROCPROFILER_BUFFER_POLICY_LOSSLESS, records, NULL, &buffer));
  CHECK(p_configure_buffer_tracing_service(profiling, ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH, NULL, 0, buffer));
  CHECK(p_create_callback_thread(&thread));
  CHECK(p_assign_callback_thread(buffer, thread));
  unsigned gpus = 0;
  CHECK(p_query_available_agents(ROCPROFILER_AGENT_INFO_VERSION_0, agents, sizeof(rocprofiler_agent_t), &gpus));
  CHECK(p_start_context(always));
  return 0;
}

static void finalize(void *data) {
  (void)data;
  if (started) p_stop_context(profiling);
  p_stop_context(always);
  p_flush_buffer(buffer);
}

static rocprofiler_tool_configure_result_t *configure(uint32_t version, const char *text, uint32_t priority, rocprofiler_client_id_t *id) {
  static rocprofiler_tool_configure_result_t result = {sizeof result, initialize, finalize, NULL};
  (void)version, (void)text, (void)priority;
  id->name = "proton's calls";
  return &result;
}

void client_begin(const char *directory) {
  char path[512];
  void *sdk = NULL;
  static const char *const libraries[] = {"librocprofiler-register.so", "librocprofiler-sdk.so"};
  for (int i = 0; i < 2; i++) {
    snprintf(path, sizeof path, "%s/%s", directory, libraries[i]);
    sdk = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!sdk) sdk = dlopen(libraries[i], RTLD_NOW | RTLD_GLOBAL);
  }
  if (!sdk) {
    printf("no sdk: %s\n", dlerror());
    return;
  }
#define FIND(name) *(void **)&p_##name = dlsym(sdk, "rocprofiler_" #name);
  FUNCTIONS(FIND)
  CHECK(p_force_configure(configure));
}

static rocprofiler_status_t client_start(void) {
  rocprofiler_timestamp_t now;
  if (!started && CHECK(p_start_context(profiling)) != ROCPROFILER_STATUS_SUCCESS) return ROCPROFILER_STATUS_ERROR;
  started = true;
  return CHECK(p_get_timestamp(&now));
}

// Proton leaves its context running; this is what it does at its end.
static rocprofiler_status_t client_stop(void) {
  started = false;
  rocprofiler_status_t status = CHECK(p_stop_context(profiling));
  return status ? status : CHECK(p_stop_context(always));
}

// It flushes until all that it saw launched is there, 250 times at most.
static rocprofiler_status_t client_flush(void) {
  rocprofiler_status_t status = ROCPROFILER_STATUS_SUCCESS;
  for (int i = 0; i < 250 && kernels < exits && status == ROCPROFILER_STATUS_SUCCESS; i++) {
    status = p_flush_buffer(buffer);
    usleep(10);
  }
  return status;
}
