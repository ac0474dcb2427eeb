// ranks: processes that work on the stand-in runtimes' GPUs by command, for the tests of `e2e/trees.rs`.
//   ranks rank I    a rank with two threads, one per device. "work K": each launches K + I kernels; then "rank I pid P kernels N",
//                   N being all of this process so far. "exec": it becomes another such program. Ends with its input.
//   ranks pool W    forks W workers, which load nothing and exec nothing, before it has made any HIP call, as a pool of data loaders
//                   does; says "pool". Each line goes to every worker (which does it as a rank of its number) and then, if it is
//                   "both K", the pool itself works as rank 100. "grow" forks one more. "quit" ends all, and says "done BAD".
// Each process says "ready I pid P" when it is ready.
#include "hip.h"
#include "kit.h"
#include <sys/wait.h>

#define HIP(call)                                                                                  \
  do {                                                                                             \
    hipError_t error_ = (call);                                                                    \
    if (error_) fail("%s:%d %s: %s", __FILE__, __LINE__, #call, hipGetErrorString(error_));        \
  } while (0)

enum { DEVICES = 2, MOST = 32 };
KERNEL(step, "_Z4stepPfi")

typedef struct {
  int device;
  unsigned count;
  bool ready;
  hipStream_t stream;
} part_t;
static part_t parts[DEVICES];
static unsigned long kernels;
static char *self;

static void *run(void *argument) {
  part_t *part = argument;
  HIP(hipSetDevice(part->device));
  if (!part->ready) HIP(hipStreamCreate(&part->stream));
  part->ready = true;
  for (unsigned n = 0; n < part->count; n++) {
    HIP(hipLaunchKernel((void *)step, (dim3){4, 1, 1}, (dim3){64, 1, 1}, NULL, 0, part->stream));
    if (n % 16 == 15) HIP(hipStreamSynchronize(part->stream));
  }
  HIP(hipStreamSynchronize(part->stream));
  return NULL;
}

static void work(unsigned number, unsigned count) {
  pthread_t threads[DEVICES];
  for (int d = 0; d < DEVICES; d++) {
    parts[d].device = d;
    parts[d].count = count + number;
    threads[d] = start_thread(run, &parts[d]);
  }
  for (int d = 0; d < DEVICES; d++) pthread_join(threads[d], NULL);
  kernels += DEVICES * (unsigned long)(count + number);
  say("rank %u pid %d kernels %lu", number, getpid(), kernels);
}

static int rank(unsigned number, FILE *in) {
  char line[128], digits[16];
  unsigned count;
  say("ready %u pid %d", number, getpid());
  while (fgets(line, sizeof line, in)) {
    if (sscanf(line, "work %u", &count) == 1 || sscanf(line, "both %u", &count) == 1) {
      work(number, count);
    } else if (!strncmp(line, "exec", 4)) {
      snprintf(digits, sizeof digits, "%u", number);
      execl(self, self, "rank", digits, (char *)NULL);
      fail("exec");
    } else {
      fail("unknown command \"%s\"", line);
    }
  }
  fflush(stdout);
  return 0;
}

static FILE *to[MOST];
static unsigned workers;

static void grow(void) {
  int pipes[2];
  if (workers == MOST || pipe(pipes)) fail("no room for a worker");
  pid_t child = fork();
  if (child < 0) fail("fork");
  if (child == 0) {
    for (unsigned n = 0; n < workers; n++) close(fileno(to[n]));
    close(pipes[1]);
    // What its parent launched is not its own.
    kernels = 0;
    _exit(rank(workers, fdopen(pipes[0], "r")));
  }
  close(pipes[0]);
  to[workers++] = fdopen(pipes[1], "w");
}

static int pool(unsigned count) {
  while (workers < count) grow();
  say("pool");
  char line[128];
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (!strcmp(line, "grow")) {
      grow();
      continue;
    }
    for (unsigned n = 0; n < workers; n++) {
      fprintf(to[n], "%s\n", line);
      fflush(to[n]);
    }
    if (sscanf(line, "both %u", &count) == 1) work(100, count);
  }
  unsigned bad = 0;
  for (unsigned n = 0; n < workers; n++) fclose(to[n]);
  for (unsigned n = 0; n < workers; n++) {
    int status;
    wait(&status);
    bad += status != 0;
  }
  say("done %u", bad);
  return 0;
}

int main(int argc, char **argv) {
  self = argv[0];
  if (argc == 3 && !strcmp(argv[1], "rank")) return rank((unsigned)atoi(argv[2]), stdin);
  if (argc == 3 && !strcmp(argv[1], "pool")) return pool((unsigned)atoi(argv[2]));
  fail("usage: ranks rank I | ranks pool W");
}
