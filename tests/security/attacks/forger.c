// forger DIRECTORY [LIBRARY...]: a process on the stand-in runtimes of DIRECTORY that writes records of its own
// into the spool of whoever attaches to it. Each LIBRARY is loaded, and a thread waits in its function `hold`.
// NAME in its environment becomes the name of the process. DUMPABLE (0 or 1) is set once it has given up all groups
// but its user's, and all capabilities if it is not root's. Commands, each answered by its first word:
//   symbols COUNT     COUNT kernels, from number 1 on, with short symbols of long names
//   symbol ID BYTES   a kernel with a symbol of BYTES quotation marks
//   kernels COUNT ID  COUNT dispatches of kernel ID
//   evil ID           a kernel whose name a terminal obeys, and a spreadsheet takes for a formula
//   gaps              a kernel and a code object with the largest numbers that are taken
//   quit
#include "../../c/kit.h"
#include <dlfcn.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

// As crates/between/record has them: the layout of the spool and the kinds of records.
enum { CHUNK = 65536, CHUNK_HEAD = 64, CHUNKS_AT = 40, CHUNK_COUNT = 48, CLAIM = 96, FREE = 0, OPEN = 1, SEALED = 2 };
enum { CODE_OBJECT = 129, KERNEL_SYMBOL = 130, LARGEST_ID = (1 << 18) - 1 };
enum { KERNEL_DISPATCH = 9 };  // Its position in the table of domains.

typedef struct {
  uint16_t size;
  uint8_t kind, flags;
  uint32_t operation;
} header_t;
typedef struct {
  header_t header;
  uint64_t kernel_id, code_object_id, kernel_object, entry_offset;
  uint32_t numbers[7], name_len;
} symbol_t;
typedef struct {
  header_t header;
  uint64_t code_object_id, load[5];
  uint32_t node, uri_len;
} object_t;
typedef struct {
  header_t header;
  uint64_t start, end, correlation, rung, dispatch_id, kernel_id, kernel_object, packet_index, stream;
  uint32_t queue_id, node, tid, untimed, private_segment, group_segment, workgroup[3], grid[3];
} kernel_t;

static uint8_t *spool, *chunk;
static uint32_t used;

// Maps the attacher's memory a second time: a session may end while records are forged.
static void find_spool(void) {
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[4352], *end;
  static size_t size;
  if (spool) munmap(spool, size);
  spool = NULL;
  while (maps && fgets(line, sizeof line, maps))
    if (strstr(line, "midair-spool") && strstr(line, " rw-s 00000000 ")) {
      void *there = (void *)strtoull(line, &end, 16);
      size = strtoull(end + 1, NULL, 16) - (size_t)there;
      spool = mremap(there, 0, size, MREMAP_MAYMOVE);
    }
  if (!maps || !spool || spool == MAP_FAILED) fail("no spool is mapped");
  fclose(maps);
}

static void seal(void) {
  if (!chunk) return;
  __atomic_store_n((uint32_t *)(chunk + 4), used, __ATOMIC_RELEASE);
  __atomic_store_n((uint32_t *)chunk, SEALED, __ATOMIC_RELEASE);
  chunk = NULL;
}

