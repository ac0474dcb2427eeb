// overwrap KERNELS: a program that puts wrappers of its own into three slots of the API tables, as
// another tool would, over whatever is there: hsa_signal_store_screlease (rings doorbells),
// hsa_system_get_info, hipGetLastError. Commands: "over" (saves what the slots hold and puts the
// wrappers in), "off" (puts back what it saved), "drop" (the same without a look at what the slots
// hold now, which throws out a wrapper that came later), "go COUNT" (COUNT times: vadd with 5
// blocks, both other functions; answers "go" when all is right, and every call went through the
// wrappers if they are in), "tables", "quit".
#include "hip_kit.h"
#include "tables.h"

typedef struct { uint64_t handle; } signal_t;
static void (*old_store)(signal_t, int64_t);
static uint32_t (*old_info)(int, void *);
static hipError_t (*old_error)(void);
static atomic_ulong stores, infos, errors;

static void my_store(signal_t signal, int64_t value) {
  atomic_fetch_add(&stores, 1);
  old_store(signal, value);
}
static uint32_t my_info(int attribute, void *value) {
  atomic_fetch_add(&infos, 1);
  return old_info(attribute, value);
}
static hipError_t my_error(void) {
  atomic_fetch_add(&errors, 1);
  return old_error();
}

// Each function has two slots here: where its pointer is, and where its old value is kept.
static void *wrapper[3] = {(void *)my_store, (void *)my_info, (void *)my_error};
static void **old[3] = {(void **)&old_store, (void **)&old_info, (void **)&old_error};

static void **slot_at(int n) {
  slot_t slot = n == 0 ? hsa_slot("hsa_signal_store_screlease") : n == 1 ? hsa_slot("hsa_system_get_info") : hip_slot("hipGetLastError");
  return slot.table + slot.offset / sizeof(void *);
}

int main(int argc, char **argv) {
  if (argc < 2) fail("usage: overwrap KERNELS");
  kernels_t kernels = load_kernels(argv[1]);
  work_t work = new_work();
  uint32_t (*info)(int, void *) = (uint32_t (*)(int, void *))(uintptr_t)dlsym(RTLD_DEFAULT, "hsa_system_get_info");
  bool over = false;
  say("ready");
  char line[64];
  unsigned number;
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (!strcmp(line, "over")) {
      if (over) fail("over already");
      for (int n = 0; n < 3; n++) {
        *old[n] = *slot_at(n);
        __atomic_store_n(slot_at(n), wrapper[n], __ATOMIC_RELEASE);
      }
      over = true;
      say("over");
    } else if (!strcmp(line, "off") || !strcmp(line, "drop")) {
      if (!over) fail("not over");
      for (int n = 0; n < 3; n++) {
        if (line[0] == 'o' && *slot_at(n) != wrapper[n]) fail("slot %d does not hold our wrapper any more", n);
        __atomic_store_n(slot_at(n), *old[n], __ATOMIC_RELEASE);
      }
      over = false;
      say("%s", line);
    } else if (sscanf(line, "go %u", &number) == 1) {
      unsigned long before[3] = {atomic_load(&stores), atomic_load(&infos), atomic_load(&errors)};
      for (unsigned n = 0; n < number; n++) {
        uint64_t frequency = 0;
        launch_vadd(&kernels, &work, 5);
        // 3: HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY.
        if (info(3, &frequency) || !frequency) fail("hsa_system_get_info: %lu", (unsigned long)frequency);
        if (hipGetLastError() != hipSuccess) fail("hipGetLastError");
      }
      HIP(hipStreamSynchronize(work.stream));
      unsigned long least = over ? number : 0, most = over ? ~0ul : 0;
      unsigned long now[3] = {atomic_load(&stores), atomic_load(&infos), atomic_load(&errors)};
      for (int n = 0; n < 3; n++)
        if (now[n] - before[n] < least || now[n] - before[n] > most) fail("wrapper %d: %lu calls in %u rounds", n, now[n] - before[n], number);
      say("go");
    } else if (!strcmp(line, "tables")) {
      say_tables();
    } else {
      fail("unknown command \"%s\"", line);
    }
  }
  say("vadd %lu grid %u", work.vadds, 5 * 64);
  end_work(&work);
  say("done");
  return 0;
}
