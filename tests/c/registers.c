/* Preloaded into a program: gives up root for REGISTERS_UID if that is set, then registers a library that no profiler knows with our
 * register library, so that the process has a listener. Runs before the program's own code. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

int rocprofiler_register_library_api_table(const char *, void *, uint32_t, void **, uint64_t, uint64_t *);

static uint64_t table[4] = {32, 1, 2, 3};

__attribute__((constructor)) static void begin(void) {
  const char *user = getenv("REGISTERS_UID");
  if (user) {
    unsigned id = (unsigned)atoi(user);
    if (setresgid(id, id, id) || setresuid(id, id, id)) _exit(9);
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
  }
  void *tables[1] = {table};
  uint64_t id = 0;
  if (rocprofiler_register_library_api_table("rocjpeg", NULL, 10000, tables, 1, &id) > 1) _exit(8);
}
