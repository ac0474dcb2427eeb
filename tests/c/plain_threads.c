// plain_threads BUSY PARKED: no GPU, only threads. BUSY threads allocate and free without pause,
// fill and check what they got; PARKED threads block in system calls, one kind after another. Says
// "ready"; on "sum" says "rounds R" (which grows); on "stop" wakes everybody, checks that no system
// call was disturbed, says "done rounds R" and exits 0.
#include "kit.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

static atomic_bool stop;
static atomic_ulong rounds;
static int wake_event, wake_pipe[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static uint64_t next(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

// Writes a pattern that depends on the seed, later checks it: memory or registers that were changed
// from outside show up.
static void *busy(void *argument) {
  enum { SLOTS = 64 };
  struct { unsigned char *at; size_t size; unsigned char byte; } slot[SLOTS] = {0};
  uint64_t state = (uintptr_t)argument * 0x9e3779b97f4a7c15u + 1;
  double sum = 0, expected = 0;
  while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
    int n = next(&state) % SLOTS;
    if (slot[n].at) {
      for (size_t i = 0; i < slot[n].size; i++)
        if (slot[n].at[i] != slot[n].byte) fail("thread %lu: byte %zu of %zu changed", (long)argument, i, slot[n].size);
      free(slot[n].at);
    }
    // Small ones from the heap and its bins, some above the mmap threshold.
    slot[n].size = next(&state) % (next(&state) % 256 == 0 ? 200000 : 2000) + 1;
    slot[n].byte = (unsigned char)next(&state);
    slot[n].at = malloc(slot[n].size);
    if (!slot[n].at) fail("malloc failed");
    memset(slot[n].at, slot[n].byte, slot[n].size);
    // Floating point state has to survive as well.
    sum += 0.5, expected += 0.5;
    if (sum != expected) fail("thread %lu: sums differ", (long)argument);
    atomic_fetch_add_explicit(&rounds, 1, memory_order_relaxed);
  }
  for (int n = 0; n < SLOTS; n++) free(slot[n].at);
  return NULL;
}

static void *parked(void *argument) {
  uint64_t value = 0;
  char byte = 0;
  struct pollfd set = {.fd = wake_event, .events = POLLIN};
  switch ((uintptr_t)argument % 4) {
    case 0:
      if (poll(&set, 1, -1) != 1) fail("poll: %s", strerror(errno));
      break;
    case 1:
      if (read(wake_pipe[0], &byte, 1) != 1 || byte != 'w') fail("read of a pipe: %s", strerror(errno));
      break;
    case 2:
      if (read(wake_event, &value, sizeof value) != sizeof value || value != 1) fail("read of an eventfd: %s", strerror(errno));
      break;
    default:
      pthread_mutex_lock(&lock);
      while (!atomic_load(&stop)) pthread_cond_wait(&changed, &lock);
      pthread_mutex_unlock(&lock);
  }
  return NULL;
}

int main(int count, char **words) {
  long nbusy = count > 1 ? atol(words[1]) : 4, nparked = count > 2 ? atol(words[2]) : 4;
  pthread_t *threads = calloc(nbusy + nparked, sizeof *threads);
  // A semaphore: one waker per sleeper.
  wake_event = eventfd(0, EFD_SEMAPHORE);
  if (wake_event < 0 || pipe(wake_pipe)) fail("eventfd or pipe: %s", strerror(errno));
  for (long n = 0; n < nbusy; n++) threads[n] = start_thread(busy, (void *)(n + 1));
  for (long n = 0; n < nparked; n++) threads[nbusy + n] = start_thread(parked, (void *)n);
  say("ready");
  char line[64];
  while (hear(line, sizeof line) && strcmp(line, "stop")) {
    if (strcmp(line, "sum")) fail("unknown command \"%s\"", line);
    say("rounds %lu", atomic_load(&rounds));
  }
  atomic_store(&stop, true);
  uint64_t many = nparked + 1;
  if (write(wake_event, &many, sizeof many) != sizeof many) fail("write: %s", strerror(errno));
  for (long n = 0; n < nparked; n++)
    if (write(wake_pipe[1], "w", 1) != 1) fail("write: %s", strerror(errno));
  pthread_mutex_lock(&lock);
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  for (long n = 0; n < nbusy + nparked; n++) pthread_join(threads[n], NULL);
  free(threads);
  say("done rounds %lu", atomic_load(&rounds));
  return 0;
}
