// A tool of another vendor with callback tracing: called for each call on the thread that makes it, it
// writes one line per call to LOG (a path of the target's, given at compile time), with the
// arguments as the interface words them, and one line per session:
//   call TID FUNCTION ARGUMENT... -> RESULT       calls that no other told call is around
//   range FUNCTION MESSAGE                        marks and ranges, as they end
//   end enters=N exits=N inner=N foreign=N kernels=N runtimes=N core=N ranges=N wrong=N
// hipSetDevice(98) makes it stop its context for calls, from within.
#define _GNU_SOURCE
#include "../../crates/target/sdk-control/tests/c/sdk.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { HSA_CORE = 1, HIP_RUNTIME = 5, MARKER_CORE = 7, DISPATCH = 12, RUNTIME = 17, RANGE = 21, RANGE_RECORD = 32, LOSSLESS = 2, ENTER = 1, EXIT = 2 };
int rocprofiler_query_callback_tracing_kind_operation_name(int, int, const char **, uint64_t *);
int rocprofiler_push_external_correlation_id(rocprofiler_context_id_t, uint64_t, rocprofiler_user_data_t);
int rocprofiler_pop_external_correlation_id(rocprofiler_context_id_t, uint64_t, rocprofiler_user_data_t *);
int rocprofiler_iterate_callback_tracing_kind_operations(int, int (*)(int, int32_t, void *), void *);
int rocprofiler_iterate_callback_tracing_kind_operation_args(rocprofiler_callback_tracing_record_t,
                                                             int (*)(int, int32_t, uint32_t, const void *, int32_t, const char *, const char *,
                                                                     const char *, int32_t, void *),
                                                             int32_t, void *);

static rocprofiler_context_id_t calls, filtered, rest;
static rocprofiler_buffer_id_t buffer;
static FILE *file;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_ulong enters, exits, inner, foreign, kernels, runtimes, core, ranges, wrong;
// The end of a call that had not returned is reported elsewhere: each session counts a thread's open calls anew.
static __thread unsigned depth, depth_of;
static atomic_uint session;
static char here;

typedef struct {
  uint64_t correlation, tid;
  char text[1024];
} told_t;

static int argument(int kind, int32_t operation, uint32_t number, const void *address, int32_t levels, const char *type, const char *name,
                    const char *value, int32_t read, void *data) {
  (void)kind, (void)operation, (void)number, (void)levels, (void)read;
  told_t *told = data;
  wrong += !address || !*type || !*name;
  size_t at = strlen(told->text);
  snprintf(told->text + at, sizeof told->text - at, " %s", value);
  return 0;
}

static void tell(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t *user, void *data) {
  const uint64_t *words = record.payload;
  uint64_t tid = syscall(SYS_gettid);
  if (depth_of != session) depth_of = session, depth = 0;
  // External correlation ids: one context has values for the first thread.
  bool ours = record.context_id.handle == calls.handle && record.thread_id == (uint64_t)getpid();
  wrong += data != &here || !record.correlation_id.internal || record.correlation_id.external.value != (ours ? 0x77 : 0);
  wrong += words[0] != (record.kind == HIP_RUNTIME ? 120 : record.kind == HSA_CORE ? 208 : 32);
  if (record.phase == ENTER) {
    told_t *told = calloc(1, sizeof *told);
    const char *name = "";
    wrong += rocprofiler_query_callback_tracing_kind_operation_name(record.kind, record.operation, &name, NULL) != 0;
    snprintf(told->text, sizeof told->text, "%s", name);
    wrong += rocprofiler_iterate_callback_tracing_kind_operation_args(record, argument, 1, told) != 0;
    told->correlation = record.correlation_id.internal, told->tid = tid;
    // A call may also be inside one that is no longer reported.
    wrong += user->value != 0 || record.thread_id != tid || (record.correlation_id.ancestor == 0 && depth);
    user->ptr = told;
    depth++;
    enters++;
    if (!strcmp(told->text, "hipSetDevice 98")) wrong += rocprofiler_stop_context(calls) != 0;
    return;
  }
  told_t *told = user->ptr;
  wrong += record.phase != EXIT || !told;
  if (!told) return;
  wrong += told->correlation != record.correlation_id.internal || told->tid != record.thread_id;
  exits++;
  // At the end of a session the end of a call that has not returned is reported on another thread.
  if (told->tid == tid) depth--;
  else foreign++;
  if (record.correlation_id.ancestor) inner++;
  else if (told->tid == tid) {
    long result = record.kind == HIP_RUNTIME ? *(const int *)(words + 12) : (long)words[record.kind == HSA_CORE ? 25 : 3];
    pthread_mutex_lock(&lock);
    if (file) fprintf(file, "call %lu %s -> %ld\n", tid, told->text, result);
    pthread_mutex_unlock(&lock);
  }
  free(told);
}

