// pc_samples KERNELS METHOD INTERVAL LAUNCHES CYCLES: samples program counters with AMD's own functions
// (hsa_ven_amd_pcs_*). METHOD 0 host trap (INTERVAL in us), 1 stochastic (INTERVAL in cycles, a power of
// two). Each cycle creates a session, launches vadd with grid.x 64 so often while it samples, stops,
// flushes and destroys it. Says "choice METHOD UNIT LEAST MOST FLAGS" for each configuration, then for
// each program counter "offset OFFSET samples N" (from the kernel's entry), "invalid N", "lost N",
// "foreign N" (samples outside of the kernel), "times N" (samples whose time is not in the cycle), "done".
#include "hsa_kit.h"
#include <hsa/hsa_ven_amd_pc_sampling.h>
#include <time.h>

enum { MOST = 1 << 16, BYTES = 1 << 16 };
static uint64_t entry, began;
static unsigned long counts[MOST], invalid, lost, foreign, odd_times;
static int method;

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_BOOTTIME, &t);
  return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static hsa_status_t on_choice(const hsa_ven_amd_pcs_configuration_t *c, void *data) {
  (void)data;
  say("choice %d %d %zu %zu %lu", c->method, c->units, c->min_interval, c->max_interval, (unsigned long)c->flags);
  return HSA_STATUS_SUCCESS;
}

static void ready(void *client, size_t bytes, size_t lost_samples, hsa_ven_amd_pcs_data_copy_callback_t copy, void *data) {
  (void)client;
  perf_sample_snapshot_v1_t *samples = malloc(bytes);
  if (!samples || copy(data, bytes, samples) != HSA_STATUS_SUCCESS) fail("no copy of %zu bytes", bytes);
  lost += lost_samples;
  for (size_t n = 0; n < bytes / sizeof *samples; n++) {
    uint64_t offset = samples[n].pc - entry;
    if (samples[n].timestamp < began) odd_times++;
    if (method == 1 && !(samples[n].perf_snapshot_data & 1)) invalid++;
    else if (offset < MOST) counts[offset]++;
    else foreign++;
  }
  free(samples);
}

int main(int argc, char **argv) {
  if (argc != 6) fail("pc_samples KERNELS METHOD INTERVAL LAUNCHES CYCLES");
  method = atoi(argv[2]);
  size_t interval = strtoul(argv[3], NULL, 0);
  int launches = atoi(argv[4]), cycles = atoi(argv[5]);
  HSA(hsa_init());
  find_agents();
  load(argv[1]);
  entry = kernel_object + *(uint64_t *)(kernel_object + 16);
  hsa_queue_t *queue = new_queue();
  HSA(hsa_ven_amd_pcs_iterate_configuration(gpu, on_choice, NULL));
  for (int cycle = 0; cycle < cycles; cycle++) {
    hsa_ven_amd_pcs_t session;
    began = now();
    HSA(hsa_ven_amd_pcs_create(gpu, method, method, interval, 1000, BYTES, ready, NULL, &session));
    // ROCr 7.2.4 keeps from an earlier session which of its two buffers is in use, and the new session
    // starts with the first. A flush while there are no samples sets both to the same.
    HSA(hsa_ven_amd_pcs_flush(session));
    HSA(hsa_ven_amd_pcs_start(session));
    hsa_signal_t signal = new_signal(0);
    for (int n = 0; n < launches; n++) {
      hsa_signal_store_screlease(signal, 1);
      dispatch(queue, 64, signal);
      wait_for_zero(signal);
    }
    HSA(hsa_signal_destroy(signal));
    HSA(hsa_ven_amd_pcs_stop(session));
    HSA(hsa_ven_amd_pcs_flush(session));
    HSA(hsa_ven_amd_pcs_destroy(session));
    say("cycle %d", cycle);
  }
  for (int offset = 0; offset < MOST; offset++)
    if (counts[offset]) say("offset %d samples %lu", offset, counts[offset]);
  say("invalid %lu", invalid);
  say("lost %lu", lost);
  say("foreign %lu", foreign);
  say("times %lu", odd_times);
  HSA(hsa_queue_destroy(queue));
  HSA(hsa_shut_down());
  say("done");
}
