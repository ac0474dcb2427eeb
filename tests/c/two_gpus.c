// two_gpus: work by command on the stand-in runtimes' two GPUs, for the tests of `e2e/stand_in.rs`. Commands:
//   work N       per device N rounds: kernels `step` (grid.x 640 on device 0, 1280 on 1) and `reduce` (320, 480), 64 KiB to the
//                device and back on a stream of its own
//   peers N      N copies of 4096, 8192 and 12288 bytes from device 0 to 1 by hipMemcpyPeer, hipMemcpyPeerAsync and hipMemcpy,
//                and of 1024, 2048 and 3072 bytes by the three functions of HSA
//   start, stop  a thread per device that works until it is told to stop; stop says "device D rounds N" of each
//   refused      calls functions that the stand-in does not have: "refused HIP HSA", their answers
//   tables       see tables.h
//   heap         "heap N": bytes that are allocated in this process, by whomever
//   leave        the first thread ends; another one hears the commands after this one
// With CONTROL set, also what control.h says.
//   quit
// Each but "quit" answers with its name when it is done. What comes back from a device must be what was sent.
#include <malloc.h>

#include "control.h"
#include "hip.h"
#include "kit.h"
#include "tables.h"

// HSA, as far as it is used here.
typedef struct {
  uint64_t handle;
} handle_t;
typedef struct {
  void *base;
  size_t pitch, slice;
} pitched_t;
uint32_t hsa_iterate_agents(uint32_t (*each)(handle_t, void *), void *data);
uint32_t hsa_signal_create(int64_t value, uint32_t count, const handle_t *consumers, handle_t *signal);
uint32_t hsa_signal_destroy(handle_t signal);
int64_t hsa_signal_wait_scacquire(handle_t signal, uint32_t condition, int64_t value, uint64_t timeout, uint32_t state);
uint32_t hsa_amd_memory_async_copy(void *to, handle_t to_agent, const void *from, handle_t from_agent, size_t bytes, uint32_t count,
                                   const handle_t *deps, handle_t done);
uint32_t hsa_amd_memory_async_copy_on_engine(void *to, handle_t to_agent, const void *from, handle_t from_agent, size_t bytes,
                                             uint32_t count, const handle_t *deps, handle_t done, uint32_t engine, _Bool force);
uint32_t hsa_amd_memory_async_copy_rect(const pitched_t *to, const dim3 *to_offset, const pitched_t *from, const dim3 *from_offset,
                                        const dim3 *range, handle_t agent, int direction, uint32_t count, const handle_t *deps,
                                        handle_t done);
uint32_t hsa_amd_queue_intercept_create(handle_t agent, uint32_t size, uint32_t type, void *callback, void *data, uint32_t private,
                                        uint32_t group, void **queue);
hipError_t hipGraphCreate(void **graph, unsigned flags);

