// streams KERNELS THREADS: each thread launches on a stream of its own, thread N `vadd` with grid.x
// 64 * (N + 1) and `scale` with grid.x 32 * (N + 1) + 65536; every 16th round it copies there and
// back and checks. Commands: "start" and "stop" (launching on and off; each answers with the
// command's name when every thread has followed), "new COUNT" (that many threads more, on streams
// made now), "rounds N" (each thread does N rounds and has nothing in flight any more; only while
// they stand), "counts" and "quit": one line per thread, then "total LAUNCHES"; "quit" ends the
// program. Launch as fast as may be by default; "pause US" sets a pause between rounds. "tables"
// tells where the API tables are.
#include "hip_kit.h"
#include "tables.h"

enum { MOST = 256 };
static kernels_t kernels;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static enum { STOPPED, RUNNING, ENDED } order = STOPPED;
static atomic_uint pause_us;
static unsigned nthreads, following;  // under the lock: threads that have seen the order
static unsigned limit, finished;      // the same: rounds of "rounds", and threads that have done them
static struct { pthread_t thread; work_t work; unsigned number; } worker[MOST];

static unsigned vadd_blocks(unsigned n) { return n + 1; }
static unsigned scale_blocks(unsigned n) { return n + 1 + 65536 / 32; }

static void *work(void *argument) {
  unsigned n = (unsigned)(uintptr_t)argument;
  work_t w = new_work();
  int seen = -1;
  unsigned left = 0;
  for (unsigned round = 0;; round++) {
    pthread_mutex_lock(&lock);
    if ((int)order != seen) {
      // A thread that has followed an order to stop has nothing in flight.
      if (order != RUNNING && seen == RUNNING) HIP(hipStreamSynchronize(w.stream));
      seen = order;
      left = limit;
      // The first round of each run makes a copy, however short the run is.
      round = 0;
      worker[n].work = w;
      following++;
      pthread_cond_broadcast(&changed);
    }
    while ((int)order == seen && order == STOPPED) pthread_cond_wait(&changed, &lock);
    bool run = order == RUNNING && seen == RUNNING, end = order == ENDED && seen == ENDED;
    pthread_mutex_unlock(&lock);
    if (end) break;
    if (!run) continue;
    launch_vadd(&kernels, &w, vadd_blocks(n));
    launch_scale(&kernels, &w, scale_blocks(n));
    if (round % 16 == 0) round_trip(&w, n * 1000 + round);
    unsigned us = atomic_load(&pause_us);
    if (us) usleep(us);
    if (left && !--left) {
      HIP(hipStreamSynchronize(w.stream));
      pthread_mutex_lock(&lock);
      finished++;
      pthread_cond_broadcast(&changed);
      while (order == RUNNING) pthread_cond_wait(&changed, &lock);
      pthread_mutex_unlock(&lock);
    }
  }
  end_work(&w);
  return NULL;
}

static void obey(int new_order) {
  pthread_mutex_lock(&lock);
  if ((int)order != new_order) {
    order = new_order;
    following = 0;
    pthread_cond_broadcast(&changed);
    while (following < nthreads) pthread_cond_wait(&changed, &lock);
  }
  pthread_mutex_unlock(&lock);
}

static void rounds(unsigned count) {
  limit = count;
  finished = 0;
  obey(RUNNING);
  pthread_mutex_lock(&lock);
  while (finished < nthreads) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
  obey(STOPPED);
  limit = 0;
}

static void add(unsigned count) {
  pthread_mutex_lock(&lock);
  if (nthreads + count > MOST) fail("too many threads");
  unsigned first = nthreads;
  nthreads += count;
  following = nthreads - count;
  for (unsigned n = first; n < nthreads; n++) worker[n].thread = start_thread(work, (void *)(uintptr_t)n);
  // A new thread counts itself once it has its stream and follows the present order.
  while (following < nthreads) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
}

static void counts(void) {
  unsigned long total = 0;
  for (unsigned n = 0; n < nthreads; n++) {
    work_t *w = &worker[n].work;
    report("thread", n, w, vadd_blocks(n), scale_blocks(n));
    total += w->vadds + w->scales;
  }
  say("total %lu", total);
}

int main(int argc, char **argv) {
  if (argc < 3) fail("usage: streams KERNELS THREADS");
  kernels = load_kernels(argv[1]);
  add(atoi(argv[2]));
  say("ready");
  char line[64];
  unsigned number;
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (!strcmp(line, "start")) obey(RUNNING), say("start");
    else if (!strcmp(line, "stop")) obey(STOPPED), say("stop");
    else if (sscanf(line, "rounds %u", &number) == 1) rounds(number), say("rounds");
    else if (sscanf(line, "new %u", &number) == 1) add(number), say("new");
    else if (sscanf(line, "pause %u", &number) == 1) atomic_store(&pause_us, number), say("pause");
    else if (!strcmp(line, "counts")) counts();
    else if (!strcmp(line, "tables")) say_tables();
    else fail("unknown command \"%s\"", line);
  }
  obey(STOPPED);
  counts();
  obey(ENDED);
  for (unsigned n = 0; n < nthreads; n++) pthread_join(worker[n].thread, NULL);
  HIP(hipModuleUnload(kernels.module));
  say("done");
  return 0;
}
