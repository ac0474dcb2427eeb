// raw_hsa KERNELS ROUNDS: no HIP. Loads the code object through the loader API and uses queues in
// the ways that a profiler finds hardest:
//   shared    4 producers on ONE queue: each takes an index with hsa_queue_add_write_index, writes its packet, rings the
//             doorbell with its own index. Producer P uses grid.x 1000 + P. Every third dispatch has a completion signal of the
//             producer's own, waited for and used again; the others have none.
//   after     a second queue: per round a barrier-and packet on the completion signals of two dispatches on the shared queue
//             (grid.x 2000), then a dispatch (grid.x 2001) whose signal is waited for by the host.
//   handler   a dispatch (grid.x 3000) whose signal has a handler (hsa_amd_signal_async_handler) that itself launches on
//             another queue (grid.x 3001) and waits for that signal.
//   intercept a queue made by hsa_amd_queue_intercept_create with a handler that passes packets on (grid.x 4000); skipped by
//             name where the table with that function cannot be found.
// Says "ready"; "go" runs ROUNDS rounds of everything (answer "go"), "quit" prints "grid G
// dispatches N" per grid and "done".
#include "hsa_kit.h"

enum { PRODUCERS = 4 };
static unsigned rounds;
static hsa_queue_t *shared, *after, *handled, *inner, *intercept;
static atomic_ulong done_shared[PRODUCERS], done_2000, done_2001, done_3000, done_3001, done_4000, intercepted;

static void *produce(void *argument) {
  uint32_t me = (uint32_t)(uintptr_t)argument;
  hsa_signal_t mine = new_signal(0), none = {0};
  for (unsigned round = 0; round < rounds; round++) {
    for (int n = 0; n < 3; n++) {
      if (n == 0) hsa_signal_store_screlease(mine, 1);
      dispatch(shared, 1000 + me, n == 0 ? mine : none);
      atomic_fetch_add(&done_shared[me], 1);
    }
    wait_for_zero(mine);
  }
  HSA(hsa_signal_destroy(mine));
  return NULL;
}

static void *depend(void *argument) {
  (void)argument;
  hsa_signal_t first = new_signal(0), second = new_signal(0), last = new_signal(0), none = {0};
  for (unsigned round = 0; round < rounds; round++) {
    hsa_signal_store_screlease(first, 1);
    hsa_signal_store_screlease(second, 1);
    hsa_signal_store_screlease(last, 1);
    hsa_barrier_and_packet_t barrier = {
        .header = header(HSA_PACKET_TYPE_BARRIER_AND), .dep_signal = {first, {0}, second}, .completion_signal = none};
    barrier.header |= 1 << HSA_PACKET_HEADER_BARRIER;
    // The barrier is there before what it waits for.
    publish(after, take(after), &barrier);
    dispatch(after, 2001, last);
    dispatch(shared, 2000, first);
    dispatch(shared, 2000, second);
    atomic_fetch_add(&done_2000, 2);
    wait_for_zero(last);
    if (hsa_signal_load_scacquire(first) || hsa_signal_load_scacquire(second)) fail("a barrier did not wait");
    atomic_fetch_add(&done_2001, 1);
  }
  HSA(hsa_signal_destroy(first));
  HSA(hsa_signal_destroy(second));
  HSA(hsa_signal_destroy(last));
  return NULL;
}

static hsa_signal_t handler_done, inner_signal;

// Runs on the runtime's own thread.
static bool on_signal(hsa_signal_value_t value, void *argument) {
  (void)argument;
  if (value != 0) fail("the handler saw the value %ld", (long)value);
  hsa_signal_store_screlease(inner_signal, 1);
  dispatch(inner, 3001, inner_signal);
  wait_for_zero(inner_signal);
  atomic_fetch_add(&done_3001, 1);
  hsa_signal_subtract_screlease(handler_done, 1);
  return false;
}

static void *handle(void *argument) {
  (void)argument;
  hsa_signal_t outer = new_signal(0);
  handler_done = new_signal(0);
  inner_signal = new_signal(0);
  for (unsigned round = 0; round < rounds; round++) {
    hsa_signal_store_screlease(outer, 1);
    hsa_signal_store_screlease(handler_done, 1);
    HSA(hsa_amd_signal_async_handler(outer, HSA_SIGNAL_CONDITION_EQ, 0, on_signal, NULL));
    dispatch(handled, 3000, outer);
    atomic_fetch_add(&done_3000, 1);
    wait_for_zero(handler_done);
  }
  HSA(hsa_signal_destroy(outer));
  HSA(hsa_signal_destroy(handler_done));
  HSA(hsa_signal_destroy(inner_signal));
  return NULL;
}

typedef void (*packet_writer)(const void *packets, uint64_t count);
typedef void (*packet_handler)(const void *packets, uint64_t count, uint64_t index, void *data, packet_writer write);

