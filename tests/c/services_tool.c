// A tool that uses the services around work: callbacks of dispatches, copies, allocations, scratch
// memory and streams, external ids that it is asked for, retirement, runtimes' tables, and kinds of
// libraries that are not there. It writes one line per session to LOG:
//   end enqueued=N completed=N begun=N copied=N bytes=N allocated=N freed=N scratch=N set=N made=N
//       asked=N kernels=N retired=N wrong=N why=LINE
// "why" is the line of this file of the first thing that was wrong.
#define _GNU_SOURCE
#include "../../crates/target/sdk-control/tests/c/sdk.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SCRATCH = 11, DISPATCH = 12, COPY = 13, RCCL = 14, OMPT = 15, ALLOCATION = 16, ROCDECODE = 18, ROCJPEG = 19, STREAM = 20 };
enum { B_COPY = 10, B_DISPATCH = 11, B_RETIREMENT = 13, B_RCCL = 14, B_OMPT = 15, B_STREAM = 20, B_KFD_FIRST = 24, B_KFD_LAST = 31 };
enum { ASK_HIP = 5, ASK_COPY = 10, ASK_DISPATCH = 11, NONE = 0, ENTER = 1, EXIT = 2, LOSSLESS = 2, HSA_TABLE = 1 };
typedef int (*ask_t)(uint64_t, rocprofiler_context_id_t, int, int32_t, uint64_t, rocprofiler_user_data_t *, void *);
int rocprofiler_configure_external_correlation_id_request_service(rocprofiler_context_id_t, const int *, size_t, ask_t, void *);
int rocprofiler_query_external_correlation_id_request_kind_name(int, const char **, uint64_t *);
int rocprofiler_at_intercept_table_registration(void (*)(int, uint64_t, uint64_t, void **, uint64_t, void *), int, void *);
int rocprofiler_configure_pc_sampling_service(rocprofiler_context_id_t, uint64_t, int, int, uint64_t, rocprofiler_buffer_id_t, int);
int rocprofiler_thread_trace_decoder_create(uint64_t *, const char *);
int rocprofiler_configure_device_thread_trace_service(rocprofiler_context_id_t, uint64_t, void *, size_t, void (*)(void), uint64_t);
int rocprofiler_spm_destroy_counter_config(uint64_t);

static rocprofiler_context_id_t context;
static rocprofiler_buffer_id_t buffer;
static FILE *file;
static char here;
static atomic_ulong enqueued, completed, begun, copied, bytes, allocated, freed, scratch, set, made, asked, kernels, retired, tables, wrong, why;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread uint64_t current, depth;
static void expected(unsigned long line) {
  unsigned long none = 0;
  atomic_compare_exchange_strong(&why, &none, line);
  wrong++;
}
#define EXPECT(x) ((x) ? (void)0 : expected(__LINE__))

// Ids by what is known of them: 1 a record had it, 2 it is retired.
enum { IDS = 1 << 20 };
static unsigned char ids[IDS];

