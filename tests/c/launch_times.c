// launch_times KERNELS: how long launches take. Command "batches COUNT EACH THREADS": so many times THREADS threads launch EACH kernels
// each at the same time, on streams of their own, wait for them, and 1.5 ms more, in which a profiler makes ready what it needs.
// Answers "took MEDIAN PROCESSOR FIRST", then "batches". All are medians in ns: of the elapsed time, and of the thread's processor time
// (in which the time of reading that clock is), of launches that are not the first of a batch; and of the elapsed time of the first
// ones, for which caches are cold. EACH is two or more. "quit".
#include "hip_kit.h"
#include <stdbool.h>
#include <time.h>

enum { MOST = 16, SAMPLES = 4096 };
static kernels_t kernels;
static work_t work[MOST];
static uint64_t times[MOST][SAMPLES], processor[MOST][SAMPLES];
static unsigned count, each, threads;
static pthread_barrier_t together;

static uint64_t now(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void *launch(void *argument) {
  unsigned n = (unsigned)(uintptr_t)argument, at = 0;
  for (unsigned batch = 0; batch < count; batch++) {
    pthread_barrier_wait(&together);
    for (unsigned k = 0; k < each; k++) {
      uint64_t used = now(CLOCK_THREAD_CPUTIME_ID), began = now(CLOCK_MONOTONIC);
      launch_vadd(&kernels, &work[n], 5);
      times[n][at] = now(CLOCK_MONOTONIC) - began;
      processor[n][at++] = now(CLOCK_THREAD_CPUTIME_ID) - used;
    }
    HIP(hipStreamSynchronize(work[n].stream));
    usleep(1500);
  }
  return NULL;
}

static int by_time(const void *one, const void *other) {
  uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
  return (a > b) - (a < b);
}

// Returns the median over all threads of the batches' first launches, or of all others.
static unsigned long median(uint64_t from[MOST][SAMPLES], bool first) {
  static uint64_t sorted[MOST * SAMPLES];
  unsigned total = 0;
  for (unsigned n = 0; n < threads; n++)
    for (unsigned at = 0; at < count * each; at++)
      if ((at % each == 0) == first) sorted[total++] = from[n][at];
  qsort(sorted, total, sizeof sorted[0], by_time);
  return sorted[total / 2];
}

static void batches(void) {
  pthread_t all[MOST];
  pthread_barrier_init(&together, NULL, threads);
  for (unsigned n = 0; n < threads; n++) all[n] = start_thread(launch, (void *)(uintptr_t)n);
  for (unsigned n = 0; n < threads; n++) pthread_join(all[n], NULL);
  pthread_barrier_destroy(&together);
  say("took %lu %lu %lu", median(times, false), median(processor, false), median(times, true));
}

int main(int argc, char **argv) {
  if (argc < 2) fail("usage: launch_times KERNELS");
  kernels = load_kernels(argv[1]);
  for (unsigned n = 0; n < MOST; n++) work[n] = new_work();
  say("ready");
  char line[64];
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (sscanf(line, "batches %u %u %u", &count, &each, &threads) != 3 || !threads || threads > MOST || !count || each < 2 ||
        count * each > SAMPLES)
      fail("what is \"%s\"?", line);
    batches();
    say("batches");
  }
  for (unsigned n = 0; n < MOST; n++) end_work(&work[n]);
  say("done");
  return 0;
}
