// two_memories: memory of two GPUs, on the stand-in runtimes. "go N": N rounds of device memory on
// each GPU and of pinned memory, released again, one line "did OPERATION ADDRESS BYTES NODE" each
// (as AMD numbers operations: 1 allocate, 3 free; NODE -1 for a release). Answers "go". "quit" says
// "done".
#include "hip.h"
#include "kit.h"

#define HIP(call)                                                      \
  do {                                                                 \
    if (call) fail("%s:%d %s", __FILE__, __LINE__, #call); \
  } while (0)

static void did(int operation, const void *address, size_t bytes, int node) {
  say("did %d 0x%lx %zu %d", operation, (unsigned long)address, bytes, node);
}

int main(void) {
  int devices = 0;
  HIP(hipGetDeviceCount(&devices));
  if (devices != 2) fail("%d devices", devices);
  say("ready");
  char line[64];
  unsigned number;
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (sscanf(line, "go %u", &number) != 1) fail("unknown command \"%s\"", line);
    for (unsigned n = 0; n < number; n++) {
      void *memory[3];
      for (int device = 0; device < 2; device++) {
        size_t bytes = (size_t)65536 * (n + 1) * (device + 1);
        HIP(hipSetDevice(device));
        HIP(hipMalloc(&memory[device], bytes));
        did(1, memory[device], bytes, device + 1);
      }
      HIP(hipHostMalloc(&memory[2], 4096, 0));
      did(1, memory[2], 4096, 0);
      for (int i = 0; i < 2; i++) {
        HIP(hipFree(memory[i]));
        did(3, memory[i], 0, -1);
      }
      HIP(hipHostFree(memory[2]));
      did(3, memory[2], 0, -1);
    }
    say("go");
  }
  say("done");
  return 0;
}