static void tell(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t *user, void *data) {
  const uint64_t *words = record.payload;
  EXPECT(data == &here && record.context_id.handle == context.handle);
  switch (record.kind) {
    case DISPATCH:
      EXPECT(words[0] == 152 && words[3] == 128 && words[4] && words[5] && words[6] && words[7]);
      EXPECT(record.correlation_id.external.value == record.correlation_id.internal + 1000000);
      if (record.operation == 1 && record.phase == ENTER) {
        EXPECT(!words[1] && !words[2] && !user->value && record.thread_id == (uint64_t)syscall(SYS_gettid));
        user->value = words[7] + 7;
      } else if (record.operation == 1) {
        EXPECT(record.phase == EXIT && user->value == words[7] + 7);
        enqueued++;
      } else {
        EXPECT(record.operation == 2 && record.phase == NONE && user->value == words[7] + 7 && words[1] && words[2] > words[1]);
        completed++;
      }
      break;
    case COPY:
      EXPECT(words[0] == 64 && record.operation >= 1 && record.operation <= 4 && words[3] && words[4] && words[5]);
      if (record.phase == ENTER) {
        EXPECT(!words[1] && !words[2] && !user->value && record.thread_id == (uint64_t)syscall(SYS_gettid));
        user->value = words[6] + 9;
        begun++;
      } else {
        EXPECT(record.phase == EXIT && user->value == words[6] + 9 && words[1] && words[2] >= words[1]);
        copied++;
        bytes += words[5];
      }
      break;
    case ALLOCATION:
      EXPECT(words[0] == 48 && record.operation >= 1 && record.operation <= 4);
      if (record.phase == ENTER) {
        // HIP also releases nothing at all.
        EXPECT(!user->value && (record.operation >= 3 || words[5]));
        user->value = 5;
      } else {
        EXPECT(record.phase == EXIT && user->value == 5 && words[2] >= words[1] && words[1]);
        if (record.operation == 1 && words[4]) {
          allocated++;
          EXPECT(words[3] && words[5]);
        }
        if (record.operation == 3 && words[4]) freed++;
      }
      break;
    case SCRATCH:
      EXPECT(words[0] == 56 && words[1] && words[2]);
      if (record.phase == EXIT) scratch++;
      break;
    case STREAM:
      EXPECT(words[0] == 24 && record.correlation_id.internal == 0 && (words[1] != 0) == (words[2] != 0));
      if (record.operation == 3 && record.phase == ENTER) current = words[1], depth++;
      else if (record.operation == 3) EXPECT(record.phase == EXIT && depth), depth--, set++;
      else if (record.operation == 1) EXPECT(record.phase == NONE && words[1] && words[2]), made++;
      else EXPECT(record.operation == 2 && record.phase == NONE);
      break;
    default: EXPECT(0);
  }
}

static int ask(uint64_t thread, rocprofiler_context_id_t of, int kind, int32_t operation, uint64_t internal, rocprofiler_user_data_t *value, void *data) {
  EXPECT(data == &here && of.handle == context.handle && thread && internal && operation > 0 && !value->value);
  EXPECT(kind == ASK_DISPATCH || kind == ASK_COPY);
  asked++;
  value->value = internal + 1000000;
  return 0;
}

static void records(rocprofiler_context_id_t c, rocprofiler_buffer_id_t b, rocprofiler_record_header_t **headers, size_t count, void *d, uint64_t drop) {
  (void)c, (void)b, (void)d;
  EXPECT(!drop);
  pthread_mutex_lock(&lock);
  for (size_t n = 0; n < count; n++) {
    const uint64_t *words = headers[n]->payload;
    unsigned kind = headers[n]->hash_or_category_and_kind >> 32;
    if (kind == B_RETIREMENT) {
      // Every record that has the id came before.
      EXPECT(words[0] == 32 && words[2] && words[3] && words[3] < IDS && !(ids[words[3]] & 2));
      ids[words[3] % IDS] |= 2;
      retired++;
    } else {
      // Correlation: internal, external.
      EXPECT(words[2] && words[2] < IDS && words[3] == words[2] + 1000000 && !(ids[words[2]] & 2));
      ids[words[2] % IDS] |= 1;
      if (kind == B_DISPATCH) kernels++;
      else EXPECT(kind == B_COPY);
    }
  }
  pthread_mutex_unlock(&lock);
}

static void table(int kind, uint64_t version, uint64_t instance, void **all, uint64_t count, void *data) {
  (void)instance;
  EXPECT(data == &here && kind == HSA_TABLE && version && count == 1 && all[0]);
  tables++;
}
static void nothing(void) {}

