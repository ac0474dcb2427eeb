// memory KERNELS: no HIP. Allocates and releases memory in all of HSA's ways, and dispatches what
// needs scratch memory, telling each itself.
//   "go N"            N rounds of: a region's memory, the GPU's and the CPU's pools, virtual memory; each released again. One line
//                     "did OPERATION ADDRESS BYTES NODE" per call that succeeded, in order (OPERATION as AMD numbers them: 1 allocate,
//                     2 virtual, 3 free, 4 virtual free; NODE is the driver's, -1 for a release). Between them calls that must fail.
//   "thread N"        the same on a thread of its own.
//   "scratch BYTES GRID"  a dispatch that needs BYTES of scratch memory per work-item, waited for.
//   "queue"           a new queue for the dispatches; the old one is destroyed.
// AMD's runtime refuses virtual memory on a modelled GPU
// (HSA_AMD_SYSTEM_INFO_VIRTUAL_MEM_API_SUPPORTED is false), so the program puts functions of its
// own into the runtime's table for it, as a layer between would: they give out numbers.
//   "tables"          where all tables of the runtime are: "table hsa ADDRESS BYTES", then "tables".
// Each answers with its first word. "quit" says "done".
#include "hsa_kit.h"
#include "tables.h"

static hsa_amd_memory_pool_t gpu_pool, cpu_pool;
static hsa_queue_t *queue;
static uint32_t gpu_node, cpu_node;

static hsa_status_t on_pool(hsa_amd_memory_pool_t pool, void *data) {
  hsa_amd_segment_t segment;
  bool allowed;
  HSA(hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_SEGMENT, &segment));
  HSA(hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALLOWED, &allowed));
  hsa_amd_memory_pool_t *found = data;
  if (segment == HSA_AMD_SEGMENT_GLOBAL && allowed && !found->handle) *found = pool;
  return HSA_STATUS_SUCCESS;
}

static hsa_status_t vmem_create(hsa_amd_memory_pool_t pool, size_t size, hsa_amd_memory_type_t type, uint64_t flags,
                                hsa_amd_vmem_alloc_handle_t *handle) {
  static atomic_ulong next = 0x70000000;
  (void)type, (void)flags;
  if (!pool.handle || !size) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  handle->handle = atomic_fetch_add(&next, 16);
  return HSA_STATUS_SUCCESS;
}

static hsa_status_t vmem_release(hsa_amd_vmem_alloc_handle_t handle) {
  return handle.handle ? HSA_STATUS_SUCCESS : HSA_STATUS_ERROR_INVALID_ALLOCATION;
}

static void set_slot(const char *name, void *function) {
  slot_t slot = hsa_slot(name);
  slot.table[slot.offset / 8] = function;
}

static void must_fail(const char *what, hsa_status_t status) {
  if (status == HSA_STATUS_SUCCESS) fail("%s succeeded", what);
}

static void did(int operation, uint64_t address, size_t bytes, int node) {
  say("did %d 0x%lx %zu %d", operation, (unsigned long)address, bytes, node);
}

static void *rounds(void *argument) {
  unsigned count = (unsigned)(uintptr_t)argument;
  for (unsigned n = 0; n < count; n++) {
    void *a, *b, *c;
    size_t bytes = 4096 * (n % 7 + 1);
    HSA(hsa_memory_allocate(kernarg_region, bytes, &a));
    did(1, (uint64_t)a, bytes, cpu_node);
    HSA(hsa_amd_memory_pool_allocate(gpu_pool, 3 * bytes, 0, &b));
    did(1, (uint64_t)b, 3 * bytes, gpu_node);
    must_fail("an allocation of nothing", hsa_amd_memory_pool_allocate(gpu_pool, 0, 0, &c));
    must_fail("an allocation of too much", hsa_amd_memory_pool_allocate(gpu_pool, (size_t)1 << 60, 0, &c));
    HSA(hsa_amd_memory_pool_allocate(cpu_pool, 100, 0, &c));
    did(1, (uint64_t)c, 100, cpu_node);
    hsa_amd_vmem_alloc_handle_t handle;
    HSA(hsa_amd_vmem_handle_create(gpu_pool, 2 << 20, MEMORY_TYPE_NONE, 0, &handle));
    did(2, handle.handle, 2 << 20, gpu_node);
    must_fail("virtual memory of no size", hsa_amd_vmem_handle_create(gpu_pool, 0, MEMORY_TYPE_NONE, 0, &handle));
    HSA(hsa_amd_vmem_handle_release(handle));
    did(4, handle.handle, 0, -1);
    HSA(hsa_amd_memory_pool_free(b));
    did(3, (uint64_t)b, 0, -1);
    HSA(hsa_memory_free(a));
    did(3, (uint64_t)a, 0, -1);
    HSA(hsa_amd_memory_pool_free(c));
    did(3, (uint64_t)c, 0, -1);
    must_fail("a release of what is none", hsa_amd_memory_pool_free(&n));
  }
  return NULL;
}

int main(int argc, char **argv) {
  if (argc != 2) fail("usage: memory KERNELS");
  HSA(hsa_init());
  find_agents();
  load(argv[1]);
  HSA(hsa_agent_get_info(gpu, (hsa_agent_info_t)HSA_AMD_AGENT_INFO_DRIVER_NODE_ID, &gpu_node));
  HSA(hsa_agent_get_info(cpu, (hsa_agent_info_t)HSA_AMD_AGENT_INFO_DRIVER_NODE_ID, &cpu_node));
  HSA(hsa_amd_agent_iterate_memory_pools(gpu, on_pool, &gpu_pool));
  HSA(hsa_amd_agent_iterate_memory_pools(cpu, on_pool, &cpu_pool));
  if (!gpu_pool.handle || !cpu_pool.handle) fail("no pool");
  set_slot("hsa_amd_vmem_handle_create", (void *)vmem_create);
  set_slot("hsa_amd_vmem_handle_release", (void *)vmem_release);
  queue = new_queue();
  hsa_signal_t signal = new_signal(0);
  say("ready");
  char line[64];
  unsigned long number, grid;
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (sscanf(line, "go %lu", &number) == 1) {
      rounds((void *)number);
      say("go");
    } else if (sscanf(line, "thread %lu", &number) == 1) {
      pthread_join(start_thread(rounds, (void *)number), NULL);
      say("thread");
    } else if (sscanf(line, "scratch %lu %lu", &number, &grid) == 2) {
      private_size = (uint32_t)number;
      hsa_signal_store_screlease(signal, 1);
      dispatch(queue, (uint32_t)grid, signal);
      wait_for_zero(signal);
      say("scratch");
    } else if (!strcmp(line, "queue")) {
      hsa_queue_t *old = queue;
      queue = new_queue();
      HSA(hsa_queue_destroy(old));
      say("queue");
    } else if (!strcmp(line, "tables")) {
      // The root of all tables lies right before the core table; it names itself by its size.
      unsigned *root = (unsigned *)((char *)hsa_slot("hsa_system_get_info").table - 64);
      if (root[0] != 3 || root[1] != 64) fail("the root table is not where it was");
      say("table hsa %p %d", (void *)root, 64 + 1016 + 624 + 64 + 128 + 64 + 72);
      say("tables");
    } else {
      fail("unknown command \"%s\"", line);
    }
  }
  HSA(hsa_signal_destroy(signal));
  HSA(hsa_queue_destroy(queue));
  HSA(hsa_shut_down());
  say("done");
  return 0;
}
