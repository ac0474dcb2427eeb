// copies: every kind of copy. "go COUNT" does COUNT rounds of: pinned to device and back, pageable
// to device and back, device to device, a rectangle to device and back, a small one there and back
// (which HIP does with a kernel), hipMemset; and checks what copy engines moved (kernels compute
// nothing on the model). Answers "go". "quit" says "done".
#include "hip_kit.h"

enum { BYTES = 256 << 10, PITCH = 1024, WIDTH = 640, ROWS = 200, SMALL = 512 };

static void check(const char *what, const char *is, const char *should, size_t bytes) {
  if (memcmp(is, should, bytes)) fail("%s came back changed", what);
}

static void round_of(hipStream_t stream, char *device, char *other, char *pinned, char *pinned_back, char *plain, char *plain_back, unsigned seed) {
  for (int i = 0; i < BYTES; i++) pinned[i] = (char)(i * 7 + seed), plain[i] = (char)(i * 5 + seed);
  memset(pinned_back, 0, BYTES), memset(plain_back, 0, BYTES);
  HIP(hipMemcpyAsync(device, pinned, BYTES, hipMemcpyHostToDevice, stream));
  HIP(hipMemcpyAsync(pinned_back, device, BYTES, hipMemcpyDeviceToHost, stream));
  HIP(hipStreamSynchronize(stream));
  check("pinned memory", pinned_back, pinned, BYTES);
  HIP(hipMemcpy(device, plain, BYTES, hipMemcpyHostToDevice));
  HIP(hipMemcpy(plain_back, device, BYTES, hipMemcpyDeviceToHost));
  check("pageable memory", plain_back, plain, BYTES);
  HIP(hipMemcpyAsync(other, device, BYTES, hipMemcpyDeviceToDevice, stream));
  HIP(hipMemcpy2DAsync(device, PITCH, pinned, PITCH, WIDTH, ROWS, hipMemcpyHostToDevice, stream));
  HIP(hipMemcpy2DAsync(pinned_back, PITCH, device, PITCH, WIDTH, ROWS, hipMemcpyDeviceToHost, stream));
  HIP(hipMemcpyAsync(device, pinned, SMALL, hipMemcpyHostToDevice, stream));
  HIP(hipMemcpyAsync(pinned_back, device, SMALL, hipMemcpyDeviceToHost, stream));
  HIP(hipMemsetAsync(other, 1, BYTES, stream));
  HIP(hipStreamSynchronize(stream));
}

int main(void) {
  hipStream_t stream;
  char *device, *other, *pinned, *pinned_back, *plain = malloc(BYTES), *plain_back = malloc(BYTES);
  HIP(hipStreamCreate(&stream));
  HIP(hipMalloc((void **)&device, BYTES));
  HIP(hipMalloc((void **)&other, BYTES));
  HIP(hipHostMalloc((void **)&pinned, BYTES, 0));
  HIP(hipHostMalloc((void **)&pinned_back, BYTES, 0));
  if (!plain || !plain_back) fail("malloc failed");
  say("ready");
  char line[64];
  unsigned number;
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (sscanf(line, "go %u", &number) != 1) fail("unknown command \"%s\"", line);
    for (unsigned n = 0; n < number; n++) round_of(stream, device, other, pinned, pinned_back, plain, plain_back, n);
    HIP(hipDeviceSynchronize());
    say("go");
  }
  HIP(hipFree(device));
  HIP(hipFree(other));
  HIP(hipHostFree(pinned));
  HIP(hipHostFree(pinned_back));
  HIP(hipStreamDestroy(stream));
  say("done");
  return 0;
}
