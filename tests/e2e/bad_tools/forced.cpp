// A program that is its own tool, as AMD's samples are: its rocprofiler_configure is visible, and it
// hands the same function to rocprofiler_force_configure. Each argument is one step, told on a line:
//   force          hands its function over
//   throw WHERE    hands over another one, which throws in WHERE (configure, initialize), and catches that
//   again          hands that one over once more, which behaves now
//   exit-later     hands over one whose initialize calls exit: the last step
//   end            hands over one whose finalize throws, ends it by the function that it was given, and catches
//                  that; the second time it has ended already
//   end-at-exit    hands that one over, whose finalize is called at the exit: the last step
//   iterate        has a function called for each kind that throws, and catches that
//   register       a runtime's table is handed over, as by a registration library
// At the end: how often each function was called.
extern "C" {
#include "../../c/kit.h"
#include "../../../crates/target/sdk-control/tests/c/sdk.h"
typedef rocprofiler_tool_configure_result_t *configure_function(uint32_t, const char *, uint32_t, rocprofiler_client_id_t *);
int rocprofiler_force_configure(configure_function *);
int rocprofiler_set_api_table(const char *, uint64_t, uint64_t, void **, uint64_t);
__attribute__((visibility("default"))) configure_function rocprofiler_configure;
}
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace {
int configured, initialized;
int initialize(client_finalize, void *) {
  initialized++;
  rocprofiler_context_id_t context = {};
  return rocprofiler_create_context(&context);
}
void finalize(void *) {}

const char *where = "";
bool leave;
int throwing_initialize(client_finalize, void *) {
  rocprofiler_context_id_t context = {};
  rocprofiler_create_context(&context);
  if (leave) std::exit(0);
  if (!strcmp(where, "initialize")) throw std::runtime_error("from initialize");
  say("context %lu", context.handle);
  return 0;
}
void never(void *) { say("finalize of the one that threw"); }
rocprofiler_tool_configure_result_t *throwing(uint32_t, const char *, uint32_t, rocprofiler_client_id_t *me) {
  static rocprofiler_tool_configure_result_t result = {sizeof result, throwing_initialize, never, nullptr};
  say("client %u", me->handle);
  if (!strcmp(where, "configure")) throw std::runtime_error("from configure");
  return &result;
}

client_finalize end_me;
rocprofiler_client_id_t *ending_client;
bool at_exit;
int ending_initialize(client_finalize end, void *) {
  end_me = end;
  rocprofiler_context_id_t context = {};
  return rocprofiler_create_context(&context);
}
void ending_finalize(void *) {
  if (at_exit) say("finalize at the exit");
  throw std::runtime_error("from finalize");
}
rocprofiler_tool_configure_result_t *ending(uint32_t, const char *, uint32_t, rocprofiler_client_id_t *me) {
  static rocprofiler_tool_configure_result_t result = {sizeof result, ending_initialize, ending_finalize, nullptr};
  say("client %u", me->handle);
  ending_client = me;
  return &result;
}
void end() {
  if (!ending_client) rocprofiler_force_configure(ending);
  try {
    end_me(*ending_client);
    say("ended");
  } catch (const std::exception &error) {
    say("caught %s, %d uncaught", error.what(), std::uncaught_exceptions());
  }
}

int on_kind(int kind, void *) {
  if (kind == 2) throw 17;
  return 0;
}

// What is alive while the exception passes is let go.
struct alive {
  ~alive() { say("let go"); }
};

void force(configure_function *function) {
  try {
    alive something;
    say("force %d", rocprofiler_force_configure(function));
  } catch (const std::exception &error) {
    say("caught %s, %d uncaught", error.what(), std::uncaught_exceptions());
  }
}
} // namespace

rocprofiler_tool_configure_result_t *rocprofiler_configure(uint32_t, const char *, uint32_t, rocprofiler_client_id_t *) {
  static rocprofiler_tool_configure_result_t result = {sizeof result, initialize, finalize, nullptr};
  configured++;
  return &result;
}

int main(int count, char **words) {
  for (int n = 1; n < count; n++) {
    if (!strcmp(words[n], "force")) force(rocprofiler_configure);
    else if (!strcmp(words[n], "throw")) where = words[++n], force(throwing);
    else if (!strcmp(words[n], "again")) where = "", force(throwing);
    else if (!strcmp(words[n], "exit-later")) leave = true, force(throwing);
    else if (!strcmp(words[n], "end")) end();
    else if (!strcmp(words[n], "end-at-exit")) at_exit = true, rocprofiler_force_configure(ending);
    else if (!strcmp(words[n], "iterate")) {
      try {
        say("iterate %d", rocprofiler_iterate_buffer_tracing_kinds(on_kind, nullptr));
      } catch (int thrown) {
        say("caught %d", thrown);
      }
    } else if (!strcmp(words[n], "register")) {
      static void *table[64] = {reinterpret_cast<void *>(sizeof table)};
      void *tables = table;
      say("register %d", rocprofiler_set_api_table("rccl", 22000, 0, &tables, 1));
    }
  }
  say("configured %d initialized %d", configured, initialized);
  return 0;
}
