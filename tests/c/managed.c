// managed: a program whose first thread computes and calls nothing, so that an attach takes that thread wherever a sanitizer
// is linked into the others' calls. It is built with one sanitizer or another, or is executed by a translator
// (`e2e/managed_threads.rs`). It allocates in threads that come and go. Commands:
//   work    two kernels, and a thread that allocates
//   quit    the first thread returns from main, where sanitizers look for leaks
// Each but "quit" answers with its name when it is done. With the argument "idle" it uses no GPU.
#include "hip.h"
#include "kit.h"

KERNEL(step, "_Z4stepPfi")

static atomic_bool ends;
static bool idle;

static void *allocate(void *bytes) {
  char *memory = malloc((size_t)bytes);
  memset(memory, 1, (size_t)bytes);
  bool right = memory[(size_t)bytes - 1] == 1;
  free(memory);
  return right ? memory : NULL;
}

static void work(void) {
  dim3 one = {1, 1, 1};
  for (int i = 0; i < 2 && !idle; i++)
    if (hipLaunchKernel((const void *)step, one, one, NULL, 0, NULL) || hipDeviceSynchronize()) fail("a kernel failed");
  void *right;
  pthread_join(start_thread(allocate, (void *)(size_t)5000), &right);
  if (!right) fail("its memory changed");
}

static void *commands(void *unused) {
  char line[64];
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    work();
    say("%s", line);
  }
  atomic_store(&ends, true);
  return unused;
}

#ifdef __clang__
#define PLAIN __attribute__((no_sanitize("thread", "memory")))
#else
#define PLAIN __attribute__((no_sanitize("thread")))
#endif

// No sanitizer's function is called here.
PLAIN static void compute(void) {
  volatile unsigned long sum = 0;
  while (!*(volatile bool *)&ends) sum = sum * 31 + 7;
}

int main(int count, char **words) {
  idle = count > 1 && !strcmp(words[1], "idle");
  work();
  pthread_t hears = start_thread(commands, NULL);
  say("ready");
  compute();
  pthread_join(hears, NULL);
  return 0;
}
