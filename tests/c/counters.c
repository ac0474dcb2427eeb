// Counts with AMD's own packet library (libhsa-amd-aqlprofile64), on queues of its own, and prints what that library reads out
// of the memory that the GPU wrote. Nothing of ours is between it and the model: what it prints shows whether the model counts as
// AMD's library expects.
//
//   counters KERNELS GFX XCCS ENGINES UNITS ARRAYS BLOCK:EVENT[:FLAGS] ...
//
// The GPU must be the one that HSA describes.
//
// Then commands, a line each:
//   go QUEUE GRID WORKGROUP  a kernel on a queue (0 or 1), and waits for it
//   start|read|stop QUEUE    that packet, and waits for it
//   over GRID WORKGROUP MS   a kernel on queue 0; so many ms after its launch the start packet on queue 1, and its stop at the end
//   output                   prints `output ADDRESS BYTES`: the memory that is read into
//   use start|read PATH      takes the commands of this file (32-bit words) in the place of the library's
//   dump PATH                writes that memory to a file
//   values                   prints `value EVENT NAME=N... V` for each value, EVENT the position among the arguments
//   quit
#include "hsa_kit.h"
#include <dlfcn.h>

typedef struct { uint64_t handle; } agent_handle;
typedef struct { const char *name; uint32_t xccs, engines, units, arrays, domain, location; } agent_info;
typedef struct { uint32_t instance, event, flags, block; } pmc_event;
typedef struct { agent_handle agent; const pmc_event *events; uint32_t count; } pmc_profile;
typedef struct { const char *name; uint32_t id, instances; } block_info;
typedef struct { uint32_t words[16]; } aql_packet;
typedef struct { aql_packet start, stop, read; } aql_packets;
typedef int (*on_data)(pmc_event, uint64_t, uint64_t, void *);
typedef int (*on_coordinate)(int, int, int, int, const char *, void *);

enum { BLOCK_ID = 5, MOST = 4096 };
static agent_handle described;
static pmc_event events[MOST];
static uint32_t argument_of[MOST], event_count;
static hsa_amd_memory_pool_t pool;
static struct { void *memory; size_t bytes; } output;
static int (*coordinates)(agent_handle, pmc_event, uint64_t, on_coordinate, void *);

static hsa_status_t on_pool(hsa_amd_memory_pool_t it, void *data) {
  (void)data;
  hsa_amd_segment_t segment;
  uint32_t flags = 0;
  HSA(hsa_amd_memory_pool_get_info(it, HSA_AMD_MEMORY_POOL_INFO_SEGMENT, &segment));
  HSA(hsa_amd_memory_pool_get_info(it, HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS, &flags));
  if (segment == HSA_AMD_SEGMENT_GLOBAL && (flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED)) pool = it;
  return HSA_STATUS_SUCCESS;
}

static int on_alloc(void **memory, size_t bytes, uint32_t flags, void *data) {
  (void)flags, (void)data;
  *memory = NULL;
  if (!bytes) return 0;
  HSA(hsa_amd_memory_pool_allocate(pool, bytes, 0, memory));
  HSA(hsa_amd_agents_allow_access(1, &gpu, NULL, *memory));
  memset(*memory, 0, bytes);
  // The library takes the output first, then memory for commands.
  if (!output.memory) output.memory = *memory, output.bytes = bytes;
  return 0;
}

static void on_free(void *memory, void *data) { (void)data, hsa_amd_memory_pool_free(memory); }

static int on_copy(void *to, const void *from, size_t bytes, void *data) {
  (void)data;
  memcpy(to, from, bytes);
  return 0;
}

static int print_coordinate(int position, int dimension, int extent, int at, const char *name, void *data) {
  (void)position, (void)dimension, (void)data;
  printf(" %s=%d", name, at);
  if (at >= extent) fail("%s is %d of %d", name, at, extent);
  return 0;
}

static int print_value(pmc_event event, uint64_t sample, uint64_t value, void *data) {
  (void)data;
  for (uint32_t n = 0; n < event_count; n++) {
    if (events[n].block != event.block || events[n].event != event.event || events[n].instance != event.instance) continue;
    printf("value %u", argument_of[n]);
    coordinates(described, event, sample, print_coordinate, NULL);
    printf(" %llu\n", (unsigned long long)value);
    return 0;
  }
  fail("a value of an event that was not asked for");
  return 1;
}

