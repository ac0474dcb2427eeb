// A tool of another vendor that has buffers of allocations, scratch memory and runtimes, by AMD's
// layouts, which it checks. It appends to LOG (a path of the target's, given at compile time) one
// line per record:
//   "allocation OPERATION ADDRESS BYTES NODE", "scratch OPERATION BYTES QUEUE FLAGS NODE", "runtime OPERATION VERSION INSTANCE"
// (NODE -1 for no agent), and at a detach "end WRONG DROPPED".
#include "../../crates/target/sdk-control/tests/c/sdk.h"
#include <stdio.h>

enum { SCRATCH_MEMORY = 12, MEMORY_ALLOCATION = 16, RUNTIME_INITIALIZATION = 17, LOSSLESS = 2 };

typedef struct {
  uint64_t size; int kind; int operation; rocprofiler_correlation_id_t correlation_id;
  uint64_t thread_id, start_timestamp, end_timestamp; rocprofiler_agent_id_t agent_id; uint64_t address, allocation_size;
} allocation_t;
typedef struct {
  uint64_t size; int kind; int operation; rocprofiler_correlation_id_t correlation_id; rocprofiler_agent_id_t agent_id;
  rocprofiler_queue_id_t queue_id; uint64_t thread_id, start_timestamp, end_timestamp; int flags; uint64_t allocation_size;
} scratch_t;
typedef struct {
  uint64_t size; int kind; int operation; rocprofiler_correlation_id_t correlation_id; uint64_t thread_id, timestamp, version, instance;
} runtime_t;
// Sizes and offsets of AMD's headers (api/rocprofiler_sdk.json).
_Static_assert(sizeof(allocation_t) == 88 && offsetof(allocation_t, thread_id) == 40 && offsetof(allocation_t, agent_id) == 64, "");
_Static_assert(sizeof(scratch_t) == 96 && offsetof(scratch_t, agent_id) == 40 && offsetof(scratch_t, flags) == 80, "");
_Static_assert(sizeof(runtime_t) == 72 && offsetof(runtime_t, timestamp) == 48 && offsetof(runtime_t, instance) == 64, "");

// The part of rocprofiler_agent_v0_t that is read here: its size, id, type, and the node near its end.
enum { AGENT_ID = 8, AGENT_NODE = 280 };

static rocprofiler_context_id_t context;
static rocprofiler_buffer_id_t buffer;
static unsigned long wrong, dropped;
static FILE *out;
static struct { uint64_t id; int node; } nodes[16];
static int known;

static int node_of(rocprofiler_agent_id_t agent) {
  for (int i = 0; i < known; i++)
    if (nodes[i].id == agent.handle) return nodes[i].node;
  return -1;
}

static int agents(int version, const void **list, size_t count, void *data) {
  (void)version, (void)data;
  for (known = 0; known < 16 && (size_t)known < count; known++) {
    nodes[known].id = *(const uint64_t *)((const char *)list[known] + AGENT_ID);
    nodes[known].node = *(const int *)((const char *)list[known] + AGENT_NODE);
  }
  return 0;
}

static void records(rocprofiler_context_id_t c, rocprofiler_buffer_id_t b, rocprofiler_record_header_t **headers, size_t count, void *data,
                    uint64_t drop) {
  (void)c, (void)b, (void)data;
  dropped += drop;
  for (size_t i = 0; i < count && out; i++) {
    unsigned kind = headers[i]->hash_or_category_and_kind >> 32;
    const void *payload = headers[i]->payload;
    if (kind == MEMORY_ALLOCATION) {
      const allocation_t *a = payload;
      wrong += a->size != sizeof *a || a->kind != (int)kind || a->end_timestamp < a->start_timestamp || !a->correlation_id.internal || !a->thread_id;
      fprintf(out, "allocation %d 0x%lx %lu %d\n", a->operation, a->address, a->allocation_size, node_of(a->agent_id));
    } else if (kind == SCRATCH_MEMORY) {
      const scratch_t *s = payload;
      wrong += s->size != sizeof *s || s->kind != (int)kind || s->end_timestamp < s->start_timestamp || !s->correlation_id.internal || !s->thread_id;
      fprintf(out, "scratch %d %lu %lu %d %d\n", s->operation, s->allocation_size, s->queue_id.handle, s->flags, node_of(s->agent_id));
    } else if (kind == RUNTIME_INITIALIZATION) {
      const runtime_t *r = payload;
      wrong += r->size != sizeof *r || r->kind != (int)kind || !r->timestamp || r->correlation_id.internal || !r->thread_id;
      fprintf(out, "runtime %d %lu %lu\n", r->operation, r->version, r->instance);
    } else {
      wrong++;
    }
  }
  if (out) fflush(out);
}

static int initialize(client_finalize end, void *data) {
  (void)end, (void)data;
  int failed = rocprofiler_query_available_agents(1, agents, 0, NULL);
  failed |= rocprofiler_create_context(&context) || rocprofiler_create_buffer(context, 1 << 16, 1 << 14, LOSSLESS, records, NULL, &buffer);
  for (int i = 0; i < 3; i++)
    failed |= rocprofiler_configure_buffer_tracing_service(context, (int[]){SCRATCH_MEMORY, MEMORY_ALLOCATION, RUNTIME_INITIALIZATION}[i], NULL, 0,
                                                           buffer);
  return failed;
}

static int attached(client_finalize end, rocprofiler_context_id_t *contexts, uint64_t count, void *data) {
  (void)end, (void)data;
  wrong = dropped = 0;
  out = fopen(LOG, "a");
  return count == 1 && out ? rocprofiler_start_context(contexts[0]) : -1;
}

static void detached(void *data) {
  (void)data;
  rocprofiler_flush_buffer(buffer);
  if (!out) return;
  fprintf(out, "end %lu %lu\n", wrong, dropped);
  fclose(out);
  out = NULL;
}

rocprofiler_tool_configure_result_t *rocprofiler_configure(uint32_t version, const char *words, uint32_t priority, rocprofiler_client_id_t *me) {
  static rocprofiler_tool_configure_result_t result = {sizeof result, initialize, NULL, NULL};
  (void)version, (void)words, (void)priority;
  me->name = "memory tool";
  return &result;
}

rocprofiler_tool_configure_attach_result_t *rocprofiler_configure_attach(uint32_t version, const char *words, uint32_t priority,
                                                                         rocprofiler_client_id_t *me) {
  static rocprofiler_tool_configure_attach_result_t result = {sizeof result, attached, detached, NULL};
  (void)version, (void)words, (void)priority, (void)me;
  return &result;
}