static void range(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t *user, void *data) {
  const uint64_t *words = record.payload;
  const char *name = "", *message = *(const char *const *)(words + 1);
  told_t text = {0};
  wrong += data != &here || words[0] != 32 || record.kind != RANGE;
  if (record.phase == ENTER) {
    wrong += rocprofiler_iterate_callback_tracing_kind_operation_args(record, argument, 1, &text) != 0;
    wrong += user->value != 0 || !message || strcmp(text.text + 1, message);
    user->ptr = strdup(message ? message : "");
    return;
  }
  // The message is what it was, though the application's own may be gone.
  wrong += record.phase != EXIT || !user->ptr || !message || strcmp(user->ptr, message);
  rocprofiler_query_callback_tracing_kind_operation_name(record.kind, record.operation, &name, NULL);
  pthread_mutex_lock(&lock);
  if (file) fprintf(file, "range %s %s\n", name, message ? message : "");
  pthread_mutex_unlock(&lock);
  free(user->ptr);
}

static void records(rocprofiler_context_id_t context, rocprofiler_buffer_id_t of, rocprofiler_record_header_t **headers, size_t count,
                    void *data, uint64_t drop) {
  (void)context, (void)of, (void)data;
  wrong += drop;
  for (size_t n = 0; n < count; n++) {
    // Records of ROCTx are laid out as records of HSA calls.
    const rocprofiler_buffer_tracing_hsa_api_record_t *record = headers[n]->payload;
    wrong += record->size != 64 || record->end_timestamp < record->start_timestamp || !record->thread_id;
    wrong += record->correlation_id.external.value != (record->thread_id == (uint64_t)getpid() ? 0x88 : 0);
    if (record->kind == MARKER_CORE) core++;
    else if (record->kind == RANGE_RECORD) ranges++;
    else wrong++;
  }
}

static void late(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t *user, void *data) {
  (void)user, (void)data;
  const uint64_t *words = record.payload;
  if (record.kind == DISPATCH && record.operation == 1) {
    // Before it: no times yet.
    wrong += words[0] != 152 || words[1] || words[2] || !record.thread_id || (record.phase != ENTER && record.phase != EXIT);
    return;
  }
  wrong += record.phase != 0;
  if (record.kind == DISPATCH) {
    kernels++;
    wrong += words[0] != 152 || record.operation != 2 || words[2] <= words[1] || !record.thread_id;
  } else {
    runtimes++;
    wrong += words[0] != 24;
  }
}

static int choose(int kind, int32_t operation, void *data) {
  int32_t *chosen = data;
  const char *name = "", *wanted[] = {"hsa_signal_create", "hsa_signal_load_relaxed", "hsa_signal_destroy", "hsa_signal_wait_scacquire"};
  rocprofiler_query_callback_tracing_kind_operation_name(kind, operation, &name, NULL);
  for (int n = 0; n < 4; n++)
    if (!strcmp(name, wanted[n])) chosen[++chosen[0]] = operation;
  return 0;
}

