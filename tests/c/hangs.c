// hangs KERNELS: a HIP program that hangs by command, for the tests of `e2e/why.rs`. "kernel": a thread called "launches" launches
// vadd with grid.x 64 * 7777 (which the model never ends) and two kernels behind it, and waits for them; "lock": a thread called "locks"
// waits for a mutex that the first thread has and keeps. Each is answered by its name when the thread is about to wait. "idle": answered.
// "quit" ends the program at once.
#include "hip_kit.h"

enum { ENDLESS = 7777 };
static kernels_t kernels;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

static void *launches(void *nothing) {
  (void)nothing;
  pthread_setname_np(pthread_self(), "launches");
  work_t w = new_work();
  launch_vadd(&kernels, &w, ENDLESS);
  launch_scale(&kernels, &w, 1);
  launch_scale(&kernels, &w, 2);
  say("kernel");
  HIP(hipStreamSynchronize(w.stream));
  return NULL;
}

static void *locks(void *nothing) {
  (void)nothing;
  pthread_setname_np(pthread_self(), "locks");
  say("lock");
  pthread_mutex_lock(&held);
  return NULL;
}

int main(int argc, char **argv) {
  if (argc < 2) fail("usage: hangs KERNELS");
  kernels = load_kernels(argv[1]);
  work_t w = new_work();
  launch_vadd(&kernels, &w, 1);
  HIP(hipStreamSynchronize(w.stream));
  pthread_mutex_lock(&held);
  say("ready");
  char line[64];
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (!strcmp(line, "kernel")) start_thread(launches, NULL);
    else if (!strcmp(line, "lock")) start_thread(locks, NULL);
    else if (!strcmp(line, "idle")) say("idle");
    else fail("unknown command \"%s\"", line);
  }
  // Nothing that hangs can be waited for.
  _exit(0);
}
