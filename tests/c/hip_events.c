// hip_events KERNELS [untimed]: two streams, and events by which one waits for the other. "untimed": the
// events are made without times. Commands, each answered with its name: "round COUNT" (so many times:
// `vadd` in stream A, an event recorded there, stream B waits for it, `scale` in stream B, a second
// event recorded there; then it waits for both streams), "done" (the first event is recorded, waited for
// by the host, and then by stream B), "again" (the first event is recorded three times with nothing
// between), "refused" (an event that HIP refuses is recorded), "capture" (the same as a round, in a graph
// that is never launched), "null" (a kernel on the null stream, for which stream A waits before it records
// the first event; then kernels in A and B, for which the null stream waits before it records the second
// one), "quit": "events FIRST SECOND records RECORDS waits WAITS", with the handles in
// hexadecimal, and the program ends.
#include "hip_kit.h"

static kernels_t kernels;
static work_t a, b;
static hipEvent_t first, second;
static unsigned long records, waits;

static void record(hipEvent_t event, hipStream_t stream) {
  HIP(hipEventRecord(event, stream));
  records++;
}

static void wait_for(hipStream_t stream, hipEvent_t event) {
  HIP(hipStreamWaitEvent(stream, event, 0));
  waits++;
}

static void round_of(void) {
  launch_vadd(&kernels, &a, 1);
  record(first, a.stream);
  wait_for(b.stream, first);
  launch_scale(&kernels, &b, 3);
  record(second, b.stream);
}

static void capture(void) {
  hipGraph_t graph;
  work_t kept_a = a, kept_b = b;
  HIP(hipStreamBeginCapture(a.stream, hipStreamCaptureModeThreadLocal));
  round_of();
  wait_for(a.stream, second);
  HIP(hipStreamEndCapture(a.stream, &graph));
  HIP(hipGraphDestroy(graph));
  a = kept_a;
  b = kept_b;
}

static void null_stream(void) {
  work_t null = a;
  null.stream = NULL;
  launch_vadd(&kernels, &null, 4);
  record(first, a.stream);
  launch_vadd(&kernels, &a, 2);
  launch_scale(&kernels, &b, 5);
  record(second, NULL);
  HIP(hipStreamSynchronize(NULL));
}

static void both_done(void) {
  HIP(hipStreamSynchronize(a.stream));
  HIP(hipStreamSynchronize(b.stream));
}

int main(int argc, char **argv) {
  if (argc < 2) fail("usage: hip_events KERNELS [untimed]");
  bool untimed = argc > 2 && !strcmp(argv[2], "untimed");
  kernels = load_kernels(argv[1]);
  a = new_work();
  b = new_work();
  HIP(hipEventCreateWithFlags(&first, untimed ? hipEventDisableTiming : hipEventDefault));
  HIP(hipEventCreateWithFlags(&second, untimed ? hipEventDisableTiming : hipEventDefault));
  say("ready");
  char line[64];
  unsigned number;
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (sscanf(line, "round %u", &number) == 1) {
      while (number--) round_of();
      both_done();
      say("round");
    } else if (!strcmp(line, "done")) {
      record(first, a.stream);
      HIP(hipEventSynchronize(first));
      wait_for(b.stream, first);
      both_done();
      say("done");
    } else if (!strcmp(line, "again")) {
      for (int n = 0; n < 3; n++) record(first, a.stream);
      both_done();
      say("again");
    } else if (!strcmp(line, "refused")) {
      if (hipEventRecord(NULL, a.stream) == hipSuccess) fail("no event was recorded");
      say("refused");
    } else if (!strcmp(line, "capture")) {
      capture();
      say("capture");
    } else if (!strcmp(line, "null")) {
      null_stream();
      both_done();
      say("null");
    } else fail("unknown command \"%s\"", line);
  }
  say("events %p %p records %lu waits %lu", (void *)first, (void *)second, records, waits);
  HIP(hipEventDestroy(first));
  HIP(hipEventDestroy(second));
  end_work(&a);
  end_work(&b);
  HIP(hipModuleUnload(kernels.module));
  return 0;
}
