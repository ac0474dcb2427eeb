// stream_order: what HIP promises about the order of work on several streams, on the stand-in. A kernel takes long enough (20 ms,
// set by the test) that whatever does not wait for it is early. Each part prints its name and how many results were wrong; a part
// that waits for ever prints nothing.
#include "hip.h"
#include "kit.h"

enum { BYTES = 64 << 10, SENT = 5, SET = 9, NON_BLOCKING = 1, NOT_READY = 600 };

KERNEL(step, "_Z4stepPfi")

hipError_t hipStreamCreateWithFlags(hipStream_t *stream, unsigned flags);
hipError_t hipStreamQuery(hipStream_t stream);

#define MUST(call)                                                  \
  do {                                                              \
    int error_ = (call);                                            \
    if (error_) fail("line %d, %s: %d", __LINE__, #call, error_);   \
  } while (0)

static unsigned char sent[BYTES], back[BYTES];
static hipStream_t first, second, third;
static void *at;

static void launch(hipStream_t stream) {
  dim3 one = {1, 1, 1}, block = {64, 1, 1};
  MUST(hipLaunchKernel((const void *)step, one, block, NULL, 0, stream));
}

// Bytes of `back` that are not `value`.
static int others(int value) {
  int count = 0;
  for (int i = 0; i < BYTES; i++) count += back[i] != value;
  return count;
}

// One stream reads after a kernel what another one then sets: the second waits for the first.
static int set_after(hipStream_t reads, hipStream_t sets) {
  MUST(hipMemcpyAsync(at, sent, BYTES, hipMemcpyHostToDevice, reads));
  launch(reads);
  MUST(hipMemcpyAsync(back, at, BYTES, hipMemcpyDeviceToHost, reads));
  MUST(hipMemsetAsync(at, SET, BYTES, sets));
  MUST(hipStreamSynchronize(reads));
  int wrong = others(SENT);
  MUST(hipMemcpyAsync(back, at, BYTES, hipMemcpyDeviceToHost, sets));
  MUST(hipStreamSynchronize(sets));
  return wrong + others(SET);
}

// A stream that does not block is not waited for.
static int non_blocking(void) {
  hipStream_t apart;
  MUST(hipStreamCreateWithFlags(&apart, NON_BLOCKING));
  launch(apart);
  MUST(hipMemset(at, SET, BYTES));
  int wrong = hipStreamQuery(apart) != NOT_READY;
  MUST(hipStreamDestroy(apart));
  return wrong;
}

// `second` comes to its wait for `event` after `event` has happened and is something else.
static hipEvent_t waited_for(void) {
  hipEvent_t event;
  MUST(hipEventCreate(&event));
  launch(first);
  launch(second);
  launch(second);
  MUST(hipEventRecord(event, first));
  MUST(hipStreamWaitEvent(second, event, 0));
  MUST(hipStreamSynchronize(first));
  return event;
}

static int destroyed(void) {
  hipEvent_t event = waited_for(), more[8];
  MUST(hipEventDestroy(event));
  for (int i = 0; i < 8; i++) MUST(hipEventCreate(&more[i]));
  MUST(hipStreamSynchronize(second));
  for (int i = 0; i < 8; i++) MUST(hipEventDestroy(more[i]));
  return 0;
}

// The event is recorded again by a stream that waits for `second`.
static int recorded_again(void) {
  hipEvent_t event = waited_for(), then;
  MUST(hipEventCreate(&then));
  MUST(hipEventRecord(then, second));
  MUST(hipStreamWaitEvent(third, then, 0));
  MUST(hipEventRecord(event, third));
  MUST(hipStreamSynchronize(second));
  MUST(hipStreamSynchronize(third));
  MUST(hipEventDestroy(then));
  MUST(hipEventDestroy(event));
  return 0;
}

int main(void) {
  memset(sent, SENT, sizeof sent);
  MUST(hipStreamCreate(&first));
  MUST(hipStreamCreate(&second));
  MUST(hipStreamCreate(&third));
  MUST(hipMalloc(&at, BYTES));
  say("null after blocking: %d", set_after(first, NULL));
  say("blocking after null: %d", set_after(NULL, first));
  say("non-blocking: %d", non_blocking());
  say("destroyed: %d", destroyed());
  say("recorded again: %d", recorded_again());
  MUST(hipFree(at));
  say("done");
  return 0;
}
