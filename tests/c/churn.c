// churn KERNELS: queues that live shortly, without HIP. Commands: "go COUNT" makes COUNT queues,
// one after another; queue N gets 3 dispatches without a signal and one with (grid.x 6000 + N),
// which is waited for, and is destroyed; every second one with a further dispatch on it that is not
// waited for (grid.x 9000 + N), which may be cut off or never taken. Answers "go". "reload COUNT
// OTHER" loads COUNT code objects, one after another, each gone before the next: in turn KERNELS
// (kernel `vadd`, grid.x 7000) and OTHER (`vxyz`, 8000), with one dispatch that is waited for.
// Answers "reload" and how many kernel objects lay where another one had been. "quit" shuts the HSA
// runtime down and says "done".
#include "hsa_kit.h"

int main(int argc, char **argv) {
  if (argc < 2) fail("usage: churn KERNELS");
  HSA(hsa_init());
  find_agents();
  hsa_executable_t executable = load(argv[1]);
  say("ready");
  char line[320], other[256];
  unsigned number;
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (sscanf(line, "go %u", &number) == 1) {
      hsa_signal_t mine = new_signal(0), none = {0};
      for (unsigned n = 0; n < number; n++) {
        hsa_queue_t *queue = new_queue();
        for (int k = 0; k < 3; k++) dispatch(queue, 6000 + n, none);
        hsa_signal_store_screlease(mine, 1);
        dispatch(queue, 6000 + n, mine);
        wait_for_zero(mine);
        if (n % 2) dispatch(queue, 9000 + n, none);
        HSA(hsa_queue_destroy(queue));
      }
      HSA(hsa_signal_destroy(mine));
      say("go");
    } else if (sscanf(line, "reload %u %255s", &number, other) == 2) {
      hsa_signal_t mine = new_signal(0);
      hsa_queue_t *queue = new_queue();
      uint64_t last = 0;
      unsigned again = 0;
      for (unsigned n = 0; n < number; n++) {
        hsa_executable_t one = n % 2 ? load_named(other, "_Z4vxyzPKfS0_Pfi.kd") : load(argv[1]);
        again += kernel_object == last;
        last = kernel_object;
        hsa_signal_store_screlease(mine, 1);
        dispatch(queue, n % 2 ? 8000 : 7000, mine);
        wait_for_zero(mine);
        HSA(hsa_executable_destroy(one));
      }
      HSA(hsa_queue_destroy(queue));
      HSA(hsa_signal_destroy(mine));
      say("reload %u", again);
    } else {
      fail("unknown command \"%s\"", line);
    }
  }
  HSA(hsa_executable_destroy(executable));
  HSA(hsa_shut_down());
  say("done");
  return 0;
}