// What HSA says of the GPU must be what the arguments say.
static void compare(hsa_amd_agent_info_t what, const char *name, uint32_t expected) {
  uint32_t there = 0;
  HSA(hsa_agent_get_info(gpu, (hsa_agent_info_t)what, &there));
  if (there != expected) fail("the GPU has %u %s, not %u", there, name, expected);
}

static void *symbol(void *library, const char *name) {
  void *found = dlsym(library, name);
  if (!found) fail("no %s", name);
  return found;
}

// Takes a place by a compare-and-exchange of the write index, so that no profiler puts packets around this one.
static uint64_t take_alone(hsa_queue_t *queue) {
  for (;;) {
    uint64_t index = hsa_queue_load_write_index_relaxed(queue);
    if (hsa_queue_cas_write_index_scacq_screl(queue, index, index + 1) == index) return index;
  }
}

static void send(hsa_queue_t *queue, const aql_packet *packet) {
  aql_packet copy = *packet;
  hsa_signal_t signal = new_signal(1);
  // Vendor packet, with the barrier bit.
  copy.words[0] = (copy.words[0] & 0xffff0000u) | HSA_PACKET_TYPE_VENDOR_SPECIFIC | 1u << HSA_PACKET_HEADER_BARRIER;
  memcpy(copy.words + 14, &signal, sizeof signal);
  publish(queue, take_alone(queue), &copy);
  wait_for_zero(signal);
  HSA(hsa_signal_destroy(signal));
}

// Has a packet name the commands of a file.
static void use(aql_packet *packet, const char *path) {
  struct stat info;
  void *memory;
  FILE *file = fopen(path, "rb");
  if (!file || fstat(fileno(file), &info)) fail("cannot open %s", path);
  on_alloc(&memory, info.st_size, 0, NULL);
  if (fread(memory, 1, info.st_size, file) != (size_t)info.st_size) fail("cannot read %s", path);
  fclose(file);
  packet->words[2] = (uint32_t)(uintptr_t)memory;
  packet->words[3] = (packet->words[3] & 0xffff0000u) | (uint32_t)((uintptr_t)memory >> 32);
  packet->words[4] = (packet->words[4] & ~0xfffffu) | (uint32_t)(info.st_size / 4);
}

static void dump(const char *path) {
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(output.memory, 1, output.bytes, file) != output.bytes || fclose(file)) fail("cannot write %s", path);
}

static hsa_signal_t launch(hsa_queue_t *queue, uint32_t grid, uint32_t workgroup) {
  hsa_signal_t signal = new_signal(1);
  hsa_kernel_dispatch_packet_t packet = {
      .header = header(HSA_PACKET_TYPE_KERNEL_DISPATCH),
      .setup = 1 << HSA_KERNEL_DISPATCH_PACKET_SETUP_DIMENSIONS,
      .workgroup_size_x = (uint16_t)workgroup, .workgroup_size_y = 1, .workgroup_size_z = 1,
      .grid_size_x = grid, .grid_size_y = 1, .grid_size_z = 1,
      .private_segment_size = private_size, .group_segment_size = group_size,
      .kernel_object = kernel_object, .kernarg_address = kernarg, .completion_signal = signal,
  };
  publish(queue, take(queue), &packet);
  return signal;
}

static void run(hsa_queue_t *queue, uint32_t grid, uint32_t workgroup) {
  hsa_signal_t signal = launch(queue, grid, workgroup);
  wait_for_zero(signal);
  HSA(hsa_signal_destroy(signal));
}

