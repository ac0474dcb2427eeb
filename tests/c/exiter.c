// exiter KERNELS: launches vadd with 3 blocks from a thread, all the time, until a command ends the
// process: "exit" (exit(0), with the launching thread still at work until the moment before: HIP's
// own clean-up at exit does not bear launches at the same time, so the thread stops between two
// launches and stays, with work in flight), "_exit" (with the thread launching on), "exec" (becomes
// a program that says "executed"), "abort", "quit" (joins the thread, cleans up, exits). Before
// each it says "ending LAUNCHED".
#include "hip_kit.h"

static kernels_t kernels;
static work_t work;
static atomic_ulong launched;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool stop;

static void *launch(void *argument) {
  (void)argument;
  while (!atomic_load(&stop)) {
    pthread_mutex_lock(&gate);
    launch_vadd(&kernels, &work, 3);
    atomic_fetch_add(&launched, 1);
    if (work.vadds % 16 == 0) HIP(hipStreamSynchronize(work.stream));
    pthread_mutex_unlock(&gate);
    usleep(100);
  }
  return NULL;
}

int main(int argc, char **argv) {
  if (argc == 2 && !strcmp(argv[1], "--executed")) {
    // Stays until its input ends, so that a test can see what it has become.
    char line[64];
    say("executed");
    while (hear(line, sizeof line)) {}
    return 0;
  }
  if (argc < 2) fail("usage: exiter KERNELS");
  kernels = load_kernels(argv[1]);
  work = new_work();
  pthread_t thread = start_thread(launch, NULL);
  while (!atomic_load(&launched)) usleep(1000);
  say("ready");
  char line[64];
  if (!hear(line, sizeof line)) fail("end of input");
  if (!strcmp(line, "exit")) {
    pthread_mutex_lock(&gate);
    say("ending %lu", atomic_load(&launched));
    exit(0);
  }
  if (!strcmp(line, "quit")) {
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    HIP(hipStreamSynchronize(work.stream));
    say("ending %lu", atomic_load(&launched));
    end_work(&work);
    return 0;
  }
  say("ending %lu", atomic_load(&launched));
  if (!strcmp(line, "_exit")) _exit(0);
  if (!strcmp(line, "abort")) abort();
  if (!strcmp(line, "exec")) {
    execl("/proc/self/exe", argv[0], "--executed", (char *)NULL);
    fail("exec failed");
  }
  fail("unknown command \"%s\"", line);
}
