// launch_times KERNELS: how long launches take. Command "batches COUNT EACH THREADS": so many times THREADS threads launch EACH kernels
// each at the same time, on streams of their own, wait for them, and 1.5 ms more, in which a profiler makes ready what it needs.
// Answers "took MEDIAN QUARTER NINETIETH" (in ns, of all launches: lower quarter and 90th percentile), then "batches"; "quit".
#include "hip_kit.h"
#include <time.h>

enum { MOST = 16, SAMPLES = 4096 };
static kernels_t kernels;
static work_t work[MOST];
static uint64_t times[MOST][SAMPLES];
static unsigned count, each, threads;
static pthread_barrier_t together;

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void *launch(void *argument) {
  unsigned n = (unsigned)(uintptr_t)argument, at = 0;
  for (unsigned batch = 0; batch < count; batch++) {
    pthread_barrier_wait(&together);
    for (unsigned k = 0; k < each; k++) {
      uint64_t began = now();
      launch_vadd(&kernels, &work[n], 5);
      times[n][at++] = now() - began;
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

static void batches(void) {
  pthread_t all[MOST];
  static uint64_t sorted[MOST * SAMPLES];
  pthread_barrier_init(&together, NULL, threads);
  for (unsigned n = 0; n < threads; n++) all[n] = start_thread(launch, (void *)(uintptr_t)n);
  for (unsigned n = 0; n < threads; n++) pthread_join(all[n], NULL);
  pthread_barrier_destroy(&together);
  unsigned total = threads * count * each;
  for (unsigned n = 0; n < threads; n++) memcpy(&sorted[n * count * each], times[n], count * each * sizeof times[n][0]);
  qsort(sorted, total, sizeof sorted[0], by_time);
  say("took %lu %lu %lu", (unsigned long)sorted[total / 2], (unsigned long)sorted[total / 4], (unsigned long)sorted[total / 10 * 9]);
}

int main(int argc, char **argv) {
  if (argc < 2) fail("usage: launch_times KERNELS");
  kernels = load_kernels(argv[1]);
  for (unsigned n = 0; n < MOST; n++) work[n] = new_work();
  say("ready");
  char line[64];
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (sscanf(line, "batches %u %u %u", &count, &each, &threads) != 3 || !threads || threads > MOST || !count || !each ||
        count * each > SAMPLES)
      fail("what is \"%s\"?", line);
    batches();
    say("batches");
  }
  for (unsigned n = 0; n < MOST; n++) end_work(&work[n]);
  say("done");
  return 0;
}
