// attach_queues KERNELS: no HIP. Makes queues and code objects on command, before and after a profiler attaches from inside.
//   attach          calls rocprofiler_register_attach of the process's register library; answers "attach CODE"
//   detach          the same for detach
//   new             makes a second queue;     drop    destroys it
//   load            loads the code object again;  unload  destroys what was loaded so
//   old N, young N  N dispatches on the first (grid.x 1000) or the second queue (grid.x 2000), and waits for the last
//   quit            ends; says "done"
// Each command is answered by its name.
#include "hsa_kit.h"
#include <dlfcn.h>

static int call(const char *name) {
  static const char settings[] = "\1\0\0\0ROCPROF_PROBE\0one";
  if (!strcmp(name, "attach")) {
    int (*attach)(const char *, const char *) = dlsym(RTLD_DEFAULT, "rocprofiler_register_attach");
    return attach ? attach(settings, "libnone.so") : -1;
  }
  int (*detach)(void) = dlsym(RTLD_DEFAULT, "rocprofiler_register_detach");
  return detach ? detach() : -1;
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
  char line[64];
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    char word[64] = "";
    int count = 0;
    sscanf(line, "%63s %d", word, &count);
    if (!strcmp(word, "attach") || !strcmp(word, "detach")) {
      say("%s %d", word, call(word));
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
