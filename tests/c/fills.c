// fills: starts as AMD's runtime does: fills memory inside pthread_once, for as long as the test wants, and makes no system call
// meanwhile. Says "filling" before it. SIGUSR1 ends that; then the program uses a GPU and says "done".
#include <signal.h>

#include "hip.h"
#include "kit.h"

#define HIP(call)                                                                                  \
  do {                                                                                             \
    hipError_t error_ = (call);                                                                    \
    if (error_) fail("%s:%d %s: %s", __FILE__, __LINE__, #call, hipGetErrorString(error_));        \
  } while (0)

enum { BYTES = 65536 };
static unsigned char memory[32 << 20];
static volatile sig_atomic_t enough;

static void end(int signal) {
  (void)signal;
  enough = 1;
}

static void fill(void) {
  for (int value = 1; !enough; value ^= 3) {
    memset(memory, value, sizeof memory);
    if (memory[sizeof memory / 2] != value) fail("memory is not filled");
  }
}

int main(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (signal(SIGUSR1, end) == SIG_ERR) fail("signal");
  say("filling");
  pthread_once(&once, fill);
  void *there;
  HIP(hipMalloc(&there, BYTES));
  HIP(hipMemcpy(there, memory, BYTES, hipMemcpyHostToDevice));
  memset(memory, 0, BYTES);
  HIP(hipMemcpy(memory, there, BYTES, hipMemcpyDeviceToHost));
  if (!memory[BYTES - 1]) fail("a copy came back as zeros");
  HIP(hipFree(there));
  say("done");
  return 0;
}
