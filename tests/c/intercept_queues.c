// To be preloaded, for comparison: does to HIP's queues what AMD's profiler does when it counts. Each queue is an intercept queue of
// the runtime's, and each dispatch becomes six packets: a barrier packet, the dispatch with its barrier bit, a barrier packet with
// the application's signal, and three more. AMD's tool has commands in most of these; what is measured with this is the thread that
// launches, which does not care what is in them. Nothing is waited for.
#include "tables.h"
#include <hsa/hsa.h>

// hsa_api_trace.h is C++; source of the types: api/hsa_types.json, of the offsets: api/hsa_api_tables.json.
typedef void (*writer_t)(const void *packets, uint64_t count);
typedef void (*handler_t)(const void *packets, uint64_t count, uint64_t index, void *data, writer_t write);
typedef void (*callback_t)(hsa_status_t, hsa_queue_t *, void *);
typedef hsa_status_t (*create_t)(hsa_agent_t, uint32_t, hsa_queue_type32_t, callback_t, void *, uint32_t, uint32_t, hsa_queue_t **);
typedef hsa_status_t (*add_handler_t)(hsa_queue_t *, handler_t, void *);
typedef hsa_status_t (*profile_t)(hsa_queue_t *, int);
enum { PROFILE = 32, CREATE = 312, REGISTER = 320 };

typedef union {
  hsa_kernel_dispatch_packet_t dispatch;
  hsa_barrier_and_packet_t barrier;
} packet_t;

static packet_t barrier(hsa_signal_t signal) {
  packet_t packet;
  memset(&packet, 0, sizeof packet);
  packet.barrier.header = HSA_PACKET_TYPE_BARRIER_AND | 1 << HSA_PACKET_HEADER_BARRIER;
  packet.barrier.completion_signal = signal;
  return packet;
}

static void on_packets(const void *packets, uint64_t count, uint64_t index, void *data, writer_t write) {
  (void)index, (void)data;
  const packet_t *in = packets;
  const hsa_signal_t none = {0};
  for (uint64_t n = 0; n < count; n++) {
    if ((in[n].dispatch.header & 0xff) != HSA_PACKET_TYPE_KERNEL_DISPATCH) {
      write(&in[n], 1);
      continue;
    }
    packet_t out[6] = {barrier(none), in[n], barrier(in[n].dispatch.completion_signal), barrier(none), barrier(none), barrier(none)};
    out[1].dispatch.header |= 1 << HSA_PACKET_HEADER_BARRIER;
    out[1].dispatch.completion_signal = none;
    write(out, 6);
  }
}

// HIP's calls come here.
hsa_status_t hsa_queue_create(hsa_agent_t agent, uint32_t size, hsa_queue_type32_t type, callback_t callback, void *data,
                              uint32_t private_size, uint32_t group_size, hsa_queue_t **queue) {
  slot_t known = hsa_slot("hsa_amd_profiling_set_profiler_enabled");
  if (known.offset != PROFILE) fail("the table of functions is another one");
  const char *table = (const char *)known.table;
  hsa_status_t status = (*(create_t *)(table + CREATE))(agent, size, type, callback, data, private_size, group_size, queue);
  if (status) return status;
  (*(profile_t *)(table + PROFILE))(*queue, 1);
  return (*(add_handler_t *)(table + REGISTER))(*queue, on_packets, NULL);
}
