// A foreign SDK that comes late and learns through the table "rocattach" what was there before it,
// as AMD's does: it visits, asks to be told, and puts itself between the packets of every queue
// that lets it. Between packets it adds one of its own behind each kernel.
#include "probe.h"
#include <dlfcn.h>
#include <stdatomic.h>

typedef struct { uint64_t handle; } handle_t;
typedef void writer_t(const void *packets, uint64_t count);
typedef void interceptor_t(const void *packets, uint64_t count, uint64_t index, void *data, writer_t *write);
typedef void on_queue_t(void *queue, handle_t agent, int phase, void *data);
typedef void on_object_t(handle_t executable, int phase, void *data);
typedef void visit_queue_t(void *queue, handle_t agent, void *data);
typedef void visit_object_t(handle_t executable, void *data);

typedef struct {
  uint64_t size;
  int (*get_version)(void);
  int (*iterate_all_queues)(visit_queue_t *, void *);
  int (*set_write_interceptor)(void *queue, interceptor_t *, void *);
  int (*iterate_all_code_objects)(visit_object_t *, void *);
  int (*add_code_object_cb)(on_object_t *, void *);
  int (*remove_code_object_cb)(on_object_t *);
  int (*add_queue_cb)(on_queue_t *, void *);
  int (*remove_queue_cb)(on_queue_t *);
  int (*lookup_memory_codeobj_data)(handle_t loaded, const void **, uint64_t *);
  int (*is_hsa_interception_active)(void);
  int (*initialize_hsa_interception)(void *);
} table_t;

static const table_t *table;
static unsigned visited, told, objects, object_events, accepted, refused;
static atomic_ulong kernels;
static char line[128];

static void between(const void *packets, uint64_t count, uint64_t index, void *data, writer_t *write) {
  (void)index;
  if (data != &table) abort();
  for (uint64_t i = 0; i < count; i++) {
    const uint16_t *packet = (const uint16_t *)((const char *)packets + 64 * i);
    write(packet, 1);
    if ((*packet & 0xff) != 2) continue;
    kernels++;
    uint16_t own[32] = {3}; // barrier-and, waits for nothing
    write(own, 1);
  }
}

static void try_queue(void *queue) {
  int answer = table->set_write_interceptor(queue, between, &table);
  if (answer == 0) accepted++;
  else if (answer == 37) refused++;
  else note("set_write_interceptor: what is that?");
}
static void visit_queue(void *queue, handle_t agent, void *data) {
  (void)queue;
  if (!agent.handle || data != &visited) abort();
  visited++;
}
static void on_queue(void *queue, handle_t agent, int phase, void *data) {
  if (!agent.handle || data != &told) abort();
  told++;
  if (phase == 0) try_queue(queue);
  else note("queue goes");
}
// Bytes of the code objects that were loaded from memory, as the helper kept them; they must be ELF files.
static uint64_t bytes;
static unsigned on_loaded(handle_t executable, handle_t loaded, void *data) {
  (void)executable, (void)data;
  const void *at = NULL;
  uint64_t size = 0;
  int answer = table->lookup_memory_codeobj_data(loaded, &at, &size);
  if (answer == 0 && !memcmp(at, "\177ELF", 4)) bytes += size;
  if (table->lookup_memory_codeobj_data((handle_t){1}, &at, &size) != 19) note("an unknown code object has bytes");
  return 0;
}
static void visit_object(handle_t executable, void *data) {
  if (!executable.handle || data != &objects) abort();
  objects++;
  // AMD's loader extension, version 1; its fourth function visits what was loaded.
  unsigned (*extension)(uint16_t, uint16_t, size_t, void *) = dlsym(RTLD_DEFAULT, "hsa_system_get_major_extension_table");
  void *functions[4] = {0};
  if (!extension || extension(0x201, 1, sizeof functions, functions)) return note("no loader extension");
  ((unsigned (*)(handle_t, unsigned (*)(handle_t, handle_t, void *), void *))functions[3])(executable, on_loaded, NULL);
}
static void on_object(handle_t executable, int phase, void *data) {
  if (!executable.handle || data != &object_events) abort();
  if (phase == 0) object_events++;
  else note("object goes");
}

EXPORT int rocprofiler_set_api_table(const char *name, uint64_t version, uint64_t instance, void **tables, uint64_t count) {
  snprintf(line, sizeof line, "set_api_table %s %lu %lu %lu", name, version, instance, count);
  note(line);
  if (!strcmp(name, "rocattach")) table = tables[0];
  return 0;
}
EXPORT int rocprofiler_attach(void) {
  if (!table) {
    note("no table");
    return 1;
  }
  visited = told = objects = object_events = accepted = refused = 0;
  bytes = 0;
  kernels = 0;
  int failed = table->iterate_all_queues(visit_queue, &visited) || table->iterate_all_code_objects(visit_object, &objects) ||
               table->add_queue_cb(on_queue, &told) || table->add_code_object_cb(on_object, &object_events);
  snprintf(line, sizeof line, "attach size=%lu version=%d active=%d failed=%d queues=%u told=%u refused=%u accepted=%u objects=%d bytes=%lu", table->size,
           table->get_version(), table->is_hsa_interception_active(), failed, visited, told, refused, accepted,
           objects == object_events ? (int)objects : -1, bytes);
  note(line);
  return failed;
}
EXPORT int rocprofiler_detach(void) {
  int failed = table->remove_queue_cb(on_queue) || table->remove_code_object_cb(on_object);
  snprintf(line, sizeof line, "detach failed=%d told=%u refused=%u accepted=%u objects=%u kernels=%lu again=%d", failed, told, refused, accepted,
           object_events, (unsigned long)kernels, table->remove_queue_cb(on_queue));
  note(line);
  return 0;
}
