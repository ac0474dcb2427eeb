// Events of the kernel driver happen on command (tests/c/kfd_events.c): "happens N": N rounds of a
// migration, a fault, an eviction with a restore that came later, an unmap and a drop, on the GPU
// whose id is the argument; answers with how many lines readers got. "readers": how many
// descriptors are open. "quit" ends it.
#include "kit.h"
#include <dlfcn.h>
#include <time.h>

static int (*happens)(uint32_t, const char *);
static uint32_t gpu;

static unsigned long now(void) {
  struct timespec time;
  clock_gettime(CLOCK_BOOTTIME, &time);
  return (unsigned long)time.tv_sec * 1000000000 + (unsigned long)time.tv_nsec;
}

__attribute__((format(printf, 1, 2))) static int event(const char *format, ...) {
  char line[128];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  return happens(gpu, line);
}

static int round_of_events(unsigned long n) {
  int told = 0, pid = (int)getpid();
  told += event("5 %lu -%d @%lx(4) 0->%x %x:0 1\n", now(), pid, 0x1000 + n, gpu, gpu);
  told += event("6 %lu -%d @%lx(4) 0->%x 1 -12\n", now(), pid, 0x1000 + n, gpu);
  told += event("7 %lu -%d @%lx(%x) W\n", now(), pid, 0x2000 + n, gpu);
  told += event("8 %lu -%d @%lx(%x) U\n", now(), pid, 0x2000 + n, gpu);
  told += event("9 %lu -%d %x 2\n", now(), pid, gpu);
  told += event("a %lu -%d %x R\n", now(), pid, gpu);
  told += event("a %lu -%d %x \n", now(), pid, gpu);
  told += event("b %lu -%d @%lx(8) %x 2\n", now(), pid, 0x3000 + n, gpu);
  told += event("e %lu -%d %lu\n", now(), pid, n + 1);
  // No reader asked for this one.
  told += event("c %lu -%d\n", now(), pid);
  return told;
}

int main(int count, char **arguments) {
  char line[64];
  unsigned long rounds;
  int (*readers)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "kfd_readers");
  happens = (int (*)(uint32_t, const char *))dlsym(RTLD_DEFAULT, "kfd_happens");
  if (count != 2 || !happens || !readers) fail("without a GPU's id, or without the stand-in of the driver");
  gpu = (uint32_t)strtoul(arguments[1], NULL, 0);
  say("ready");
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (!strcmp(line, "readers")) {
      say("readers %d", readers());
    } else if (sscanf(line, "happens %lu", &rounds) == 1) {
      int told = 0;
      for (unsigned long n = 0; n < rounds; n++) told += round_of_events(n);
      say("happens %d", told);
    } else {
      fail("unknown command \"%s\"", line);
    }
  }
  say("done");
  return 0;
}
