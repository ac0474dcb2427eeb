// windows KERNELS SIZE: no HIP. One queue of SIZE packets, on which packets of a profiler may stand
// around each of the program's own.
//   burst N T   T threads launch N kernels each, as fast as the ring takes them: thread K with
//               grid.x 64 * (K + 1). Each 16th has a completion signal, which is waited for
//   cas N, store N, many N
//               N kernels of grid.x 6400 whose indices the program takes by compare-and-exchange, by
//               a plain store, or two at a time
// One kernel of grid.x 9600, step by step:
//   bar         a barrier before it, which holds the queue until "open"
//   take        reserves its packet
//   fill        writes it
//   ring        rings for it
//   open        lets the queue go on, if it is held
//   end         waits until it has run
//   fork        forks a child that asks HSA for the time and ends
//   become      executes this program anew
// Each command is answered by its name ("become" by "ready"); "quit" says "launched N" and "done".
#include "hsa_kit.h"
#include <errno.h>
#include <sys/wait.h>

static hsa_queue_t *queue;
static atomic_ulong launched;
static hsa_signal_t gate, last;
static uint64_t taken;

// A wait of the runtime's would keep a processor busy, of which the modelled device needs one.
static void sleep_until_zero(hsa_signal_t signal) {
  while (hsa_signal_load_scacquire(signal) > 0) usleep(50);
}

static hsa_kernel_dispatch_packet_t kernel(uint32_t grid, hsa_signal_t signal) {
  hsa_kernel_dispatch_packet_t packet = {
      .header = header(HSA_PACKET_TYPE_KERNEL_DISPATCH) | 1 << HSA_PACKET_HEADER_BARRIER,
      .setup = 1 << HSA_KERNEL_DISPATCH_PACKET_SETUP_DIMENSIONS,
      .workgroup_size_x = 64, .workgroup_size_y = 1, .workgroup_size_z = 1,
      .grid_size_x = grid, .grid_size_y = 1, .grid_size_z = 1,
      .private_segment_size = private_size, .group_segment_size = group_size,
      .kernel_object = kernel_object, .kernarg_address = kernarg, .completion_signal = signal,
  };
  atomic_fetch_add(&launched, 1);
  return packet;
}

static void fill(uint64_t index, const void *packet) {
  char *slot = (char *)queue->base_address + 64 * (index % queue->size);
  memcpy(slot + 4, (const char *)packet + 4, 60);
  uint32_t first;
  memcpy(&first, packet, 4);
  __atomic_store_n((uint32_t *)slot, first, __ATOMIC_RELEASE);
}

static void wait_for_room(uint64_t index) {
  while (index - hsa_queue_load_read_index_scacquire(queue) >= queue->size) sched_yield();
}

static unsigned each;

static void *burst(void *argument) {
  uint32_t me = (uint32_t)(uintptr_t)argument;
  hsa_signal_t mine = new_signal(0), none = {0};
  for (unsigned n = 1; n <= each; n++) {
    bool waits = n % 16 == 0 || n == each;
    if (waits) hsa_signal_store_screlease(mine, 1);
    hsa_kernel_dispatch_packet_t packet = kernel(64 * (me + 1), waits ? mine : none);
    publish(queue, take(queue), &packet);
    if (waits) sleep_until_zero(mine);
  }
  HSA(hsa_signal_destroy(mine));
  return NULL;
}

static void bursts(unsigned threads) {
  pthread_t all[16];
  if (threads > 16) fail("too many threads");
  for (uintptr_t n = 0; n < threads; n++) all[n] = start_thread(burst, (void *)n);
  for (unsigned n = 0; n < threads; n++) pthread_join(all[n], NULL);
}

enum how { CAS, STORE, MANY };

static uint64_t reserve(enum how how) {
  if (how == MANY) return hsa_queue_add_write_index_scacq_screl(queue, 2);
  uint64_t index = hsa_queue_load_write_index_relaxed(queue);
  if (how == STORE) hsa_queue_store_write_index_screlease(queue, index + 1);
  else
    for (uint64_t seen; (seen = hsa_queue_cas_write_index_scacq_screl(queue, index, index + 1)) != index;) index = seen;
  return index;
}

static void otherwise(enum how how, unsigned count) {
  hsa_signal_t none = {0};
  hsa_signal_store_screlease(last, 1);
  for (unsigned n = 0; n < count;) {
    uint64_t index = reserve(how);
    for (int k = 0; k < (how == MANY ? 2 : 1); k++, n++, index++) {
      wait_for_room(index);
      hsa_kernel_dispatch_packet_t packet = kernel(6400, n + 1 == count ? last : none);
      publish(queue, index, &packet);
    }
  }
  sleep_until_zero(last);
}

static void step(const char *name) {
  if (!strcmp(name, "bar")) {
    hsa_signal_store_screlease(gate, 1);
    hsa_barrier_and_packet_t bar = {.header = header(HSA_PACKET_TYPE_BARRIER_AND) | 1 << HSA_PACKET_HEADER_BARRIER,
                                    .dep_signal = {gate}};
    publish(queue, take(queue), &bar);
  } else if (!strcmp(name, "take")) {
    taken = take(queue);
  } else if (!strcmp(name, "fill")) {
    hsa_signal_store_screlease(last, 1);
    hsa_kernel_dispatch_packet_t packet = kernel(9600, last);
    fill(taken, &packet);
  } else if (!strcmp(name, "ring")) {
    hsa_signal_store_screlease(queue->doorbell_signal, (hsa_signal_value_t)taken);
  } else if (!strcmp(name, "open")) {
    hsa_signal_store_screlease(gate, 0);
  } else if (!strcmp(name, "end")) {
    sleep_until_zero(last);
  } else {
    fail("unknown command \"%s\"", name);
  }
  say("%s", name);
}

static void child(void) {
  pid_t pid = fork();
  if (pid < 0) fail("no child: %s", strerror(errno));
  if (pid == 0) {
    uint64_t time = 0;
    _exit(hsa_system_get_info(HSA_SYSTEM_INFO_TIMESTAMP, &time) == HSA_STATUS_SUCCESS && time ? 0 : 1);
  }
  int status;
  if (waitpid(pid, &status, 0) != pid || status) fail("the child ended with %x", status);
}

int main(int argc, char **argv) {
  if (argc < 3) fail("usage: windows KERNELS SIZE");
  HSA(hsa_init());
  find_agents();
  load(argv[1]);
  HSA(hsa_queue_create(gpu, (uint32_t)atoi(argv[2]), HSA_QUEUE_TYPE_MULTI, NULL, NULL, UINT32_MAX, UINT32_MAX, &queue));
  // As HIP does: packets have times.
  HSA(hsa_amd_profiling_set_profiler_enabled(queue, 1));
  gate = new_signal(0);
  last = new_signal(0);
  say("ready");
  char line[64];
  unsigned threads;
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (sscanf(line, "burst %u %u", &each, &threads) == 2) bursts(threads), say("burst");
    else if (sscanf(line, "cas %u", &threads) == 1) otherwise(CAS, threads), say("cas");
    else if (sscanf(line, "store %u", &threads) == 1) otherwise(STORE, threads), say("store");
    else if (sscanf(line, "many %u", &threads) == 1) otherwise(MANY, threads), say("many");
    else if (!strcmp(line, "fork")) child(), say("fork");
    else if (!strcmp(line, "become")) execv("/proc/self/exe", argv), fail("no other program");
    else step(line);
  }
  HSA(hsa_queue_destroy(queue));
  say("launched %lu", atomic_load(&launched));
  HSA(hsa_shut_down());
  say("done");
  return 0;
}
