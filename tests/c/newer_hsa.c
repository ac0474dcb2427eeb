// newer_hsa: queues of the stand-in runtime as programs on ROCm 10 make and use them, by hsa_amd_queue_create
// where the runtime's table has it (SIM_HSA_TABLES), else by hsa_queue_create. At the start one queue for kernels and
// one for the program's own copies. Commands:
//   make     one more of each
//   go N     N rounds; per round and queue: on a queue for kernels four dispatches, two as AQL's own packet (grid.x 1024) and
//            two as AMD's vendor packet of format 3 (grid.x 2*3*64), each without and with a signal of its own; the vendor
//            packet with a signal also names a signal that it waits for, which is set after the doorbell was rung. On a
//            queue for copies a fence that writes the round's number.
//   odd N    N vendor packets of format 77 on the first queue
//   ext      "ext SIZE TAIL": the size that the table of AMD's extensions says, and a sum of the words from 760 bytes on and
//            of those past its size
//   quit
// Each answers with its name. What is in a ring of copies must be what was put there.
#include "hip.h"
#include "kit.h"
#include "tables.h"

typedef struct {
  uint64_t handle;
} handle_t;
typedef struct {
  uint32_t type, features;
  void *base;
  handle_t doorbell;
  uint32_t size;
} queue_t;
typedef struct {
  uint16_t version, flags;
  uint8_t engine, reserved_header[3];
  uint32_t bytes, priority;
  void *callback, *data;
  queue_t *queue;
  uint32_t of_engine[8];
  uint32_t traffic_class;
  uint8_t reserved[20];
} descriptor_t;
_Static_assert(sizeof(descriptor_t) == 96, "hsa_amd_queue_create_desc_t");
typedef struct {
  uint16_t header;
  uint8_t format, setup;
  uint16_t workgroup[3], reserved;
  uint32_t clusters_x;
  uint16_t clusters_yz[2];
  uint8_t cluster[3], hint;
  uint32_t private_size, group_size;
  uint64_t kernel;
  void *arguments;
  handle_t dep, done;
} ext_t;
_Static_assert(sizeof(ext_t) == 64, "hsa_amd_ext_kernel_dispatch_packet_t");
typedef struct {
  uint16_t header, setup, workgroup[3], reserved;
  uint32_t grid[3], private_size, group_size;
  uint64_t kernel;
  void *arguments;
  uint64_t reserved2;
  handle_t done;
} aql_t;
_Static_assert(sizeof(aql_t) == 64, "hsa_kernel_dispatch_packet_t");

uint32_t hsa_iterate_agents(uint32_t (*each)(handle_t, void *), void *data);
uint32_t hsa_queue_create(handle_t agent, uint32_t size, uint32_t type, void *callback, void *data, uint32_t private, uint32_t group,
                          queue_t **queue);
uint32_t hsa_queue_destroy(queue_t *queue);
uint32_t hsa_amd_queue_create(handle_t agent, descriptor_t *descriptors, uint32_t count);
uint64_t hsa_queue_add_write_index_screlease(queue_t *queue, uint64_t count);
uint64_t hsa_queue_load_read_index_scacquire(queue_t *queue);
void hsa_signal_store_screlease(handle_t signal, int64_t value);
uint32_t hsa_signal_create(int64_t value, uint32_t count, const handle_t *consumers, handle_t *signal);
uint32_t hsa_signal_destroy(handle_t signal);
int64_t hsa_signal_wait_scacquire(handle_t signal, uint32_t condition, int64_t value, uint64_t timeout, uint32_t state);
uint32_t hsa_system_get_major_extension_table(uint16_t extension, uint16_t version, size_t bytes, void *table);
uint32_t hsa_executable_get_symbol_by_name(handle_t executable, const char *name, const handle_t *agent, handle_t *symbol);
uint32_t hsa_executable_symbol_get_info(handle_t symbol, uint32_t attribute, void *value);

