// late KERNELS: HIP is mapped but not used before a command says so. Commands: "init" (hipInit),
// "load" (device, stream, arrays, kernels), "go COUNT" (COUNT rounds: vadd with 7 blocks, scale
// with 9, a copy there and back), "quit". Each answers with its name.
#include "hip_kit.h"

int main(int argc, char **argv) {
  if (argc < 2) fail("usage: late KERNELS");
  kernels_t kernels = {0};
  work_t work = {0};
  say("ready");
  char line[64];
  unsigned number;
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (!strcmp(line, "init")) {
      HIP(hipInit(0));
      say("init");
    } else if (!strcmp(line, "load")) {
      int devices = 0;
      HIP(hipGetDeviceCount(&devices));
      if (devices != 1) fail("%d devices", devices);
      kernels = load_kernels(argv[1]);
      work = new_work();
      say("load");
    } else if (sscanf(line, "go %u", &number) == 1) {
      for (unsigned round = 0; round < number; round++) {
        launch_vadd(&kernels, &work, 7);
        launch_scale(&kernels, &work, 9);
        round_trip(&work, round);
      }
      say("go");
    } else {
      fail("unknown command \"%s\"", line);
    }
  }
  report("late", 0, &work, 7, 9);
  if (work.stream) end_work(&work);
  say("done");
  return 0;
}