static int initialize(client_finalize end, void *data) {
  (void)end, (void)data;
  int kinds[] = {ASK_COPY, ASK_DISPATCH}, failed = rocprofiler_create_context(&context);
  int told[] = {DISPATCH, COPY, ALLOCATION, SCRATCH, STREAM, RCCL, OMPT, ROCDECODE, ROCJPEG};
  for (int n = 0; n < (int)(sizeof told / sizeof *told); n++)
    failed |= rocprofiler_configure_callback_tracing_service(context, told[n], NULL, 0, tell, &here);
  failed |= rocprofiler_create_buffer(context, 1 << 16, 1 << 14, LOSSLESS, records, NULL, &buffer);
  failed |= rocprofiler_configure_buffer_tracing_service(context, B_DISPATCH, NULL, 0, buffer);
  failed |= rocprofiler_configure_buffer_tracing_service(context, B_COPY, NULL, 0, buffer);
  failed |= rocprofiler_configure_buffer_tracing_service(context, B_RETIREMENT, NULL, 0, buffer);
  failed |= rocprofiler_configure_buffer_tracing_service(context, B_RCCL, NULL, 0, buffer);
  failed |= rocprofiler_configure_buffer_tracing_service(context, B_OMPT, NULL, 0, buffer);
  for (int kind = B_KFD_FIRST; kind <= B_KFD_LAST; kind++) failed |= rocprofiler_configure_buffer_tracing_service(context, kind, NULL, 0, buffer);
  // There are no such records, in AMD's either.
  failed |= rocprofiler_configure_buffer_tracing_service(context, B_STREAM, NULL, 0, buffer) != 17;
  failed |= rocprofiler_configure_external_correlation_id_request_service(context, kinds, 2, ask, &here);
  failed |= rocprofiler_configure_external_correlation_id_request_service(context, kinds, 2, ask, &here) != 15;
  const char *name = "";
  failed |= rocprofiler_query_external_correlation_id_request_kind_name(ASK_DISPATCH, &name, NULL) || strcmp(name, "KERNEL_DISPATCH");
  // What needs other hardware says so: not asked for, no such agent, no such library or handle.
  uint64_t handle = 1;
  failed |= rocprofiler_configure_pc_sampling_service(context, 1, 1, 1, 1, buffer, 0) != 17;
  failed |= rocprofiler_configure_device_thread_trace_service(context, 1, NULL, 0, nothing, 0) != 7;
  failed |= rocprofiler_thread_trace_decoder_create(&handle, "/nonexistent") != 37 || handle;
  failed |= rocprofiler_spm_destroy_counter_config(1) != 30;
  return failed | (ALWAYS ? rocprofiler_start_context(context) : 0);
}

static int attached(client_finalize end, rocprofiler_context_id_t *contexts, uint64_t count, void *data) {
  (void)end, (void)data, (void)contexts, (void)count, (void)current;
  enqueued = completed = begun = copied = bytes = allocated = freed = scratch = set = made = asked = kernels = retired = wrong = why = 0;
  memset(ids, 0, sizeof ids);
  return rocprofiler_start_context(context);
}

static void over(void *data) {
  (void)data;
  rocprofiler_flush_buffer(buffer);
  unsigned long left = 0;
  for (int n = 0; n < IDS; n++) left += ids[n] == 1;
  EXPECT(!left);
  if (!(file = fopen(LOG, "a"))) return;
  fprintf(file,
          "end enqueued=%lu completed=%lu begun=%lu copied=%lu bytes=%lu allocated=%lu freed=%lu scratch=%lu set=%lu made=%lu asked=%lu "
          "kernels=%lu retired=%lu tables=%lu wrong=%lu why=%lu\n",
          enqueued, completed, begun, copied, bytes, allocated, freed, scratch, set, made, asked, kernels, retired, tables, wrong, why);
  fclose(file);
}

rocprofiler_tool_configure_result_t *rocprofiler_configure(uint32_t version, const char *words, uint32_t priority, rocprofiler_client_id_t *me) {
  static rocprofiler_tool_configure_result_t result = {sizeof result, initialize, ALWAYS ? over : NULL, NULL};
  (void)version, (void)words, (void)priority;
  me->name = "services tool";
  return rocprofiler_at_intercept_table_registration(table, HSA_TABLE, &here) ? NULL : &result;
}

#if !ALWAYS
rocprofiler_tool_configure_attach_result_t *rocprofiler_configure_attach(uint32_t version, const char *words, uint32_t priority,
                                                                         rocprofiler_client_id_t *me) {
  static rocprofiler_tool_configure_attach_result_t result = {sizeof result, attached, over, NULL};
  (void)version, (void)words, (void)priority, (void)me;
  return &result;
}
#else
void *unused = attached;
#endif
