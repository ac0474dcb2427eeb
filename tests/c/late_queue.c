// late_queue KERNELS: no HIP. One queue and one kind of copy, used before anybody attaches, and in
// ways that hardware makes hard:
//   own N     N dispatches (grid.x 6100), each with a completion signal, waited for and used again
//   bell N    N dispatches (grid.x 6000) without a signal, then one with, which is waited for
//   direct N  the same (grid.x 6200), but the doorbell is rung by a store to its hardware address
//   copy N    N copies within the GPU's memory, one after another: the runtime does them by a kernel
//             on a queue of its own
//   tight N   as bell, and says "took NS": processor time of this thread in ns, without the wait
// Each command is answered by its name; "quit" says "done".
#include "hsa_kit.h"
#include <time.h>

static hsa_queue_t *queue;
static hsa_amd_memory_pool_t pool;
static hsa_signal_t mine;

static hsa_status_t on_pool(hsa_amd_memory_pool_t candidate, void *data) {
  (void)data;
  hsa_amd_segment_t segment;
  bool may_allocate;
  HSA(hsa_amd_memory_pool_get_info(candidate, HSA_AMD_MEMORY_POOL_INFO_SEGMENT, &segment));
  HSA(hsa_amd_memory_pool_get_info(candidate, HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALLOWED, &may_allocate));
  if (segment == HSA_AMD_SEGMENT_GLOBAL && may_allocate && !pool.handle) pool = candidate;
  return HSA_STATUS_SUCCESS;
}

// As HIP does it: each packet waits for those before it.
static void launch(uint32_t grid, hsa_signal_t signal, bool direct) {
  hsa_kernel_dispatch_packet_t packet = {
      .header = header(HSA_PACKET_TYPE_KERNEL_DISPATCH) | 1 << HSA_PACKET_HEADER_BARRIER,
      .setup = 1 << HSA_KERNEL_DISPATCH_PACKET_SETUP_DIMENSIONS,
      .workgroup_size_x = 64, .workgroup_size_y = 1, .workgroup_size_z = 1,
      .grid_size_x = grid, .grid_size_y = 1, .grid_size_z = 1,
      .private_segment_size = private_size, .group_segment_size = group_size,
      .kernel_object = kernel_object, .kernarg_address = kernarg, .completion_signal = signal,
  };
  uint64_t index = take(queue);
  if (!direct) {
    publish(queue, index, &packet);
    return;
  }
  char *slot = (char *)queue->base_address + 64 * (index % queue->size);
  memcpy(slot + 4, (const char *)&packet + 4, 60);
  uint32_t first;
  memcpy(&first, &packet, 4);
  __atomic_store_n((uint32_t *)slot, first, __ATOMIC_RELEASE);
  // amd_signal_t of a doorbell: its kind, then the address of the doorbell.
  uint64_t *doorbell = ((uint64_t **)queue->doorbell_signal.handle)[1];
  __atomic_store_n(doorbell, index, __ATOMIC_RELEASE);
}

static void own(unsigned count) {
  for (unsigned n = 0; n < count; n++) {
    hsa_signal_store_screlease(mine, 1);
    launch(6100, mine, false);
    wait_for_zero(mine);
  }
}

static void many(unsigned count, uint32_t grid, bool direct) {
  hsa_signal_t none = {0};
  for (unsigned n = 0; n < count; n++) launch(grid, none, direct);
  hsa_signal_store_screlease(mine, 1);
  launch(grid, mine, direct);
}

static void tight(unsigned count) {
  struct timespec begin, end;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
  many(count, 6000, false);
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
  say("took %ld", (end.tv_sec - begin.tv_sec) * 1000000000L + end.tv_nsec - begin.tv_nsec);
}

static void copy(unsigned count) {
  enum { BYTES = 1 << 20 };
  static void *from, *to;
  if (!from) {
    HSA(hsa_amd_agent_iterate_memory_pools(gpu, on_pool, NULL));
    HSA(hsa_amd_memory_pool_allocate(pool, BYTES, 0, &from));
    HSA(hsa_amd_memory_pool_allocate(pool, BYTES, 0, &to));
  }
  hsa_signal_t done = new_signal(0);
  for (unsigned n = 0; n < count; n++) {
    hsa_signal_store_screlease(done, 1);
    HSA(hsa_amd_memory_async_copy(to, gpu, from, gpu, BYTES, 0, NULL, done));
    wait_for_zero(done);
  }
  HSA(hsa_signal_destroy(done));
}

int main(int argc, char **argv) {
  if (argc < 2) fail("usage: late_queue KERNELS");
  HSA(hsa_init());
  find_agents();
  load(argv[1]);
  queue = new_queue();
  mine = new_signal(0);
  say("ready");
  char line[64], name[16];
  unsigned count;
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (sscanf(line, "%15s %u", name, &count) != 2) fail("unknown command \"%s\"", line);
    if (!strcmp(name, "own")) own(count);
    else if (!strcmp(name, "bell")) many(count, 6000, false);
    else if (!strcmp(name, "direct")) many(count, 6200, true);
    else if (!strcmp(name, "copy")) copy(count);
    else if (!strcmp(name, "tight")) tight(count);
    else fail("unknown command \"%s\"", line);
    wait_for_zero(mine);
    say("%s", name);
  }
  HSA(hsa_signal_destroy(mine));
  HSA(hsa_queue_destroy(queue));
  HSA(hsa_shut_down());
  say("done");
  return 0;
}
