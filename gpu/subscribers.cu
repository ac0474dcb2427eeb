// Whether one process can have two subscribers of CUPTI (cuptiSubscribe_v2, CUPTI 13.1 and newer): `subscribers LIBCUPTI FIRST SECOND`, each of
// them "v1", "alone" (v2 that allows no others) or "shared" (v2 that allows others). Prints the statuses and how many calls each one saw of 100
// launches, as one line of JSON. The types are CUPTI's, written down here so that any version's library can be named.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>
#include <dlfcn.h>

struct Params {
  size_t size;
  const char *name;
  char *other;
  size_t other_size;
  uint8_t shared;
  uint8_t padding[7];
};
typedef void (*Callback)(void *, int, uint32_t, const void *);
static const int RUNTIME_API = 2;

__global__ void nothing() {}

static unsigned long seen[2];
static void first(void *, int, uint32_t, const void *) { __atomic_add_fetch(&seen[0], 1, __ATOMIC_RELAXED); }
static void second(void *, int, uint32_t, const void *) { __atomic_add_fetch(&seen[1], 1, __ATOMIC_RELAXED); }

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  void *cupti = dlopen(argv[1], RTLD_NOW);
  if (!cupti) return fprintf(stderr, "%s\n", dlerror()), 2;
  auto v1 = (int (*)(void **, Callback, void *))dlsym(cupti, "cuptiSubscribe");
  auto v2 = (int (*)(void **, Callback, void *, Params *))dlsym(cupti, "cuptiSubscribe_v2");
  auto enable = (int (*)(uint32_t, void *, int))dlsym(cupti, "cuptiEnableDomain");
  auto version = (int (*)(uint32_t *))dlsym(cupti, "cuptiGetVersion");
  uint32_t number = 0;
  if (version) version(&number);
  if (cudaFree(0) != cudaSuccess) return fprintf(stderr, "no GPU\n"), 2;
  int driver = 0, status[2] = {-1, -1}, enabled[2] = {-1, -1};
  cudaDriverGetVersion(&driver);
  char other[128] = "";
  void *handle[2] = {0, 0};
  for (int n = 0; n < 2; n++) {
    Callback callback = n ? second : first;
    if (!strcmp(argv[2 + n], "v1")) {
      status[n] = v1(&handle[n], callback, 0);
    } else if (v2) {
      Params params = {};
      params.size = sizeof params, params.name = n ? "second" : "first", params.other = other, params.other_size = sizeof other;
      params.shared = !strcmp(argv[2 + n], "shared");
      status[n] = v2(&handle[n], callback, 0, &params);
    }
    if (status[n] == 0) enabled[n] = enable(1, handle[n], RUNTIME_API);
  }
  for (int n = 0; n < 100; n++) nothing<<<1, 1>>>();
  int error = cudaDeviceSynchronize();
  printf("{\"cupti\": %u, \"driver\": %d, \"subscribed\": [%d, %d], \"enabled\": [%d, %d], \"seen\": [%lu, %lu], \"other\": \"%s\", \"error\": %d}\n", number, driver,
         status[0], status[1], enabled[0], enabled[1], seen[0], seen[1], other, error);
  return 0;
}
