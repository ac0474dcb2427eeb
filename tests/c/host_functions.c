// host_functions KERNELS: a program that registers its kernels with HIP as hipcc's start-up code does, and launches them by
// their host functions. Commands:
//   register      a fat binary with the code object KERNELS, and the host functions of its two kernels; says
//                 "register VADD SCALE MODULES" with the addresses that it registered
//   launch N      N launches of each, by host function
//   quit
#include "hip_kit.h"
#include <sys/stat.h>

void **__hipRegisterFatBinary(const void *);
void __hipRegisterFunction(void **, const void *, char *, const char *, unsigned, void *, void *, dim3 *, dim3 *, int *);

// What stands for the kernels: addresses of the program's own.
static const char vadd, scale;

static void *bundle(const char *path) {
  static const char host[] = "host-x86_64-unknown-linux-gnu-", device[] = "hipv4-amdgcn-amd-amdhsa--gfx942";
  enum { AT = 4096 };
  FILE *file = fopen(path, "rb");
  struct stat about;
  if (!file || fstat(fileno(file), &about)) fail("no kernels");
  unsigned char *all = aligned_alloc(4096, AT + (about.st_size + 4095) / 4096 * 4096), *to = all;
  if (fread(all + AT, 1, about.st_size, file) != (size_t)about.st_size) fail("kernels cannot be read");
  fclose(file);
  memcpy(to, "__CLANG_OFFLOAD_BUNDLE__", 24), to += 24;
  uint64_t words[] = {2, AT, 0, sizeof host - 1};
  memcpy(to, words, sizeof words), to += sizeof words;
  memcpy(to, host, sizeof host - 1), to += sizeof host - 1;
  uint64_t more[] = {AT, about.st_size, sizeof device - 1};
  memcpy(to, more, sizeof more), to += sizeof more;
  memcpy(to, device, sizeof device - 1);
  return all;
}

int main(int argc, char **argv) {
  if (argc != 2) fail("usage: host_functions KERNELS");
  work_t w = new_work();
  say("ready");
  char line[64];
  unsigned number;
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (!strcmp(line, "register")) {
      // Kept by HIP.
      static struct {
        unsigned magic, version;
        void *binary, *nothing;
      } wrapper = {0x48495046, 1, NULL, NULL};
      wrapper.binary = bundle(argv[1]);
      void **modules = __hipRegisterFatBinary(&wrapper);
      __hipRegisterFunction(modules, &vadd, (char *)VADD, VADD, 1024, NULL, NULL, NULL, NULL, NULL);
      __hipRegisterFunction(modules, &scale, (char *)SCALE, SCALE, 256, NULL, NULL, &(dim3){1, 2, 3}, NULL, NULL);
      say("register %lu %lu %lu", (unsigned long)&vadd, (unsigned long)&scale, (unsigned long)modules);
    } else if (sscanf(line, "launch %u", &number) == 1) {
      int n = ELEMENTS;
      float factor = 2;
      void *adds[] = {&w.a, &w.b, &w.c, &n}, *scales[] = {&w.c, &factor, &n};
      for (unsigned i = 0; i < number; i++) {
        HIP(hipLaunchKernel(&vadd, (dim3){5, 1, 1}, (dim3){64, 1, 1}, adds, 0, w.stream));
        HIP(hipLaunchKernel(&scale, (dim3){6, 1, 1}, (dim3){32, 1, 1}, scales, 0, w.stream));
      }
      HIP(hipStreamSynchronize(w.stream));
      say("launch");
    } else {
      fail("what is \"%s\"?", line);
    }
  }
  say("done");
  return 0;
}
