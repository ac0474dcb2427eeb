// long_names LENGTH...: a kernel for each length, whose name has so many bytes (at least 1). Names of the same length differ in their
// last byte. Commands:
//   work N   launches each kernel N times, the first with grid.x 64, the second with 128, and so on
//   quit
// Each answers with its name when it is done; "quit" with "done".
#include "hip.h"
#include "kit.h"

enum { MOST = 16 };
static char hosts[MOST];
static int count;

static void add(int length) {
  static const struct {
    uint32_t magic, version;
    const void *binary, *unused;
  } wrapper = {0x48495046, 1, 0, 0};
  if (count == MOST || length < 1) fail("too many kernels, or no name");
  char *name = malloc((size_t)length + 1);
  if (!name) fail("no memory");
  memset(name, 'k', (size_t)length);
  name[length - 1] = (char)('A' + count);
  name[length] = 0;
  __hipRegisterFunction(__hipRegisterFatBinary(&wrapper), &hosts[count], name, name, -1u, 0, 0, 0, 0, 0);
  count++;
}

static void work(int rounds) {
  for (int round = 0; round < rounds; round++) {
    for (int kernel = 0; kernel < count; kernel++) {
      dim3 grid = {(uint32_t)kernel + 1, 1, 1}, block = {64, 1, 1};
      if (hipLaunchKernel(&hosts[kernel], grid, block, NULL, 0, NULL)) fail("kernel %d is not launched", kernel);
    }
  }
  if (hipDeviceSynchronize()) fail("no end of the kernels");
}

int main(int words, char **word) {
  for (int at = 1; at < words; at++) add(atoi(word[at]));
  work(1);
  say("ready");
  char line[64];
  while (hear(line, sizeof line)) {
    if (!strcmp(line, "quit")) {
      // Whoever wrote past the end of a piece of the heap is found out here.
      for (size_t bytes = 1; bytes < 1u << 22; bytes += bytes / 2 + 1) free(malloc(bytes));
      say("done");
      return 0;
    }
    work(atoi(line + strlen("work")));
    say("work");
  }
  return 1;
}
