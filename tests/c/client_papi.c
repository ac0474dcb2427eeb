// The calls of PAPI's component rocp_sdk (src/components/rocp_sdk/sdk_class.cpp), in its order: every function is looked up
// in a library that is loaded by name, and a missing one puts the component out; forced; one context, one buffer, device
// counters for each GPU. Counters that the machine does not give are refused with a status, which PAPI tells its user.
#include "client.h"

static rocprofiler_context_id_t context;
static rocprofiler_buffer_id_t buffer;
static rocprofiler_agent_id_t gpu;
static int counting = -1;

#define FUNCTIONS(f)                                                                                                          \
  f(flush_buffer) f(sample_device_counting_service) f(configure_callback_dispatch_counting_service)                           \
      f(configure_device_counting_service) f(create_context) f(create_buffer) f(start_context) f(stop_context)                \
          f(context_is_valid) f(context_is_active) f(create_profile_config) f(force_configure) f(get_status_string)           \
              f(get_thread_id) f(is_finalized) f(is_initialized) f(iterate_agent_supported_counters)                          \
                  f(iterate_counter_dimensions) f(query_available_agents) f(query_counter_info)                               \
                      f(query_counter_instance_count) f(query_record_counter_id) f(query_record_dimension_position)
#define DECLARE(name) static __typeof__(&rocprofiler_##name) p_##name;
FUNCTIONS(DECLARE)

static rocprofiler_status_t find_gpu(rocprofiler_agent_version_t version, const void **list, size_t count, void *gpus) {
  for (size_t i = 0; i < count; i++)
    if (((const rocprofiler_agent_t *)list[i])->type == ROCPROFILER_AGENT_TYPE_GPU) gpu = ((const rocprofiler_agent_t *)list[i])->id;
  return agents(version, list, count, gpus);
}

static void set_config(rocprofiler_context_id_t id, rocprofiler_agent_id_t agent, rocprofiler_device_counting_agent_cb_t set, void *data) {
  (void)id, (void)agent, (void)set, (void)data;
}

static int initialize(rocprofiler_client_finalize_t finalize, void *data) {
  (void)finalize;
  unsigned gpus = 0;
  CHECK(p_query_available_agents(ROCPROFILER_AGENT_INFO_VERSION_0, find_gpu, sizeof(rocprofiler_agent_t), &gpus));
  CHECK(p_create_context(&context));
  CHECK(p_create_buffer(context, 32 << 10, 16 << 10, ROCPROFILER_BUFFER_POLICY_LOSSLESS, records, data, &buffer));
  counting = p_configure_device_counting_service(context, buffer, gpu, set_config, NULL);
  // PAPI throws here.
  if (counting) return -1;
  int valid = 0;
  CHECK(p_context_is_valid(context, &valid));
  return valid ? 0 : -1;
}

static void finalize(void *data) { (void)data; }

static rocprofiler_tool_configure_result_t *configure(uint32_t version, const char *text, uint32_t priority, rocprofiler_client_id_t *id) {
  static char tool_data[] = "";
  static rocprofiler_tool_configure_result_t result = {sizeof result, initialize, finalize, tool_data};
  (void)version, (void)text, (void)priority;
  id->name = "PAPI's calls";
  return &result;
}

void client_begin(const char *directory) {
  char path[512];
  snprintf(path, sizeof path, "%s/librocprofiler-sdk.so", directory);
  void *sdk = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (!sdk) {
    printf("no sdk: %s\n", dlerror());
    return;
  }
#define FIND(name)                                             \
  *(void **)&p_##name = dlsym(sdk, "rocprofiler_" #name);      \
  if (!p_##name) printf("missing rocprofiler_%s\n", #name), failed++;
  FUNCTIONS(FIND)
}

// What the component does in its first use: the status that PAPI makes its reason of.
static rocprofiler_status_t client_start(void) {
  int initialized = 0;
  CHECK(p_is_initialized(&initialized));
  rocprofiler_status_t status = p_force_configure(configure);
  const char *text = p_get_status_string(counting);
  if (status && counting > 0 && text && *text) return ROCPROFILER_STATUS_SUCCESS;
  return status ? ROCPROFILER_STATUS_ERROR : ROCPROFILER_STATUS_SUCCESS;
}
static rocprofiler_status_t client_stop(void) { return ROCPROFILER_STATUS_SUCCESS; }
static rocprofiler_status_t client_flush(void) { return CHECK(p_flush_buffer(buffer)); }