int main(int argc, char **argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (argc < 8) fail("usage: counters KERNELS GFX XCCS ENGINES UNITS ARRAYS BLOCK:EVENT[:FLAGS] ...");
  HSA(hsa_init());
  find_agents();
  load(argv[1]);
  HSA(hsa_amd_agent_iterate_memory_pools(cpu, on_pool, NULL));
  void *library = dlopen("libhsa-amd-aqlprofile64.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) fail("%s", dlerror());
  int (*describe)(agent_handle *, const agent_info *, int) = symbol(library, "aqlprofile_register_agent_info");
  int (*get_info)(const pmc_profile *, int, void *) = symbol(library, "aqlprofile_get_pmc_info");
  int (*create)(uint64_t *, aql_packets *, pmc_profile, void *, void *, void *, void *) =
      symbol(library, "aqlprofile_pmc_create_packets");
  int (*iterate)(uint64_t, on_data, void *) = symbol(library, "aqlprofile_pmc_iterate_data");
  coordinates = symbol(library, "aqlprofile_iterate_event_coord");

  compare(HSA_AMD_AGENT_INFO_NUM_XCC, "XCCs", atoi(argv[3]));
  compare(HSA_AMD_AGENT_INFO_NUM_SHADER_ENGINES, "shader engines", atoi(argv[4]));
  compare(HSA_AMD_AGENT_INFO_COMPUTE_UNIT_COUNT, "compute units", atoi(argv[5]));
  compare(HSA_AMD_AGENT_INFO_NUM_SHADER_ARRAYS_PER_SE, "arrays per engine", atoi(argv[6]));
  agent_info info = {argv[2], atoi(argv[3]), atoi(argv[4]), atoi(argv[5]), atoi(argv[6]), 0, 0};
  if (describe(&described, &info, 2)) fail("the library does not know %s", argv[2]);
  for (int n = 7; n < argc; n++) {
    char block[32];
    unsigned event = 0, flags = 0;
    if (sscanf(argv[n], "%31[^:]:%u:%u", block, &event, &flags) < 2) fail("%s is not BLOCK:EVENT", argv[n]);
    block_info found = {block, 0, 0};
    pmc_profile profile = {described, NULL, 0};
    if (get_info(&profile, BLOCK_ID, &found)) fail("no block %s", block);
    for (uint32_t instance = 0; instance < found.instances && event_count < MOST; instance++) {
      argument_of[event_count] = n - 7;
      events[event_count++] = (pmc_event){instance, event, flags, found.id};
    }
  }
  uint64_t handle = 0;
  static aql_packets packets;
  pmc_profile profile = {described, events, event_count};
  int status = create(&handle, &packets, profile, on_alloc, on_free, on_copy, NULL);
  if (status) fail("no packets: %#x", status);
  hsa_queue_t *queues[2] = {new_queue(), new_queue()};
  puts("ready");

  char line[512], path[400];
  while (fgets(line, sizeof line, stdin)) {
    unsigned queue = 0, grid = 0, workgroup = 0, ms = 0;
    if (sscanf(line, "go %u %u %u", &queue, &grid, &workgroup) == 3) run(queues[queue & 1], grid, workgroup);
    else if (sscanf(line, "over %u %u %u", &grid, &workgroup, &ms) == 3) {
      hsa_signal_t signal = launch(queues[0], grid, workgroup);
      usleep(ms * 1000);
      send(queues[1], &packets.start);
      wait_for_zero(signal);
      HSA(hsa_signal_destroy(signal));
      send(queues[1], &packets.stop);
    } else if (sscanf(line, "start %u", &queue) == 1) send(queues[queue & 1], &packets.start);
    else if (sscanf(line, "read %u", &queue) == 1) send(queues[queue & 1], &packets.read);
    else if (sscanf(line, "stop %u", &queue) == 1) send(queues[queue & 1], &packets.stop);
    else if (!strncmp(line, "output", 6)) printf("output %#lx %zu\n", (uintptr_t)output.memory, output.bytes);
    else if (sscanf(line, "use start %399s", path) == 1) use(&packets.start, path);
    else if (sscanf(line, "use read %399s", path) == 1) use(&packets.read, path);
    else if (sscanf(line, "dump %399s", path) == 1) dump(path);
    else if (!strncmp(line, "values", 6)) {
      if (iterate(handle, print_value, NULL)) fail("the library cannot read the values");
    } else if (!strncmp(line, "quit", 4)) break;
    else fail("what is %s", line);
    printf("did %s", line);
  }
  HSA(hsa_queue_destroy(queues[0]));
  HSA(hsa_queue_destroy(queues[1]));
  HSA(hsa_shut_down());
  puts("done");
  return 0;
}
