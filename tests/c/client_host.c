// client_host KERNELS: a HIP program that brings a profiler into itself. Commands, each answered with a line:
//   load LIBRARY ARGUMENT  loads a client (tests/c/client_*.c) and has it begin with ARGUMENT: "load"
//   client WORDS           has the client do that, which answers itself
//   round N                N launches, and waits for them: "round N"
//   module                 loads the kernels anew: "module"
//   queue                  makes another stream and uses that from now on: "queue"
//   roctx LIBRARY          loads a ROCTx library: "roctx"
//   pause, resume          its calls of these names: the command
//   quit
#include "hip_kit.h"
#include <dlfcn.h>

typedef void begin_t(const char *argument);
typedef void command_t(const char *words);

int main(int argc, char **argv) {
  if (argc < 2) fail("usage: client_host KERNELS");
  kernels_t kernels = load_kernels(argv[1]);
  work_t work = new_work();
  command_t *command = NULL;
  say("ready");
  int (*pause_profiler)(uint64_t) = NULL, (*resume_profiler)(uint64_t) = NULL;
  char line[512];
  unsigned number;
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (!strncmp(line, "load ", 5)) {
      char *path = line + 5, *argument = strchr(path, ' ');
      if (!argument) fail("load what?");
      *argument++ = 0;
      void *client = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
      if (!client) fail("%s", dlerror());
      begin_t *begin = NULL;
      *(void **)&begin = dlsym(client, "client_begin");
      *(void **)&command = dlsym(client, "client_command");
      if (!begin || !command) fail("%s is no client", path);
      begin(argument);
      say("load");
    } else if (!strncmp(line, "client ", 7)) {
      if (!command) fail("no client");
      command(line + 7);
    } else if (sscanf(line, "round %u", &number) == 1) {
      for (unsigned n = 0; n < number; n++) launch_vadd(&kernels, &work, 4);
      HIP(hipStreamSynchronize(work.stream));
      say("round %u", number);
    } else if (!strcmp(line, "module")) {
      HIP(hipModuleUnload(kernels.module));
      kernels = load_kernels(argv[1]);
      say("module");
    } else if (!strncmp(line, "roctx ", 6)) {
      void *roctx = dlopen(line + 6, RTLD_NOW);
      if (!roctx) fail("%s", dlerror());
      *(void **)&pause_profiler = dlsym(roctx, "roctxProfilerPause");
      *(void **)&resume_profiler = dlsym(roctx, "roctxProfilerResume");
      if (!pause_profiler || !resume_profiler) fail("it can neither pause nor resume");
      say("roctx");
    } else if (!strcmp(line, "pause") || !strcmp(line, "resume")) {
      if (!pause_profiler || (*line == 'p' ? pause_profiler : resume_profiler)(0)) fail("%s", line);
      say("%s", line);
    } else if (!strcmp(line, "queue")) {
      HIP(hipStreamDestroy(work.stream));
      HIP(hipStreamCreate(&work.stream));
      say("queue");
    } else {
      fail("unknown command \"%s\"", line);
    }
  }
  say("done");
  return 0;
}
