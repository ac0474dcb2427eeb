// barriers KERNELS NAME: no HIP; NAME is the kernel's, with ".kd". Queues whose barriers wait by command, for the tests of `e2e/why.rs`:
//   lost         a barrier that waits for a signal which nothing completes; answers "lost SIGNAL"
//   chain        a kernel with grid.x 64 * 7777 (which the model never ends) on a queue, and on another a barrier that waits for it;
//                answers "chain SIGNAL"
//   unwritten    a packet is reserved and not written, another is behind it; answers "unwritten"
//   collective   the kernel, alone; answers "collective"
// "quit" ends the program at once.
#include "hsa_kit.h"

enum { ENDLESS = 64 * 7777 };

static void barrier(hsa_queue_t *queue, hsa_signal_t signal) {
  hsa_barrier_and_packet_t packet = {.header = header(HSA_PACKET_TYPE_BARRIER_AND), .dep_signal = {signal}};
  publish(queue, take(queue), &packet);
}

int main(int argc, char **argv) {
  if (argc < 3) fail("usage: barriers KERNELS NAME");
  HSA(hsa_init());
  find_agents();
  load_named(argv[1], argv[2]);
  hsa_signal_t none = {0};
  say("ready pid %d", getpid());
  char line[64];
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (!strcmp(line, "lost")) {
      hsa_signal_t signal = new_signal(1);
      barrier(new_queue(), signal);
      say("lost %lu", (unsigned long)signal.handle);
    } else if (!strcmp(line, "chain")) {
      hsa_signal_t signal = new_signal(1);
      hsa_queue_t *first = new_queue(), *second = new_queue();
      dispatch(first, ENDLESS, signal);
      barrier(second, signal);
      say("chain %lu", (unsigned long)signal.handle);
    } else if (!strcmp(line, "unwritten")) {
      hsa_queue_t *queue = new_queue();
      take(queue);
      dispatch(queue, 64, none);
      say("unwritten");
    } else if (!strcmp(line, "collective")) {
      dispatch(new_queue(), ENDLESS, new_signal(1));
      say("collective");
    } else {
      fail("unknown command \"%s\"", line);
    }
  }
  _exit(0);
}
