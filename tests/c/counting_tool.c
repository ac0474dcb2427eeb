// A tool of another vendor, as its users build it: linked with librocprofiler-sdk.so.1, buffers and
// contexts by AMD's interface. It counts what its buffers bring and appends one line per session to
// LOG (a path of the target's, given at compile time).
#include "../../crates/target/sdk-control/tests/c/sdk.h"
#include <stdio.h>

enum { HIP_RUNTIME = 5, MEMORY_COPY = 10, KERNEL_DISPATCH = 11, LOSSLESS = 2 };

static rocprofiler_context_id_t context;
static rocprofiler_buffer_id_t buffer;
static unsigned long hip, kernels, copies, bytes, wrong, dropped;

static void records(rocprofiler_context_id_t c, rocprofiler_buffer_id_t b, rocprofiler_record_header_t **headers, size_t count, void *data,
                    uint64_t drop) {
  (void)c, (void)b, (void)data;
  dropped += drop;
  for (size_t i = 0; i < count; i++) {
    unsigned kind = headers[i]->hash_or_category_and_kind >> 32;
    const void *payload = headers[i]->payload;
    if (kind == HIP_RUNTIME) {
      const rocprofiler_buffer_tracing_hip_api_record_t *call = payload;
      hip++, wrong += call->end_timestamp < call->start_timestamp || !call->correlation_id.internal;
    } else if (kind == KERNEL_DISPATCH) {
      const rocprofiler_buffer_tracing_kernel_dispatch_record_t *kernel = payload;
      kernels++, wrong += kernel->end_timestamp <= kernel->start_timestamp || !kernel->dispatch_info.kernel_id;
    } else if (kind == MEMORY_COPY) {
      const rocprofiler_buffer_tracing_memory_copy_record_t *copy = payload;
      copies++, bytes += copy->bytes, wrong += copy->end_timestamp < copy->start_timestamp;
    } else {
      wrong++;
    }
  }
}

static int initialize(client_finalize end, void *data) {
  (void)end, (void)data;
  int failed = rocprofiler_create_context(&context) || rocprofiler_create_buffer(context, 1 << 16, 1 << 14, LOSSLESS, records, NULL, &buffer);
  for (int i = 0; i < 3; i++)
    failed |= rocprofiler_configure_buffer_tracing_service(context, (int[]){HIP_RUNTIME, KERNEL_DISPATCH, MEMORY_COPY}[i], NULL, 0, buffer);
  return failed;
}

static int attached(client_finalize end, rocprofiler_context_id_t *contexts, uint64_t count, void *data) {
  (void)end, (void)data;
  hip = kernels = copies = bytes = wrong = dropped = 0;
  return count == 1 ? rocprofiler_start_context(contexts[0]) : -1;
}

static void detached(void *data) {
  (void)data;
  rocprofiler_flush_buffer(buffer);
  FILE *log = fopen(LOG, "a");
  if (!log) return;
  fprintf(log, "hip=%lu kernels=%lu copies=%lu bytes=%lu wrong=%lu dropped=%lu\n", hip, kernels, copies, bytes, wrong, dropped);
  fclose(log);
}

rocprofiler_tool_configure_result_t *rocprofiler_configure(uint32_t version, const char *words, uint32_t priority, rocprofiler_client_id_t *me) {
  static rocprofiler_tool_configure_result_t result = {sizeof result, initialize, NULL, NULL};
  (void)version, (void)words, (void)priority;
  me->name = "counting tool";
  return &result;
}

rocprofiler_tool_configure_attach_result_t *rocprofiler_configure_attach(uint32_t version, const char *words, uint32_t priority,
                                                                         rocprofiler_client_id_t *me) {
  static rocprofiler_tool_configure_attach_result_t result = {sizeof result, attached, detached, NULL};
  (void)version, (void)words, (void)priority, (void)me;
  return &result;
}
