// A tool that is not linked with the SDK, and has no rocprofiler_configure_attach. Its context has no services. With MISSING it
// also calls a function that no library has.
#include "../../../crates/target/sdk-control/tests/c/sdk.h"

extern void no_such_function(void);

static int begin(client_finalize finalize, void *data) {
  rocprofiler_context_id_t context = {0};
  (void)finalize, (void)data;
#ifdef MISSING
  no_such_function();
#endif
  return rocprofiler_create_context(&context) || rocprofiler_start_context(context);
}

static void end(void *data) { (void)data; }

rocprofiler_tool_configure_result_t *rocprofiler_configure(uint32_t version, const char *runtime, uint32_t priority, rocprofiler_client_id_t *id) {
  static rocprofiler_tool_configure_result_t tool = {sizeof tool, begin, end, NULL};
  (void)version, (void)runtime, (void)priority, (void)id;
  return &tool;
}
