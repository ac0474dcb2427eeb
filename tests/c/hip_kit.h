// What the HIP programs share. They are compiled without hipcc: kernels come as a code object
// (argument 1 of each program: the gfx942 code object with `vadd` and `scale`), and are launched by
// hipModuleLaunchKernel. On the modelled GPU kernels compute nothing and copies do copy, so the
// programs check copies, return codes and their own counts.
#pragma once
#include "kit.h"
#include <hip/hip_runtime_api.h>

#define HIP(call)                                                                                   \
  do {                                                                                              \
    hipError_t error_ = (call);                                                                     \
    if (error_ != hipSuccess) fail("%s:%d %s: %s", __FILE__, __LINE__, #call, hipGetErrorString(error_)); \
  } while (0)

// Names of the kernels in the code object.
#define VADD "_Z4vaddPKfS0_Pfi"
#define SCALE "_Z5scalePffi"
// Elements of each array. HIP copies up to 16 KiB by a kernel, which computes nothing on the model: stay well above.
enum { ELEMENTS = 16384 };

typedef struct {
  hipModule_t module;
  hipFunction_t vadd, scale;
} kernels_t;

__attribute__((unused)) static kernels_t load_kernels(const char *path) {
  kernels_t k;
  HIP(hipModuleLoad(&k.module, path));
  HIP(hipModuleGetFunction(&k.vadd, k.module, VADD));
  HIP(hipModuleGetFunction(&k.scale, k.module, SCALE));
  return k;
}

// Arrays and a stream, with what was done on them.
typedef struct {
  hipStream_t stream;
  float *a, *b, *c;
  unsigned long vadds, scales, copies, bytes;
} work_t;

__attribute__((unused)) static work_t new_work(void) {
  work_t w = {0};
  HIP(hipStreamCreate(&w.stream));
  HIP(hipMalloc((void **)&w.a, ELEMENTS * sizeof(float)));
  HIP(hipMalloc((void **)&w.b, ELEMENTS * sizeof(float)));
  HIP(hipMalloc((void **)&w.c, ELEMENTS * sizeof(float)));
  return w;
}

__attribute__((unused)) static void end_work(work_t *w) {
  HIP(hipFree(w->a));
  HIP(hipFree(w->b));
  HIP(hipFree(w->c));
  HIP(hipStreamDestroy(w->stream));
}

// Launches vadd with `blocks` blocks of 64, so that its grid.x in work-items is 64 * blocks.
__attribute__((unused)) static void launch_vadd(kernels_t *k, work_t *w, unsigned blocks) {
  int n = ELEMENTS;
  void *arguments[] = {&w->a, &w->b, &w->c, &n};
  HIP(hipModuleLaunchKernel(k->vadd, blocks, 1, 1, 64, 1, 1, 0, w->stream, arguments, NULL));
  w->vadds++;
}

// Launches scale with `blocks` blocks of 32 and 128 bytes of group memory.
__attribute__((unused)) static void launch_scale(kernels_t *k, work_t *w, unsigned blocks) {
  int n = ELEMENTS;
  float factor = 2;
  void *arguments[] = {&w->c, &factor, &n};
  HIP(hipModuleLaunchKernel(k->scale, blocks, 1, 1, 32, 1, 1, 128, w->stream, arguments, NULL));
  w->scales++;
}

// Sends an array that depends on `seed` to the device and back, and compares. Not timed by any
// kernel: bytes count twice.
__attribute__((unused)) static void round_trip(work_t *w, unsigned seed) {
  float *out = malloc(ELEMENTS * sizeof(float)), *back = calloc(ELEMENTS, sizeof(float));
  if (!out || !back) fail("malloc failed");
  for (int i = 0; i < ELEMENTS; i++) out[i] = (float)(seed + i);
  HIP(hipMemcpyAsync(w->a, out, ELEMENTS * sizeof(float), hipMemcpyHostToDevice, w->stream));
  HIP(hipMemcpyAsync(back, w->a, ELEMENTS * sizeof(float), hipMemcpyDeviceToHost, w->stream));
  HIP(hipStreamSynchronize(w->stream));
  if (memcmp(out, back, ELEMENTS * sizeof(float))) fail("a round trip of seed %u came back changed", seed);
  free(out);
  free(back);
  w->copies += 2;
  w->bytes += 2 * ELEMENTS * sizeof(float);
}

// The line that tests compare with the model's log.
__attribute__((unused)) static void report(const char *who, unsigned number, work_t *w, unsigned vadd_blocks, unsigned scale_blocks) {
  say("%s %u vadd %lu grid %u scale %lu grid %u copies %lu bytes %lu", who, number, w->vadds, vadd_blocks * 64, w->scales,
      scale_blocks * 32, w->copies, w->bytes);
}