static void on_packets(const void *packets, uint64_t count, uint64_t index, void *data, packet_writer write) {
  (void)index, (void)data;
  atomic_fetch_add(&intercepted, count);
  write(packets, count);
}

// The two functions for intercept queues are in the table of AMD's extensions only. An exported
// function of the same table shows where it is: endbr64; mov table(%rip),%rax; jmp *offset(%rax).
static hsa_queue_t *new_intercept_queue(void) {
  // Indices in AmdExtTable 2.8, whose entries follow 16 bytes of version (source: api/hsa_api_tables.json).
  enum { PROFILER_ENABLED = 4, INTERCEPT_CREATE = 39, INTERCEPT_REGISTER = 40 };
  const unsigned char *code = (const unsigned char *)hsa_amd_profiling_set_profiler_enabled;
  static const unsigned char endbr[4] = {0xf3, 0x0f, 0x1e, 0xfa}, load[3] = {0x48, 0x8b, 0x05};
  if (!memcmp(code, endbr, 4)) code += 4;
  const unsigned char jump[3] = {0xff, 0x60, 8 * PROFILER_ENABLED};
  if (memcmp(code, load, 3) || memcmp(code + 7, jump, 3)) return NULL;
  int32_t displacement;
  memcpy(&displacement, code + 3, 4);
  void ***variable = (void ***)(code + 7 + displacement);
  void **table = *variable;
  hsa_status_t (*create)(hsa_agent_t, uint32_t, hsa_queue_type32_t, void (*)(hsa_status_t, hsa_queue_t *, void *), void *, uint32_t,
                         uint32_t, hsa_queue_t **) = table[INTERCEPT_CREATE];
  hsa_status_t (*install)(hsa_queue_t *, packet_handler, void *) = table[INTERCEPT_REGISTER];
  hsa_queue_t *queue = NULL;
  HSA(create(gpu, QUEUE_SIZE, HSA_QUEUE_TYPE_MULTI, NULL, NULL, UINT32_MAX, UINT32_MAX, &queue));
  HSA(install(queue, on_packets, NULL));
  return queue;
}

static void *use_intercept(void *argument) {
  (void)argument;
  hsa_signal_t mine = new_signal(0), none = {0};
  for (unsigned round = 0; round < rounds; round++) {
    hsa_signal_store_screlease(mine, 1);
    dispatch(intercept, 4000, none);
    dispatch(intercept, 4000, mine);
    wait_for_zero(mine);
    atomic_fetch_add(&done_4000, 2);
  }
  HSA(hsa_signal_destroy(mine));
  return NULL;
}

static void go(void) {
  pthread_t threads[PRODUCERS + 3];
  int n = 0;
  for (uintptr_t p = 0; p < PRODUCERS; p++) threads[n++] = start_thread(produce, (void *)p);
  threads[n++] = start_thread(depend, NULL);
  threads[n++] = start_thread(handle, NULL);
  if (intercept) threads[n++] = start_thread(use_intercept, NULL);
  while (n > 0) pthread_join(threads[--n], NULL);
}

int main(int argc, char **argv) {
  if (argc < 3) fail("usage: raw_hsa KERNELS ROUNDS");
  rounds = atoi(argv[2]);
  HSA(hsa_init());
  find_agents();
  load(argv[1]);
  shared = new_queue(), after = new_queue(), handled = new_queue(), inner = new_queue();
  intercept = new_intercept_queue();
  if (!intercept) say("no intercept queue: the table cannot be found");
  say("ready");
  char line[64];
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (strcmp(line, "go")) fail("unknown command \"%s\"", line);
    go();
    say("go");
  }
  // Dispatches without a signal may still run: a last one with a signal, behind them.
  hsa_signal_t last = new_signal(1);
  dispatch(shared, 5000, last);
  wait_for_zero(last);
  HSA(hsa_signal_destroy(last));
  for (int p = 0; p < PRODUCERS; p++) say("grid %d dispatches %lu", 1000 + p, atomic_load(&done_shared[p]));
  say("grid 2000 dispatches %lu", atomic_load(&done_2000));
  say("grid 2001 dispatches %lu", atomic_load(&done_2001));
  say("grid 3000 dispatches %lu", atomic_load(&done_3000));
  say("grid 3001 dispatches %lu", atomic_load(&done_3001));
  say("grid 4000 dispatches %lu", atomic_load(&done_4000));
  say("grid 5000 dispatches 1");
  if (atomic_load(&intercepted) < atomic_load(&done_4000)) fail("the intercept handler missed packets");
  hsa_queue_t *queues[] = {shared, after, handled, inner, intercept};
  for (int n = 0; n < 5; n++)
    if (queues[n]) HSA(hsa_queue_destroy(queues[n]));
  HSA(hsa_shut_down());
  say("done");
  return 0;
}