#define HSA(call)                                                      \
  do {                                                                 \
    uint32_t status_ = (call);                                         \
    if (status_) fail("%s:%d %s: %#x", __FILE__, __LINE__, #call, status_); \
  } while (0)
#define HIP(call)                                          \
  do {                                                     \
    if (call) fail("%s:%d %s", __FILE__, __LINE__, #call); \
  } while (0)
KERNEL(step, "_Z4stepPfi")

enum { PACKETS = 64, FENCES = 4096, MOST = 8 };
static handle_t agents[8];
static unsigned agent_count;
static uint64_t kernel;
static queue_t *kernels[MOST], *copies[MOST];
static uint32_t expected[MOST][FENCES / 4];
static unsigned queues;
static uint64_t fenced[MOST];

static uint32_t on_agent(handle_t agent, void *data) {
  (void)data;
  if (agent_count < 8) agents[agent_count++] = agent;
  return 0;
}

static uint32_t on_executable(handle_t executable, void *data) {
  (void)data;
  handle_t symbol;
  if (hsa_executable_get_symbol_by_name(executable, "_Z4stepPfi.kd", &agents[1], &symbol)) return 0;
  HSA(hsa_executable_symbol_get_info(symbol, 22, &kernel));
  return 0;
}

// HIP has loaded the kernel at its first launch; AMD's loader extension (0x201) lists what is loaded.
static void find_kernel(void) {
  HIP(hipLaunchKernel((void *)step, (dim3){1, 1, 1}, (dim3){64, 1, 1}, NULL, 0, NULL));
  HIP(hipDeviceSynchronize());
  struct {
    void *before[6];
    uint32_t (*each)(uint32_t (*)(handle_t, void *), void *);
  } loader;
  HSA(hsa_system_get_major_extension_table(0x201, 1, sizeof loader, &loader));
  HSA(loader.each(on_executable, NULL));
  if (!kernel) fail("the kernel is not loaded");
}

static uint32_t ext_size(void) { return ((uint32_t *)hsa_slot("hsa_amd_profiling_set_profiler_enabled").table)[1]; }

static void make(void) {
  if (queues == MOST) fail("too many queues");
  if (ext_size() >= 712) {
    // Two in one call, and a third that there is no engine for: its error is the answer, the others are made.
    descriptor_t wanted[3] = {{.version = 1, .bytes = PACKETS * 64, .priority = 1, .of_engine = {0, 0, 0, UINT32_MAX}},
                              {.version = 1, .engine = 1, .bytes = FENCES, .priority = 1, .of_engine = {UINT32_MAX}},
                              {.version = 1, .engine = 2, .bytes = 4096, .priority = 1}};
    if (hsa_amd_queue_create(agents[1], wanted, 3) != 0x1002) fail("the third was made");
    kernels[queues] = wanted[0].queue, copies[queues] = wanted[1].queue;
    if (!kernels[queues] || !copies[queues] || wanted[2].queue) fail("not the queues that were asked for");
  } else {
    HSA(hsa_queue_create(agents[1], PACKETS, 0, NULL, NULL, UINT32_MAX, UINT32_MAX, &kernels[queues]));
  }
  queues++;
}

static void publish(queue_t *queue, const void *packet, int ring) {
  uint64_t index = hsa_queue_add_write_index_screlease(queue, 1);
  while (index - hsa_queue_load_read_index_scacquire(queue) >= queue->size) usleep(20);
  char *slot = (char *)queue->base + 64 * (index % queue->size);
  memcpy(slot + 4, (const char *)packet + 4, 60);
  uint32_t first;
  memcpy(&first, packet, 4);
  __atomic_store_n((uint32_t *)slot, first, __ATOMIC_RELEASE);
  if (ring) hsa_signal_store_screlease(queue->doorbell, (int64_t)index);
}

static void wait_for(handle_t signal) {
  while (hsa_signal_wait_scacquire(signal, 2, 1, UINT64_MAX, 0) > 0) {}
}

static void four_dispatches(queue_t *queue) {
  handle_t done[2], gate;
  for (int n = 0; n < 2; n++) HSA(hsa_signal_create(1, 0, NULL, &done[n]));
  HSA(hsa_signal_create(1, 0, NULL, &gate));
  aql_t aql = {.header = 0x1502, .setup = 1, .workgroup = {64, 1, 1}, .grid = {1024, 1, 1}, .kernel = kernel};
  ext_t ext = {.header = 0x1500, .format = 3, .setup = 1, .workgroup = {64, 1, 1}, .clusters_x = 3, .clusters_yz = {1, 1},
               .cluster = {2, 1, 1}, .kernel = kernel};
  publish(queue, &aql, 1);
  publish(queue, &ext, 1);
  aql.done = done[0];
  publish(queue, &aql, 1);
  ext.done = done[1], ext.dep = gate;
  publish(queue, &ext, 1);
  wait_for(done[0]);
  hsa_signal_store_screlease(gate, 0);
  wait_for(done[1]);
  // Their times are read before they go.
  for (int n = 0; n < 2; n++) HSA(hsa_signal_destroy(done[n]));
  HSA(hsa_signal_destroy(gate));
}

static void one_fence(unsigned number, uint32_t value) {
  static volatile uint32_t written;
  queue_t *queue = copies[number];
  uint64_t at = fenced[number];
  while (at + 16 - hsa_queue_load_read_index_scacquire(queue) > queue->size) usleep(20);
  uint64_t to = (uint64_t)&written;
  uint32_t packet[4] = {5, (uint32_t)to, (uint32_t)(to >> 32), value};
  memcpy((char *)queue->base + at % queue->size, packet, 16);
  memcpy((char *)expected[number] + at % FENCES, packet, 16);
  fenced[number] = at + 16;
  // A packet of copies has no bit that says that it is valid, so an engine that looks before the doorbell takes what is below the index.
  if (hsa_queue_add_write_index_screlease(queue, 16) != at) fail("the index of bytes is not %lu", (unsigned long)at);
  hsa_signal_store_screlease(queue->doorbell, (int64_t)(at + 16));
  for (int n = 0; written != value; n++) {
    if (n > 500000) fail("a fence was not passed");
    usleep(20);
  }
  if (memcmp(queue->base, expected[number], FENCES)) fail("somebody wrote into a ring of copies");
}

static void say_ext(void) {
  uint32_t size = ext_size();
  uint64_t *table = (uint64_t *)hsa_slot("hsa_amd_profiling_set_profiler_enabled").table, sum = 0;
  for (uint32_t at = size < 760 ? size : 760; at < 776; at += 8) sum = sum * 31 + table[at / 8];
  say("ext %u %lx", size, (unsigned long)sum);
}

int main(void) {
  static uint32_t value;
  int count;
  HIP(hipGetDeviceCount(&count));
  HSA(hsa_iterate_agents(on_agent, NULL));
  find_kernel();
  make();
  say("ready");
  char line[64];
  unsigned rounds;
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (sscanf(line, "go %u", &rounds) == 1) {
      for (unsigned n = 0; n < rounds; n++)
        for (unsigned queue = 0; queue < queues; queue++) {
          four_dispatches(kernels[queue]);
          if (copies[queue]) one_fence(queue, ++value);
        }
    } else if (sscanf(line, "odd %u", &rounds) == 1) {
      handle_t done;
      HSA(hsa_signal_create(rounds, 0, NULL, &done));
      ext_t odd = {.header = 0x1500, .format = 77, .done = done};
      for (unsigned n = 0; n < rounds; n++) publish(kernels[0], &odd, 1);
      wait_for(done);
      HSA(hsa_signal_destroy(done));
    } else if (!strcmp(line, "make")) {
      make();
    } else if (!strcmp(line, "ext")) {
      say_ext();
      continue;
    } else {
      fail("unknown command \"%s\"", line);
    }
    say("%.*s", (int)strcspn(line, " "), line);
  }
  for (unsigned queue = 0; queue < queues; queue++) {
    HSA(hsa_queue_destroy(kernels[queue]));
    if (copies[queue]) HSA(hsa_queue_destroy(copies[queue]));
  }
  say("done");
  return 0;
}
