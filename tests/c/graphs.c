// graphs KERNELS THREADS NODES [fork]: each thread launches a graph of NODES kernels on a stream of its own,
// thread N `vadd` with grid.x 64 * (N + 1) and `scale` with grid.x 32 * (N + 1) + 65536 by turns; every
// 8th round it waits, and every 16th it copies there and back and checks. Commands: "start" and "stop"
// (launching on and off; each answers with the command's name when every thread has followed), "pause
// US" sets a pause between rounds, "renew" makes each thread take another graph before it goes on,
// "refused" launches a graph that HIP refuses, "counts" and "quit": one line per thread, then "total
// LAUNCHES"; "quit" ends the program. With "fork" every second node is in a branch of its own graph that
// runs beside the other.
#include "hip_kit.h"

enum { MOST = 16 };
static kernels_t kernels;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool forks;
static enum { STOPPED, RUNNING, ENDED } order = STOPPED;
static atomic_uint pause_us;
static unsigned nthreads, nodes, renewals, following;  // under the lock: threads that have seen the order
static struct { pthread_t thread; work_t work; } worker[MOST];

static unsigned vadd_blocks(unsigned n) { return n + 1; }
static unsigned scale_blocks(unsigned n) { return n + 1 + 65536 / 32; }

// A graph of this thread's kernels, captured: nothing is launched by that.
static hipGraphExec_t capture(work_t *w, unsigned n) {
  hipGraph_t graph;
  hipGraphExec_t ready;
  work_t counted = *w, branch = *w;
  hipEvent_t forked, joined;
  HIP(hipStreamBeginCapture(w->stream, hipStreamCaptureModeThreadLocal));
  if (forks) {
    HIP(hipStreamCreate(&branch.stream));
    HIP(hipEventCreate(&forked));
    HIP(hipEventCreate(&joined));
    HIP(hipEventRecord(forked, w->stream));
    HIP(hipStreamWaitEvent(branch.stream, forked, 0));
  }
  for (unsigned node = 0; node < nodes; node++) {
    if (node % 2) launch_scale(&kernels, &branch, scale_blocks(n));
    else launch_vadd(&kernels, &counted, vadd_blocks(n));
  }
  if (forks) {
    HIP(hipEventRecord(joined, branch.stream));
    HIP(hipStreamWaitEvent(w->stream, joined, 0));
  }
  HIP(hipStreamEndCapture(w->stream, &graph));
  HIP(hipGraphInstantiate(&ready, graph, NULL, NULL, 0));
  HIP(hipGraphDestroy(graph));
  if (forks) {
    HIP(hipEventDestroy(forked));
    HIP(hipEventDestroy(joined));
    HIP(hipStreamDestroy(branch.stream));
  }
  return ready;
}

static void *work(void *argument) {
  unsigned n = (unsigned)(uintptr_t)argument;
  work_t w = new_work();
  hipGraphExec_t graph = capture(&w, n);
  int seen = -1;
  unsigned taken = 0;
  for (unsigned round = 0;; round++) {
    pthread_mutex_lock(&lock);
    if ((int)order != seen) {
      // A thread that has followed an order to stop has nothing in flight.
      if (order != RUNNING && seen == RUNNING) HIP(hipStreamSynchronize(w.stream));
      seen = order;
      if (taken != renewals) {
        taken = renewals;
        HIP(hipGraphExecDestroy(graph));
        graph = capture(&w, n);
      }
      worker[n].work = w;
      following++;
      pthread_cond_broadcast(&changed);
    }
    while ((int)order == seen && order == STOPPED) pthread_cond_wait(&changed, &lock);
    bool run = order == RUNNING, end = order == ENDED && seen == ENDED;
    pthread_mutex_unlock(&lock);
    if (end) break;
    if (!run) continue;
    HIP(hipGraphLaunch(graph, w.stream));
    w.vadds += (nodes + 1) / 2;
    w.scales += nodes / 2;
    if (round % 16 == 0) round_trip(&w, n * 1000 + round);
    else if (round % 8 == 0) HIP(hipStreamSynchronize(w.stream));
    unsigned us = atomic_load(&pause_us);
    if (us) usleep(us);
  }
  HIP(hipGraphExecDestroy(graph));
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
  if (argc < 4) fail("usage: graphs KERNELS THREADS NODES [fork]");
  kernels = load_kernels(argv[1]);
  nodes = atoi(argv[3]);
  forks = argc > 4 && !strcmp(argv[4], "fork");
  unsigned count = atoi(argv[2]);
  if (count > MOST || nodes == 0) fail("too many threads, or no nodes");
  pthread_mutex_lock(&lock);
  nthreads = count;
  for (unsigned n = 0; n < nthreads; n++) worker[n].thread = start_thread(work, (void *)(uintptr_t)n);
  // A thread counts itself once it has its graph.
  while (following < nthreads) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
  say("ready");
  char line[64];
  unsigned number;
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (!strcmp(line, "start")) obey(RUNNING), say("start");
    else if (!strcmp(line, "stop")) obey(STOPPED), say("stop");
    else if (sscanf(line, "pause %u", &number) == 1) atomic_store(&pause_us, number), say("pause");
    else if (!strcmp(line, "renew")) {
      pthread_mutex_lock(&lock);
      renewals++;
      pthread_mutex_unlock(&lock);
      say("renew");
    } else if (!strcmp(line, "refused")) {
      if (hipGraphLaunch(NULL, NULL) == hipSuccess) fail("no graph was launched");
      say("refused");
    } else if (!strcmp(line, "counts")) counts();
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
