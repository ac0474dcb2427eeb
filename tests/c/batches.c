// batches KERNELS: no HIP. One queue, on which packets are reserved several at once.
//   batch N US   N times: three kernels of grid.x 6400, which are written US microseconds after they
//                were reserved, and rung for together
//   each N       N times: two packets; the second is written when the first has run
// Each command is answered by its name; "quit" says "launched N" and "done".
#include "hsa_kit.h"

static hsa_queue_t *queue;
static hsa_signal_t last;
static unsigned long launched;

static void fill(uint64_t index, hsa_signal_t signal) {
  hsa_kernel_dispatch_packet_t packet = {
      .header = header(HSA_PACKET_TYPE_KERNEL_DISPATCH) | 1 << HSA_PACKET_HEADER_BARRIER,
      .setup = 1 << HSA_KERNEL_DISPATCH_PACKET_SETUP_DIMENSIONS,
      .workgroup_size_x = 64, .workgroup_size_y = 1, .workgroup_size_z = 1,
      .grid_size_x = 6400, .grid_size_y = 1, .grid_size_z = 1,
      .private_segment_size = private_size, .group_segment_size = group_size,
      .kernel_object = kernel_object, .kernarg_address = kernarg, .completion_signal = signal,
  };
  char *slot = (char *)queue->base_address + 64 * (index % queue->size);
  memcpy(slot + 4, (const char *)&packet + 4, 60);
  uint32_t first;
  memcpy(&first, &packet, 4);
  __atomic_store_n((uint32_t *)slot, first, __ATOMIC_RELEASE);
  launched++;
}

static uint64_t take_many(unsigned count) {
  uint64_t index = hsa_queue_add_write_index_scacq_screl(queue, count);
  while (index + count - hsa_queue_load_read_index_scacquire(queue) >= queue->size) sched_yield();
  return index;
}

static void ring_for(uint64_t index) { hsa_signal_store_screlease(queue->doorbell_signal, (hsa_signal_value_t)index); }

static void batch(unsigned count, unsigned us) {
  hsa_signal_t none = {0};
  for (unsigned n = 0; n < count; n++) {
    uint64_t index = take_many(3);
    if (us) usleep(us);
    hsa_signal_store_screlease(last, 1);
    for (int k = 0; k < 3; k++) fill(index + k, k == 2 ? last : none);
    ring_for(index + 2);
    wait_for_zero(last);
  }
}

static void each(unsigned count) {
  for (unsigned n = 0; n < count; n++) {
    uint64_t index = take_many(2);
    for (int k = 0; k < 2; k++) {
      hsa_signal_store_screlease(last, 1);
      fill(index + k, last);
      ring_for(index + k);
      wait_for_zero(last);
    }
  }
}

int main(int argc, char **argv) {
  if (argc < 2) fail("usage: batches KERNELS");
  HSA(hsa_init());
  find_agents();
  load(argv[1]);
  HSA(hsa_queue_create(gpu, 1024, HSA_QUEUE_TYPE_MULTI, NULL, NULL, UINT32_MAX, UINT32_MAX, &queue));
  last = new_signal(0);
  say("ready");
  char line[64];
  unsigned count, us;
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (sscanf(line, "batch %u %u", &count, &us) == 2) batch(count, us), say("batch");
    else if (sscanf(line, "each %u", &count) == 1) each(count), say("each");
    else fail("unknown command \"%s\"", line);
  }
  HSA(hsa_queue_destroy(queue));
  say("launched %lu", launched);
  HSA(hsa_shut_down());
  say("done");
  return 0;
}
