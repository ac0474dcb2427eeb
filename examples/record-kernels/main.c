// record-kernels PID SECONDS: records the kernels of a process, and prints their number and total time.
// Build: cc main.c -o record-kernels $(pkg-config --cflags --libs midair)
#include <inttypes.h>
#include <midair/midair.h>
#include <stdio.h>
#include <stdlib.h>

struct sum {
  uint64_t kernels;
  uint64_t ns;
};

static int add(const midair_kernel *kernel, void *data) {
  struct sum *sum = data;
  sum->kernels += 1;
  sum->ns += kernel->end - kernel->start;
  return 0;
}

static int failed(int status) {
  fprintf(stderr, "%s\nhint: %s\n", midair_error_message(), midair_error_remedy());
  return status;
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: record-kernels PID SECONDS\n");
    return 2;
  }
  midair_options *options = midair_options_new((uint32_t)strtoul(argv[1], NULL, 10));
  midair_options_add(options, "kernel-trace", NULL, 0);
  midair_options_set_duration(options, (uint64_t)(strtod(argv[2], NULL) * 1e9));
  midair_session *session = NULL;
  int status = midair_start(options, &session);
  midair_options_free(options);
  if (status) return failed(status);

  midair_recording *recording = NULL;
  status = midair_wait(session, &recording);
  if (status) return failed(status);
  struct sum sum = {0, 0};
  status = midair_recording_kernels(recording, add, &sum);
  if (!status) status = midair_recording_status(recording);
  midair_recording_free(recording);
  if (status) return failed(status);
  printf("%" PRIu64 " kernels, %" PRIu64 " ns\n", sum.kernels, sum.ns);
  return 0;
}
