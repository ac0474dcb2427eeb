// blocked KERNELS BLOCKS: a thread launches vadd with BLOCKS blocks (grid.x = 64 * BLOCKS; let
// MODEL_LONG_KERNEL make that one long) and blocks in hipStreamSynchronize until it ends. Commands:
// "block" (answers "blocking TID" once the kernel is launched, and later, by itself, "unblocked"),
// "go COUNT" (COUNT short kernels of 5 blocks on another stream by the main thread, synchronised;
// answers "go"), "quit" (waits for the blocked thread).
#include "hip_kit.h"

static kernels_t kernels;
static work_t blocked_work;
static unsigned blocks;

static void *block(void *argument) {
  (void)argument;
  launch_vadd(&kernels, &blocked_work, blocks);
  say("blocking %d", gettid());
  HIP(hipStreamSynchronize(blocked_work.stream));
  say("unblocked");
  return NULL;
}

int main(int argc, char **argv) {
  if (argc < 3) fail("usage: blocked KERNELS BLOCKS");
  kernels = load_kernels(argv[1]);
  blocks = atoi(argv[2]);
  blocked_work = new_work();
  work_t work = new_work();
  pthread_t thread;
  bool started = false;
  say("ready");
  char line[64];
  unsigned number;
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (!strcmp(line, "block")) {
      if (started) pthread_join(thread, NULL);
      thread = start_thread(block, NULL);
      started = true;
    } else if (sscanf(line, "go %u", &number) == 1) {
      for (unsigned n = 0; n < number; n++) launch_vadd(&kernels, &work, 5);
      HIP(hipStreamSynchronize(work.stream));
      say("go");
    } else {
      fail("unknown command \"%s\"", line);
    }
  }
  if (started) pthread_join(thread, NULL);
  say("blocked %u vadd %lu grid %u", 0u, blocked_work.vadds, blocks * 64);
  say("short %u vadd %lu grid %u", 0u, work.vadds, 5 * 64);
  end_work(&blocked_work);
  end_work(&work);
  say("done");
  return 0;
}