// A chunk that is free; waits for the attacher to free one.
static void claim(void) {
  uint64_t at = *(uint64_t *)(spool + CHUNKS_AT), count = *(uint64_t *)(spool + CHUNK_COUNT);
  for (;;) {
    uint64_t claimed = __atomic_fetch_add((uint64_t *)(spool + CLAIM), 1, __ATOMIC_RELAXED);
    uint8_t *one = spool + at + claimed % count * CHUNK;
    uint32_t state = FREE;
    if (__atomic_compare_exchange_n((uint32_t *)one, &state, OPEN, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
      chunk = one;
      used = 0;
      *(uint64_t *)(one + 16) = claimed;
      return;
    }
    if (claimed % count == 0) sched_yield();
  }
}

// Stores a record and what follows it.
static void put(void *record, size_t size, const void *tail, size_t len) {
  size_t whole = (size + len + 7) & ~(size_t)7;
  if (chunk && used + whole > CHUNK - CHUNK_HEAD) seal();
  if (!chunk) claim();
  ((header_t *)record)->size = (uint16_t)whole;
  uint8_t *to = chunk + CHUNK_HEAD + used;
  memset(to, 0, whole);
  memcpy(to, record, size);
  memcpy(to + size, tail, len);
  used += (uint32_t)whole;
}

static void put_symbol(uint64_t id, const char *name, size_t len) {
  symbol_t symbol = {.header = {.kind = KERNEL_SYMBOL}, .kernel_id = id, .kernel_object = id << 8, .name_len = (uint32_t)len};
  put(&symbol, sizeof symbol, name, len);
}

// A function of a few bytes whose parameters are each twice as long as the one before.
static size_t doubling(char *out, unsigned number) {
  const char *digits = "0123456789ABCDEFGHIJ";
  char function[16];
  int length = snprintf(function, sizeof function, "k%u", number);
  char *at = out + sprintf(out, "_Z%d%s1aIiE", length, function);
  for (int n = 1; n < 11; n++) {
    // The template with its arguments before this one: S_ is `a`, S0_ `a<int>`, S1_ `b`, S2_ the second, and so on.
    char before = digits[2 * (n - 1)];
    at += sprintf(at, "1%cIS%c_S%c_E", 'a' + n, before, before);
  }
  return (size_t)(at + sprintf(at, ".kd") - out);
}

static void *held(void *library) {
  void (*hold)(void) = (void (*)(void))dlsym(library, "hold");
  if (!hold) fail("hold: %s", dlerror());
  hold();
  return NULL;
}

static void *loaded(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (!library) fail("%s", dlerror());
  return library;
}

int main(int argc, char **argv) {
  char path[4096], line[64], name[4096];
  if (argc < 2) fail("usage: forger DIRECTORY [LIBRARY...]");
  if (getenv("NAME")) prctl(PR_SET_NAME, getenv("NAME"));
  snprintf(path, sizeof path, "%s/libhsa-runtime64.so.1", argv[1]);
  loaded(path);
  snprintf(path, sizeof path, "%s/libamdhip64.so.7", argv[1]);
  int (*devices)(int *) = (int (*)(int *))dlsym(loaded(path), "hipGetDeviceCount"), count = 0;
  if (!devices || devices(&count)) fail("no devices");
  for (int n = 2; n < argc; n++) start_thread(held, loaded(argv[n]));
  struct __user_cap_header_struct version = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct none[2] = {0};
  if (getenv("DUMPABLE") &&
      (setresgid(getgid(), getgid(), getgid()) || (getuid() && syscall(SYS_capset, &version, none)) ||
       prctl(PR_SET_DUMPABLE, atoi(getenv("DUMPABLE")))))
    fail("cannot protect itself");
  say("ready");
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    unsigned number, other = 0;
    find_spool();
    if (sscanf(line, "symbols %u", &number) == 1) {
      for (unsigned id = 1; id <= number; id++) put_symbol(id, name, doubling(name, id));
    } else if (sscanf(line, "symbol %u %u", &number, &other) == 2) {
      memset(name, '"', sizeof name);
      put_symbol(number, name, other);
    } else if (sscanf(line, "kernels %u %u", &number, &other) == 2) {
      for (unsigned n = 1; n <= number; n++) {
        kernel_t kernel = {.header = {.kind = KERNEL_DISPATCH}, .start = n, .end = n + 1, .dispatch_id = n, .kernel_id = other ? other : n};
        put(&kernel, sizeof kernel, "", 0);
      }
    } else if (sscanf(line, "evil %u", &number) == 1) {
      const char evil[] = "=1+1\x1b[2J\x1b]0;title\x07\xe2\x80\xae gpj\xe2\x80\xa8\n\xc2\x9b\xff.kd";
      put_symbol(number, evil, sizeof evil - 1);
    } else if (!strcmp(line, "gaps")) {
      object_t object = {.header = {.kind = CODE_OBJECT}, .code_object_id = LARGEST_ID};
      put(&object, sizeof object, "", 0);
      put_symbol(LARGEST_ID, "_Z3gapv.kd", 10);
    } else {
      fail("unknown command \"%s\"", line);
    }
    seal();
    line[strcspn(line, " ")] = 0;
    say("%s", line);
  }
  return 0;
}
