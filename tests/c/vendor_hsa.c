// vendor_hsa KERNELS: no HIP. Dispatches of a real code object on AMD's own runtime, as AMD's vendor packet of format 3
// (docs/sources.md#hsa-newer) and as AQL's own packet, by turns.
//   go N     N rounds, each on two queues, by a thread each: a vendor packet without a signal (grid.x 1280), AQL's own (grid.x
//            1000), a vendor packet that waits for a signal which is set after the doorbell was rung (grid.x 1280), and one with
//            a signal of the program's own, which is waited for (grid.x 1280)
//   quit
// Each answers with its name.
#include "hsa_kit.h"

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
  hsa_signal_t dep, done;
} ext_t;
_Static_assert(sizeof(ext_t) == 64, "hsa_amd_ext_kernel_dispatch_packet_t");

static unsigned rounds;
static hsa_queue_t *queues[2];

// 10 clusters of 2 workgroups of 64.
static void vendor(hsa_queue_t *queue, hsa_signal_t dep, hsa_signal_t done) {
  ext_t packet = {
      .header = header(HSA_PACKET_TYPE_VENDOR_SPECIFIC),
      .format = 3, .setup = 1, .workgroup = {64, 1, 1},
      .clusters_x = 10, .clusters_yz = {1, 1}, .cluster = {2, 1, 1},
      .private_size = private_size, .group_size = group_size,
      .kernel = kernel_object, .arguments = kernarg, .dep = dep, .done = done,
  };
  publish(queue, take(queue), &packet);
}

static void *go(void *argument) {
  hsa_queue_t *queue = argument;
  hsa_signal_t dep = new_signal(0), done = new_signal(0), none = {0};
  for (unsigned round = 0; round < rounds; round++) {
    hsa_signal_store_screlease(dep, 1);
    hsa_signal_store_screlease(done, 1);
    vendor(queue, none, none);
    dispatch(queue, 1000, none);
    vendor(queue, dep, none);
    vendor(queue, none, done);
    hsa_signal_store_screlease(dep, 0);
    wait_for_zero(done);
  }
  HSA(hsa_signal_destroy(dep));
  HSA(hsa_signal_destroy(done));
  return NULL;
}

int main(int argc, char **argv) {
  if (argc < 2) fail("usage: vendor_hsa KERNELS");
  HSA(hsa_init());
  find_agents();
  load(argv[1]);
  for (int n = 0; n < 2; n++) queues[n] = new_queue();
  say("ready");
  char line[64];
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (sscanf(line, "go %u", &rounds) != 1) fail("unknown command \"%s\"", line);
    pthread_t threads[2];
    for (int n = 0; n < 2; n++) threads[n] = start_thread(go, queues[n]);
    for (int n = 0; n < 2; n++) pthread_join(threads[n], NULL);
    say("go");
  }
  for (int n = 0; n < 2; n++) HSA(hsa_queue_destroy(queues[n]));
  HSA(hsa_shut_down());
  say("done");
  return 0;
}
