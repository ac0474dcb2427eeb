// A tool that misbehaves once: at STAGE it does DEED (both given at compile time). It is otherwise a
// tool as any, with a buffer and callbacks. It appends a line to LOG before its deed, and at finalize.
extern "C" {
#include "../../../crates/target/sdk-control/tests/c/sdk.h"
int rocprofiler_force_configure(rocprofiler_tool_configure_result_t *(*)(uint32_t, const char *, uint32_t, rocprofiler_client_id_t *));
__attribute__((visibility("default"))) rocprofiler_tool_configure_result_t *rocprofiler_configure(uint32_t, const char *, uint32_t, rocprofiler_client_id_t *);
__attribute__((visibility("default"))) rocprofiler_tool_configure_attach_result_t *rocprofiler_configure_attach(uint32_t, const char *, uint32_t, rocprofiler_client_id_t *);
}
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <unistd.h>

namespace {
enum { CODE_OBJECT = 1, HIP_CALL = 5, HIP_RECORD = 5, KERNEL_RECORD = 11, LOSSLESS = 2 };
enum stage { CONFIGURE, CONFIGURE_ATTACH, INITIALIZE, ATTACH, CALL, RECORDS, OBJECT, DETACH, FINALIZE };
enum deed { THROW, THROW_TEXT, EXIT, ABORT, HANG, FREE, TWICE, DECLINE, FAIL, BEHAVE };

rocprofiler_context_id_t context;
rocprofiler_buffer_id_t buffer;
// What the tool holds while it misbehaves: it is not to be let down by that.
struct holder {
  ~holder() {}
};

void log(const char *word, int number) {
  if (FILE *file = std::fopen(LOG, "a")) {
    std::fprintf(file, "%s %d\n", word, number);
    std::fclose(file);
  }
}

void misbehave(stage at, const void *given) {
  static bool done;
  if (at != STAGE || done) return;
  done = true;
  log("deed", at);
  holder something;
  switch (DEED) {
  case THROW: throw std::runtime_error("on purpose");
  case THROW_TEXT: throw "on purpose";
  case EXIT: std::exit(7);
  case ABORT: std::abort();
  case HANG: sleep(10); break;
  case FREE: std::free(const_cast<void *>(given)); break;
  case TWICE: log("twice", rocprofiler_force_configure(rocprofiler_configure)); break;
  default: break;
  }
}

void on_call(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t *, void *) { misbehave(CALL, record.payload); }
void on_object(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t *, void *) { misbehave(OBJECT, record.payload); }
void on_records(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_record_header_t **headers, size_t count, void *, uint64_t) {
  misbehave(RECORDS, headers);
  if (DEED == FREE && STAGE == RECORDS && count) {
    std::free(headers[0]);
    std::free(headers[0]->payload);
  }
}

int initialize(client_finalize, void *) {
  misbehave(INITIALIZE, nullptr);
  if (DEED == FAIL) return -3;
  int failed = rocprofiler_create_context(&context) || rocprofiler_create_buffer(context, 1 << 12, 1 << 10, LOSSLESS, on_records, nullptr, &buffer);
  failed |= rocprofiler_configure_callback_tracing_service(context, CODE_OBJECT, nullptr, 0, on_object, nullptr);
  failed |= rocprofiler_configure_callback_tracing_service(context, HIP_CALL, nullptr, 0, on_call, nullptr);
  failed |= rocprofiler_configure_buffer_tracing_service(context, HIP_RECORD, nullptr, 0, buffer);
  return failed;
}

int attached(client_finalize, rocprofiler_context_id_t *contexts, uint64_t count, void *) {
  misbehave(ATTACH, contexts);
  return count == 1 ? rocprofiler_start_context(context) : -1;
}

void detached(void *) { misbehave(DETACH, nullptr); }

void finalize(void *) {
  log("finalize", 0);
  misbehave(FINALIZE, nullptr);
}
} // namespace

rocprofiler_tool_configure_result_t *rocprofiler_configure(uint32_t, const char *words, uint32_t, rocprofiler_client_id_t *me) {
  static rocprofiler_tool_configure_result_t result = {sizeof result, initialize, finalize, nullptr};
  log("configure", 0);
  misbehave(CONFIGURE, me);
  if (DEED == FREE && STAGE == CONFIGURE) std::free(const_cast<char *>(words));
  if (DEED == DECLINE) return nullptr;
  me->name = "bad";
  return &result;
}

rocprofiler_tool_configure_attach_result_t *rocprofiler_configure_attach(uint32_t, const char *, uint32_t, rocprofiler_client_id_t *me) {
  static rocprofiler_tool_configure_attach_result_t result = {sizeof result, attached, detached, nullptr};
  misbehave(CONFIGURE_ATTACH, me);
  return &result;
}
