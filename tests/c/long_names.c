// long_names LENGTH...: a kernel for each length, whose name has so many bytes (at least 1). Names of the same length differ in their
// last byte. On the stand-in runtimes they are registered, on AMD's the runtime compiles them. Commands:
//   work N   launches each kernel N times, the first with grid.x 64, the second with 128, and so on
//   quit
// Each answers with its name when it is done; "quit" with "done".
#ifdef __HIP_PLATFORM_AMD__
#include <dlfcn.h>

#include "hip_kit.h"
#else
#include "hip.h"
#include "kit.h"
#endif

enum { MOST = 16 };
static char *names[MOST];
static int count;

static void add(int length) {
  if (count == MOST || length < 1) fail("too many kernels, or no name");
  char *name = malloc((size_t)length + 1);
  if (!name) fail("no memory");
  memset(name, 'k', (size_t)length);
  name[length - 1] = (char)('A' + count);
  name[length] = 0;
  names[count++] = name;
}

#ifdef __HIP_PLATFORM_AMD__
static hipFunction_t kernels[MOST];

// A function of HIP's compiler library, which takes up to six words.
static int rtc(const char *function, void *a, void *b, void *c, void *d, void *e, void *f) {
  static void *library;
  if (!library) library = dlopen("libhiprtc.so.7", RTLD_NOW);
  int (*call)(void *, void *, void *, void *, void *, void *) = library ? dlsym(library, function) : NULL;
  if (!call) fail("no %s: %s", function, dlerror());
  return call(a, b, c, d, e, f);
}

static void load(void) {
  size_t bytes = 1;
  for (int at = 0; at < count; at++) bytes += strlen(names[at]) + 64;
  char *source = malloc(bytes), *end = source;
  for (int at = 0; at < count; at++) end += sprintf(end, "extern \"C\" __global__ void %s() {}\n", names[at]);
  void *program = NULL;
  char *options[] = {"--offload-arch=gfx942"};
  if (rtc("hiprtcCreateProgram", &program, source, "long_names", NULL, NULL, NULL)) fail("no program");
  if (rtc("hiprtcCompileProgram", program, (void *)1, options, NULL, NULL, NULL)) fail("it is not compiled");
  size_t size = 0;
  if (rtc("hiprtcGetCodeSize", program, &size, NULL, NULL, NULL, NULL)) fail("no code");
  char *code = malloc(size);
  if (rtc("hiprtcGetCode", program, code, NULL, NULL, NULL, NULL)) fail("no code");
  hipModule_t module;
  HIP(hipModuleLoadData(&module, code));
  for (int at = 0; at < count; at++) HIP(hipModuleGetFunction(&kernels[at], module, names[at]));
}

static int launch(int kernel) {
  return hipModuleLaunchKernel(kernels[kernel], (unsigned)kernel + 1, 1, 1, 64, 1, 1, 0, NULL, NULL, NULL);
}
#else
static char hosts[MOST];

static void load(void) {
  static const struct {
    uint32_t magic, version;
    const void *binary, *unused;
  } wrapper = {0x48495046, 1, 0, 0};
  for (int at = 0; at < count; at++)
    __hipRegisterFunction(__hipRegisterFatBinary(&wrapper), &hosts[at], names[at], names[at], -1u, 0, 0, 0, 0, 0);
}

static int launch(int kernel) {
  return hipLaunchKernel(&hosts[kernel], (dim3){(uint32_t)kernel + 1, 1, 1}, (dim3){64, 1, 1}, NULL, 0, NULL);
}
#endif

static void work(int rounds) {
  for (int round = 0; round < rounds; round++) {
    for (int kernel = 0; kernel < count; kernel++) {
      if (launch(kernel)) fail("kernel %d is not launched", kernel);
    }
  }
  if (hipDeviceSynchronize()) fail("no end of the kernels");
}

int main(int words, char **word) {
  for (int at = 1; at < words; at++) add(atoi(word[at]));
  load();
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
