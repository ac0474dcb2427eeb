// null_stream: fills memory on the null stream for 0.1 s of its first thread's processor time, so that it loses its processor some
// times or has one of its own, while other threads create and destroy streams. Compiled against the CUDA stand-in.
#include <cuda.h>
#include "kit.h"
#include <time.h>

#define MUST(call)                                                \
  do {                                                            \
    int error_ = (call);                                          \
    if (error_) fail("line %d, %s: %d", __LINE__, #call, error_); \
  } while (0)

enum { OTHERS = 3, STREAMS = 256, NS = 100000000 };

static atomic_bool stopping;

static void *churn(void *unused) {
  cudaStream_t streams[STREAMS];
  while (!stopping) {
    for (int i = 0; i < STREAMS; i++) MUST(cudaStreamCreate(&streams[i]));
    for (int i = 0; i < STREAMS; i++) MUST(cudaStreamDestroy(streams[i]));
  }
  return unused;
}

static bool goes_on(void) {
  struct timespec ran;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ran);
  return !ran.tv_sec && ran.tv_nsec < NS;
}

int main(void) {
  pthread_t others[OTHERS];
  void *at;
  MUST(cudaMalloc(&at, 64));
  for (int i = 0; i < OTHERS; i++) others[i] = start_thread(churn, NULL);
  while (goes_on()) MUST(cudaMemsetAsync(at, 1, 64, NULL));
  stopping = true;
  for (int i = 0; i < OTHERS; i++) pthread_join(others[i], NULL);
  say("done");
  return 0;
}
