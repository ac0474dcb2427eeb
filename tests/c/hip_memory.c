// hip_memory: allocates by HIP. "init" is the first HIP call. "go N" does N rounds of device memory
// and pinned memory, released again, one line "did WHAT ADDRESS BYTES" each (WHAT is malloc, host,
// free, hostfree; a release has 0 bytes). Answers with the command's first word. "quit" says
// "done".
#include "hip_kit.h"

static void did(const char *what, const void *address, size_t bytes) {
  say("did %s 0x%lx %zu", what, (unsigned long)address, bytes);
}

int main(void) {
  say("ready");
  char line[64];
  unsigned number;
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (!strcmp(line, "init")) {
      HIP(hipInit(0));
      HIP(hipSetDevice(0));
      say("init");
    } else if (sscanf(line, "go %u", &number) == 1) {
      for (unsigned n = 0; n < number; n++) {
        void *device, *host;
        size_t bytes = ((size_t)1 << 20) * (n % 5 + 1);
        HIP(hipMalloc(&device, bytes));
        did("malloc", device, bytes);
        HIP(hipHostMalloc(&host, bytes / 2, 0));
        did("host", host, bytes / 2);
        HIP(hipFree(device));
        did("free", device, 0);
        HIP(hipHostFree(host));
        did("hostfree", host, 0);
      }
      say("go");
    } else {
      fail("unknown command \"%s\"", line);
    }
  }
  say("done");
  return 0;
}
