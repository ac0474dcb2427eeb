// shut_down: no HIP. "shut down": shuts the HSA runtime down and answers when a profiler has put its function
// into the slot of hsa_init once more. "quit" says "done".
#define _GNU_SOURCE
#include "hsa_kit.h"
#include "tables.h"
#include <time.h>

// Whether the slot holds a function that is not the runtime's own.
static bool is_hooked(void **slot) {
  Dl_info runtime, function;
  if (!dladdr(exported("hsa_init"), &runtime)) fail("where is the runtime?");
  void *held = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
  return !dladdr(held, &function) || function.dli_fbase != runtime.dli_fbase;
}

int main(void) {
  HSA(hsa_init());
  // The first slot behind the four words of the version.
  void **slot = hsa_slot("hsa_system_get_info").table + 2;
  say("ready");
  char line[16];
  while (hear(line, sizeof line) && !strcmp(line, "shut down")) {
    HSA(hsa_shut_down());
    const struct timespec pause = {0, 200000};
    for (int looks = 50000; !is_hooked(slot); nanosleep(&pause, NULL))
      if (!looks--) fail("nobody hooks hsa_init");
    say("shut down");
  }
  say("done");
  return 0;
}
