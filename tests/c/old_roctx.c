// Stands for libroctx64.so.4 of the old roctracer: no tables; a variable with one function, which
// is told of each call as it begins.
#include <stdatomic.h>
#include <stdint.h>

typedef struct {
  const char *message;
  uint64_t id;
} data_t;
typedef int (*callback_t)(uint32_t domain, uint32_t operation, const data_t *data);

static _Atomic callback_t callback;
static _Thread_local int level;
static atomic_ullong next = 1;

void roctxRegisterTracerCallback(callback_t function) { atomic_store_explicit(&callback, function, memory_order_relaxed); }

static void tell(uint32_t operation, const char *message, uint64_t id) {
  callback_t function = atomic_load_explicit(&callback, memory_order_relaxed);
  data_t data = {message, id};
  if (function) function(6, operation, &data);
}
void roctxMarkA(const char *message) { tell(0, message, 0); }
int roctxRangePushA(const char *message) {
  tell(1, message, 0);
  return level++;
}
int roctxRangePop(void) {
  tell(2, 0, 0);
  return level ? --level : -1;
}
uint64_t roctxRangeStartA(const char *message) {
  uint64_t id = atomic_fetch_add(&next, 1);
  tell(3, message, id);
  return id;
}
void roctxRangeStop(uint64_t id) { tell(4, 0, id); }

// Another user of the callback: it must go on being called.
static atomic_ullong told_before;
static int before(uint32_t domain, uint32_t operation, const data_t *data) {
  (void)domain, (void)operation, (void)data;
  atomic_fetch_add(&told_before, 1);
  return 0;
}
__attribute__((constructor)) static void first(void) { roctxRegisterTracerCallback(before); }
uint64_t told(void) { return atomic_load(&told_before); }