#define HIP(call)                                                                                  \
  do {                                                                                             \
    hipError_t error_ = (call);                                                                    \
    if (error_) fail("%s:%d %s: %s", __FILE__, __LINE__, #call, hipGetErrorString(error_));        \
  } while (0)
#define HSA(call)                                                                                  \
  do {                                                                                             \
    if (call) fail("%s:%d %s failed", __FILE__, __LINE__, #call);                                  \
  } while (0)

enum { DEVICES = 2, BYTES = 65536 };
KERNEL(step, "_Z4stepPfi")
KERNEL(reduce, "_ZN4test6reduceIfEEvPKT_PS1_")

typedef struct {
  int number;
  char *memory, *out, *back;
  hipStream_t stream;
  pthread_t thread;
  unsigned long rounds;
} device_t;
static device_t devices[DEVICES];
static handle_t agents[8];
static unsigned agent_count;
static atomic_bool stopping;

static uint32_t on_agent(handle_t agent, void *data) {
  (void)data;
  if (agent_count < 8) agents[agent_count++] = agent;
  return 0;
}

static void one_round(device_t *d) {
  unsigned factor = (unsigned)d->number + 1;
  memset(d->out, (int)(d->rounds & 0xff), BYTES);
  HIP(hipMemcpyAsync(d->memory, d->out, BYTES, hipMemcpyHostToDevice, d->stream));
  HIP(hipLaunchKernel((void *)step, (dim3){10 * factor, 1, 1}, (dim3){64, 1, 1}, NULL, 0, d->stream));
  HIP(hipLaunchKernel((void *)reduce, (dim3){5 + 5 * factor, 1, 1}, (dim3){32, 1, 1}, NULL, 256, d->stream));
  HIP(hipMemcpyAsync(d->back, d->memory, BYTES, hipMemcpyDeviceToHost, d->stream));
  HIP(hipStreamSynchronize(d->stream));
  if (memcmp(d->out, d->back, BYTES)) fail("device %d: round %lu came back changed", d->number, d->rounds);
  d->rounds++;
}

static void *run(void *argument) {
  device_t *d = argument;
  HIP(hipSetDevice(d->number));
  // Not as fast as may be: the log of all of it is read, and several of these run at once.
  while (!stopping) {
    one_round(d);
    usleep(5000);
  }
  return NULL;
}

static void wait_for(handle_t signal) { hsa_signal_wait_scacquire(signal, 2, 1, UINT64_MAX, 0); }

// All ways from device 0 to device 1; what arrives is looked at.
static void peers(unsigned n) {
  char *from = devices[0].memory, *to = devices[1].memory;
  handle_t one = agents[1], two = agents[2], signal;
  HIP(hipMemset(from, 1 + (int)(n & 0x3f), BYTES));
  HIP(hipMemset(to, 0, BYTES));
  HIP(hipMemcpyPeer(to, 1, from, 0, 4096));
  HIP(hipMemcpyPeerAsync(to + 4096, 1, from + 4096, 0, 8192, devices[0].stream));
  HIP(hipStreamSynchronize(devices[0].stream));
  HIP(hipMemcpy(to + 12288, from + 12288, 12288, hipMemcpyDefault));
  HSA(hsa_signal_create(3, 0, NULL, &signal));
  HSA(hsa_amd_memory_async_copy(to + 24576, two, from + 24576, one, 1024, 0, NULL, signal));
  while (hsa_signal_wait_scacquire(signal, 2, 3, UINT64_MAX, 0) > 2) {}
  HSA(hsa_amd_memory_async_copy_on_engine(to + 25600, two, from + 25600, one, 2048, 0, NULL, signal, 2, 0));
  while (hsa_signal_wait_scacquire(signal, 2, 2, UINT64_MAX, 0) > 1) {}
  // 3 rows of 1024 bytes; direction 3 is device to device.
  pitched_t there = {to + 27648, 1024, 3072}, here = {from + 27648, 1024, 3072};
  dim3 origin = {0, 0, 0}, range = {1024, 3, 1};
  HSA(hsa_amd_memory_async_copy_rect(&there, &origin, &here, &origin, &range, one, 3, 0, NULL, signal));
  wait_for(signal);
  HSA(hsa_signal_destroy(signal));
  if (memcmp(to, from, 27648 + 3072)) fail("what arrived at the peer is not what was sent");
  if (to[27648 + 3072] != 0) fail("more arrived than was sent");
}

static void *hear_commands(void *unused);

int main(void) {
  int count;
  HIP(hipGetDeviceCount(&count));
  if (count != DEVICES) fail("%d devices", count);
  for (int n = 0; n < DEVICES; n++) {
    device_t *d = &devices[n];
    d->number = n;
    HIP(hipSetDevice(n));
    HIP(hipMalloc((void **)&d->memory, BYTES));
    HIP(hipHostMalloc((void **)&d->out, BYTES, 0));
    HIP(hipHostMalloc((void **)&d->back, BYTES, 0));
    HIP(hipStreamCreate(&d->stream));
  }
  HIP(hipSetDevice(0));
  HSA(hsa_iterate_agents(on_agent, NULL));
  if (agent_count != 3) fail("%u agents", agent_count);
  start_control();
  say("ready");
  hear_commands(NULL);
  return 0;
}

// To the end of the process, or to "leave".
static void *hear_commands(void *unused) {
  (void)unused;
  char line[128];
  while (fgets(line, sizeof line, stdin)) {
    unsigned n = 0;
    if (sscanf(line, "work %u", &n) == 1) {
      for (int d = 0; d < DEVICES; d++) {
        HIP(hipSetDevice(d));
        for (unsigned k = 0; k < n; k++) one_round(&devices[d]);
      }
      HIP(hipSetDevice(0));
      say("work");
    } else if (sscanf(line, "peers %u", &n) == 1) {
      for (unsigned k = 0; k < n; k++) peers(k);
      say("peers");
    } else if (!strncmp(line, "start", 5)) {
      stopping = 0;
      for (int d = 0; d < DEVICES; d++) pthread_create(&devices[d].thread, NULL, run, &devices[d]);
      say("start");
    } else if (!strncmp(line, "stop", 4)) {
      stopping = 1;
      for (int d = 0; d < DEVICES; d++) {
        pthread_join(devices[d].thread, NULL);
        say("device %d rounds %lu", d, devices[d].rounds);
      }
      say("stop");
    } else if (!strncmp(line, "refused", 7)) {
      void *nothing = NULL;
      unsigned hip = (unsigned)hipGraphCreate(&nothing, 0);
      say("refused %u %u", hip, hsa_amd_queue_intercept_create(agents[1], 64, 0, NULL, NULL, 0, 0, &nothing));
    } else if (!strncmp(line, "tables", 6)) {
      say_tables();
    } else if (!strncmp(line, "heap", 4)) {
      struct mallinfo2 all = mallinfo2();
      say("heap %zu", all.uordblks + all.hblkhd);
    } else if (!strncmp(line, "leave", 5)) {
      pthread_t next;
      if (pthread_create(&next, NULL, hear_commands, NULL)) fail("no other thread");
      pthread_exit(NULL);
    } else {
      break;
    }
  }
  say("done");
  exit(0);
}
