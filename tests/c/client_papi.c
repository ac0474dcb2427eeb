// The calls of PAPI's component rocp_sdk (src/components/rocp_sdk/sdk_class.cpp), in its order: every function is looked up
// in a library that is loaded by name, and a missing one puts the component out; forced; one context, one buffer, device
// counters for each GPU, which it reads between a start and a stop. For its first event it asks for all counters and where each
// has values. "flush" reads: kernels = the sum over SQ_WAVES' places, copies = how many places, named = counters that there are.
#include "client.h"

static rocprofiler_context_id_t context;
static rocprofiler_buffer_id_t buffer;
static rocprofiler_agent_id_t gpu;
static rocprofiler_counter_id_t waves;
static rocprofiler_counter_config_id_t config;
static size_t room;

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
  (void)data;
  if (agent.handle == gpu.handle && config.handle) CHECK(set(id, config));
}

static rocprofiler_status_t places(rocprofiler_counter_id_t id, const rocprofiler_counter_record_dimension_info_t *dims, size_t count, void *data) {
  (void)id, (void)dims;
  wrong += count == 0;
  *(size_t *)data += count;
  return ROCPROFILER_STATUS_SUCCESS;
}

static rocprofiler_status_t counters(rocprofiler_agent_id_t agent, rocprofiler_counter_id_t *list, size_t count, void *data) {
  for (size_t i = 0; i < count; i++) {
    rocprofiler_counter_info_v0_t info;
    CHECK(p_query_counter_info(list[i], ROCPROFILER_COUNTER_INFO_VERSION_0, &info));
    CHECK(p_iterate_counter_dimensions(info.id, places, data));
    if (strcmp(info.name, "SQ_WAVES")) continue;
    waves = info.id;
    CHECK(p_query_counter_instance_count(agent, info.id, &room));
  }
  named = count;
  return ROCPROFILER_STATUS_SUCCESS;
}

static int initialize(rocprofiler_client_finalize_t finalize, void *data) {
  (void)finalize;
  unsigned gpus = 0;
  CHECK(p_query_available_agents(ROCPROFILER_AGENT_INFO_VERSION_0, find_gpu, sizeof(rocprofiler_agent_t), &gpus));
  CHECK(p_create_context(&context));
  CHECK(p_create_buffer(context, 32 << 10, 16 << 10, ROCPROFILER_BUFFER_POLICY_LOSSLESS, records, data, &buffer));
  CHECK(p_configure_device_counting_service(context, buffer, gpu, set_config, NULL));
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

// PAPI_start: the component's first use comes before it.
static rocprofiler_status_t client_start(void) {
  int initialized = 0;
  CHECK(p_is_initialized(&initialized));
  if (!context.handle && CHECK(p_force_configure(configure))) return ROCPROFILER_STATUS_ERROR;
  size_t dimensions = 0;
  if (!config.handle) {
    CHECK(p_iterate_agent_supported_counters(gpu, counters, &dimensions));
    CHECK(p_create_profile_config(gpu, &waves, 1, &config));
  }
  return CHECK(p_start_context(context));
}
static rocprofiler_status_t client_stop(void) { return CHECK(p_stop_context(context)); }
// PAPI_read.
static rocprofiler_status_t client_flush(void) {
  rocprofiler_counter_record_t values[64];
  size_t count = sizeof values / sizeof *values;
  rocprofiler_user_data_t none = {0};
  rocprofiler_status_t status = CHECK(p_sample_device_counting_service(context, none, ROCPROFILER_COUNTER_FLAG_NONE, values, &count));
  if (status) return status;
  double sum = 0;
  for (size_t i = 0; i < count; i++) {
    rocprofiler_counter_id_t of = {0};
    CHECK(p_query_record_counter_id(values[i].id, &of));
    wrong += of.handle != waves.handle || values[i].agent_id.handle != gpu.handle;
    sum += values[i].counter_value;
  }
  kernels = (unsigned long)sum;
  copies = count;
  wrong += count != room;
  return CHECK(p_flush_buffer(buffer));
}
