// attach_queues KERNELS: no HIP. Makes queues and code objects on command, before and after a
// profiler attaches from inside.
//   attach [TOOLS]  calls rocprofiler_register_attach of the process's register library; answers "attach CODE"
//   detach, reattach, tell-detach, tell-reattach: its rocprofiler_register_detach, rocprofiler_register_invoke_reattach,
//                   rocprofiler_call_client_detach and rocprofiler_call_client_reattach, in the same way
//   new             makes a second queue;     drop    destroys it
//   load            loads the code object again;  unload  destroys what was loaded so
//   old N, young N  N dispatches on the first (grid.x 1000) or the second queue (grid.x 2000), and waits for the last
//   quit            ends; says "done"
// Each command is answered by its name.
#include "hsa_kit.h"
#include <dlfcn.h>

// The register library's function of that command.
static int call(const char *word, const char *tools) {
  static const char settings[] = "\1\0\0\0ROCPROF_PROBE\0one";
  static const char *const names[][2] = {{"attach", "rocprofiler_register_attach"},
                                         {"detach", "rocprofiler_register_detach"},
                                         {"reattach", "rocprofiler_register_invoke_reattach"},
                                         {"tell-detach", "rocprofiler_call_client_detach"},
                                         {"tell-reattach", "rocprofiler_call_client_reattach"}};
  for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
    if (strcmp(word, names[i][0])) continue;
    void *function = dlsym(RTLD_DEFAULT, names[i][1]);
    if (!function) return -1;
    if (!i) return ((int (*)(const char *, const char *))function)(settings, *tools ? tools : "libnone.so");
    if (i < 3) return ((int (*)(void))function)();
    ((void (*)(void))function)();
    return 0;
  }
  return -2;
}

static void run(hsa_queue_t *queue, uint32_t grid, int count) {
  hsa_signal_t last = new_signal(1), none = {0};
  for (int n = 1; n < count; n++) dispatch(queue, grid, none);
  dispatch(queue, grid, last);
  wait_for_zero(last);
  HSA(hsa_signal_destroy(last));
}

int main(int argc, char **argv) {
  if (argc < 2) fail("usage: attach_queues KERNELS");
  HSA(hsa_init());
  find_agents();
  load(argv[1]);
  hsa_queue_t *old = new_queue(), *young = NULL;
  hsa_executable_t more = {0};
  say("ready");
  char line[1100];
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    char word[64] = "", more_words[1024] = "";
    sscanf(line, "%63s %1023s", word, more_words);
    int count = atoi(more_words), code = call(word, more_words);
    if (code != -2) {
      say("%s %d", word, code);
      continue;
    }
    if (!strcmp(word, "new")) young = new_queue();
    else if (!strcmp(word, "drop")) HSA(hsa_queue_destroy(young));
    else if (!strcmp(word, "load")) more = load(argv[1]);
    else if (!strcmp(word, "unload")) HSA(hsa_executable_destroy(more));
    else if (!strcmp(word, "old")) run(old, 1000, count);
    else if (!strcmp(word, "young")) run(young, 2000, count);
    else fail("unknown command \"%s\"", line);
    say("%s", word);
  }
  HSA(hsa_queue_destroy(old));
  HSA(hsa_shut_down());
  say("done");
  return 0;
}
