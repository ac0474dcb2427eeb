// What the clients share: each makes the calls of a known tool, in that tool's order, and counts what it is given. A
// client is a library for client_host.c with
//   client_begin(ARGUMENT)   what the tool does when it is loaded
//   client_command(WORDS)    "start", "stop", "flush": what the tool does then, answered "WORD STATUS";
//                            "count": "count kernels N named N copies N enters N exits N calls N failed N"
// Every status other than success is counted as failed, and told: "status FUNCTION NUMBER".
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <rocprofiler-sdk/registration.h>
#include <rocprofiler-sdk/rocprofiler.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static atomic_ulong kernels, named, copies, enters, exits, symbols, failed, wrong;

#define CHECK(call) check(#call, call)
__attribute__((unused)) static rocprofiler_status_t check(const char *what, rocprofiler_status_t status) {
  if (status != ROCPROFILER_STATUS_SUCCESS) {
    failed++;
    printf("status %.*s %d\n", (int)strcspn(what, "("), what, (int)status);
    fflush(stdout);
  }
  return status;
}

// Kernel ids whose names are known, as tools keep them.
enum { NAMES = 4096 };
static const char *names[NAMES];
static pthread_mutex_t names_lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((unused)) static void code_objects(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t *user, void *data) {
  (void)user, (void)data;
  if (record.kind != ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT || record.phase != ROCPROFILER_CALLBACK_PHASE_LOAD) return;
  if (record.operation != ROCPROFILER_CODE_OBJECT_DEVICE_KERNEL_SYMBOL_REGISTER) return;
  const rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t *symbol = record.payload;
  pthread_mutex_lock(&names_lock);
  if (symbol->kernel_id < NAMES && symbol->kernel_name) names[symbol->kernel_id] = strdup(symbol->kernel_name);
  pthread_mutex_unlock(&names_lock);
  symbols++;
}

__attribute__((unused)) static void records(rocprofiler_context_id_t context, rocprofiler_buffer_id_t buffer,
                                            rocprofiler_record_header_t **headers, size_t count, void *data, uint64_t dropped) {
  (void)context, (void)buffer, (void)data;
  wrong += dropped;
  for (size_t i = 0; i < count; i++) {
    if (headers[i]->category != ROCPROFILER_BUFFER_CATEGORY_TRACING) continue;
    if (headers[i]->kind == ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH) {
      const rocprofiler_buffer_tracing_kernel_dispatch_record_t *kernel = headers[i]->payload;
      wrong += kernel->start_timestamp == 0 || kernel->start_timestamp >= kernel->end_timestamp || !kernel->correlation_id.internal;
      uint64_t id = kernel->dispatch_info.kernel_id;
      pthread_mutex_lock(&names_lock);
      named += id < NAMES && names[id] && !strncmp(names[id], "_Z4vadd", 7);
      pthread_mutex_unlock(&names_lock);
      kernels++;
    } else if (headers[i]->kind == ROCPROFILER_BUFFER_TRACING_MEMORY_COPY) {
      copies++;
    }
  }
}

__attribute__((unused)) static void calls(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t *user, void *data) {
  (void)user, (void)data;
  if (record.phase == ROCPROFILER_CALLBACK_PHASE_ENTER) enters++;
  if (record.phase == ROCPROFILER_CALLBACK_PHASE_EXIT) exits++;
}

__attribute__((unused)) static rocprofiler_status_t agents(rocprofiler_agent_version_t version, const void **list, size_t count, void *gpus) {
  if (version != ROCPROFILER_AGENT_INFO_VERSION_0) return ROCPROFILER_STATUS_ERROR_INVALID_ARGUMENT;
  for (size_t i = 0; i < count; i++)
    *(unsigned *)gpus += ((const rocprofiler_agent_t *)list[i])->type == ROCPROFILER_AGENT_TYPE_GPU;
  return ROCPROFILER_STATUS_SUCCESS;
}

// Names of all kinds and operations, as tools gather them before anything else.
static unsigned long gathered;
__attribute__((unused)) static int a_callback_operation(rocprofiler_callback_tracing_kind_t kind, rocprofiler_tracing_operation_t operation,
                                                        void *data) {
  const char *name = NULL;
  uint64_t length = 0;
  (void)data;
  CHECK(rocprofiler_query_callback_tracing_kind_operation_name(kind, operation, &name, &length));
  gathered += name && strlen(name) == length;
  return 0;
}
__attribute__((unused)) static int a_callback_kind(rocprofiler_callback_tracing_kind_t kind, void *data) {
  const char *name = NULL;
  uint64_t length = 0;
  CHECK(rocprofiler_query_callback_tracing_kind_name(kind, &name, &length));
  CHECK(rocprofiler_iterate_callback_tracing_kind_operations(kind, a_callback_operation, data));
  return 0;
}
__attribute__((unused)) static int a_buffer_operation(rocprofiler_buffer_tracing_kind_t kind, rocprofiler_tracing_operation_t operation,
                                                      void *data) {
  const char *name = NULL;
  uint64_t length = 0;
  (void)data;
  CHECK(rocprofiler_query_buffer_tracing_kind_operation_name(kind, operation, &name, &length));
  gathered += name && strlen(name) == length;
  return 0;
}
__attribute__((unused)) static int a_buffer_kind(rocprofiler_buffer_tracing_kind_t kind, void *data) {
  const char *name = NULL;
  uint64_t length = 0;
  CHECK(rocprofiler_query_buffer_tracing_kind_name(kind, &name, &length));
  CHECK(rocprofiler_iterate_buffer_tracing_kind_operations(kind, a_buffer_operation, data));
  return 0;
}

static rocprofiler_status_t client_start(void), client_stop(void), client_flush(void);
EXPORT void client_begin(const char *argument);

EXPORT void client_command(const char *words);
EXPORT void client_command(const char *words) {
  if (!strcmp(words, "start")) {
    printf("start %d\n", (int)client_start());
  } else if (!strcmp(words, "stop")) {
    printf("stop %d\n", (int)client_stop());
  } else if (!strcmp(words, "flush")) {
    printf("flush %d\n", (int)client_flush());
  } else if (!strcmp(words, "count")) {
    printf("count kernels=%lu named=%lu copies=%lu enters=%lu exits=%lu symbols=%lu failed=%lu wrong=%lu\n", kernels, named, copies, enters,
           exits, symbols, failed, wrong);
  } else {
    printf("unknown %s\n", words);
  }
  fflush(stdout);
}