static int initialize(client_finalize end, void *data) {
  (void)end, (void)data;
  int32_t chosen[5] = {0};
  int failed = rocprofiler_create_context(&calls) || rocprofiler_create_context(&filtered) || rocprofiler_create_context(&rest) ||
               rocprofiler_iterate_callback_tracing_kind_operations(HSA_CORE, choose, chosen) || chosen[0] != 4;
  failed |= rocprofiler_configure_callback_tracing_service(calls, HIP_RUNTIME, NULL, 0, tell, &here);
  failed |= rocprofiler_configure_callback_tracing_service(calls, MARKER_CORE, NULL, 0, tell, &here);
  failed |= rocprofiler_configure_callback_tracing_service(filtered, HSA_CORE, chosen + 1, 4, tell, &here);
  failed |= rocprofiler_configure_callback_tracing_service(rest, DISPATCH, NULL, 0, late, &here);
  failed |= rocprofiler_configure_callback_tracing_service(rest, RUNTIME, NULL, 0, late, &here);
  failed |= rocprofiler_configure_callback_tracing_service(rest, RANGE, NULL, 0, range, &here);
  failed |= rocprofiler_create_buffer(rest, 1 << 16, 1 << 14, LOSSLESS, records, NULL, &buffer);
  failed |= rocprofiler_configure_buffer_tracing_service(rest, MARKER_CORE, NULL, 0, buffer);
  failed |= rocprofiler_configure_buffer_tracing_service(rest, RANGE_RECORD, NULL, 0, buffer);
  return failed;
}

static int attached(client_finalize end, rocprofiler_context_id_t *contexts, uint64_t count, void *data) {
  (void)end, (void)data;
  file = fopen(LOG, "a");
  session++;
  enters = exits = inner = foreign = kernels = runtimes = core = ranges = wrong = 0;
  rocprofiler_user_data_t value = {.value = 0x55};
  rocprofiler_push_external_correlation_id(calls, getpid(), value);
  value.value = 0x77;
  wrong += rocprofiler_push_external_correlation_id(calls, getpid(), value) != 0;
  value.value = 0x88;
  wrong += rocprofiler_push_external_correlation_id(rest, getpid(), value) != 0;
  for (uint64_t n = 0; n < count; n++)
    if (rocprofiler_start_context(contexts[n])) return -1;
  return count == 3 && file ? 0 : -1;
}

static void detached(void *data) {
  (void)data;
  rocprofiler_flush_buffer(buffer);
  rocprofiler_user_data_t value = {0};
  for (int n = 0; n < 3; n++) {
    int failed = rocprofiler_pop_external_correlation_id(calls, getpid(), &value);
    wrong += n == 2 ? !failed : failed || value.value != (n ? 0x55 : 0x77);
  }
  wrong += rocprofiler_pop_external_correlation_id(rest, getpid(), NULL) != 0;
  pthread_mutex_lock(&lock);
  fprintf(file, "end enters=%lu exits=%lu inner=%lu foreign=%lu kernels=%lu runtimes=%lu core=%lu ranges=%lu wrong=%lu\n", enters, exits, inner,
          foreign, kernels, runtimes, core, ranges, wrong);
  fclose(file);
  file = NULL;
  pthread_mutex_unlock(&lock);
}

rocprofiler_tool_configure_result_t *rocprofiler_configure(uint32_t version, const char *words, uint32_t priority, rocprofiler_client_id_t *me) {
  static rocprofiler_tool_configure_result_t result = {sizeof result, initialize, NULL, NULL};
  (void)version, (void)words, (void)priority;
  me->name = "callback tool";
  return &result;
}

rocprofiler_tool_configure_attach_result_t *rocprofiler_configure_attach(uint32_t version, const char *words, uint32_t priority,
                                                                         rocprofiler_client_id_t *me) {
  static rocprofiler_tool_configure_attach_result_t result = {sizeof result, attached, detached, NULL};
  (void)version, (void)words, (void)priority, (void)me;
  return &result;
}
