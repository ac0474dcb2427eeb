// A library whose structures lead whoever follows them around without end. `midair why` takes it for the HSA runtime,
// and a copy of it for Python. The list of code objects is long, each with a long URI; each code object has thousands
// of symbol tables of a million symbols; there are queues without number, full of kernels that do not end; Python has
// thousands of threads whose frames lead back, with long names. The first thread's names are such as a terminal obeys.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { OBJECTS = 65536, URI = 8000, SECTIONS = 4000, SYMBOLS = 1 << 20, QUEUES = 1500, PACKETS = 512 };
enum { THREADS = 4000, FRAMES = 300, NAME = 1024 };

typedef struct link {
  uint64_t bias;
  const char *uri;
  void *dynamic;
  struct link *next, *previous;
} link_t;
struct {
  uint64_t version;
  link_t *first;
} _amdgpu_r_debug;
uint64_t _PyRuntime[96];

static void *room(size_t bytes) {
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) abort();
  return at;
}

static void objects(void) {
  // An ELF file of AMD's machine. All sections are the same table of symbols, none of which is the wanted one.
  size_t symbols = (size_t)SYMBOLS * 24;
  uint8_t *elf = room(64 + SECTIONS * 64 + symbols);
  memcpy(elf, "\x7f" "ELF\x02\x01", 6);
  elf[18] = 224;
  *(uint64_t *)(elf + 0x28) = 64;
  *(uint16_t *)(elf + 0x3c) = SECTIONS;
  for (uint64_t n = 0; n < SECTIONS; n++) {
    uint8_t *section = elf + 64 + 64 * n;
    *(uint32_t *)(section + 4) = 11;
    *(uint64_t *)(section + 0x18) = 64 + SECTIONS * 64;
    *(uint64_t *)(section + 0x20) = symbols;
    *(uint32_t *)(section + 0x28) = 1;
  }
  char *uri = room(URI + 1);
  memset(uri, 'x', URI);
  int len = sprintf(uri, "memory://%d#offset=%ju&size=%zu&", getpid(), (uintmax_t)(uintptr_t)elf,
                    64 + SECTIONS * 64 + symbols);
  uri[len] = 'x';
  link_t *all = room(OBJECTS * sizeof *all);
  for (size_t n = 0; n < OBJECTS; n++)
    all[n] = (link_t){.bias = n % 64, .uri = uri, .next = n + 1 < OBJECTS ? &all[n + 1] : all};
  _amdgpu_r_debug.first = all;
}

static void queues(void) {
  uint64_t *signals = room(PACKETS * 64);
  uint64_t *ring = room(PACKETS * 64);
  for (uint64_t n = 0; n < PACKETS; n++) {
    signals[8 * n] = signals[8 * n + 1] = 1;
    uint64_t *packet = ring + 8 * n;
    packet[0] = 2 | 1 << 8 | 1 << 16 | 64ull << 32 | 1ull << 48;
    packet[1] = 64ull << 32 | 1;
    packet[2] = 1 | 1ull << 32;
    packet[4] = 0x100000 + 64 * n;
    packet[7] = (uintptr_t)(signals + 8 * n);
  }
  for (uint64_t n = 0; n < QUEUES; n++) {
    uint64_t *queue = room(4096), *doorbell = queue + 64;
    queue[0] = 1ull << 32;
    queue[1] = (uintptr_t)ring;
    queue[2] = (uintptr_t)doorbell;
    queue[3] = PACKETS;
    queue[4] = n;
    queue[7] = PACKETS;
    queue[16] = PACKETS / 2;
    queue[17] = 128;
    doorbell[0] = -1;
    doorbell[6] = (uintptr_t)queue;
  }
}

// A Python string of 32-bit characters, of which the first are these.
static uint64_t string(const uint32_t *first, size_t count) {
  uint64_t *at = room(4096 * 2);
  at[1] = NAME;
  at[2] = 4 << 2 | 1 << 5;
  uint32_t *text = (uint32_t *)((uint8_t *)at + 40);
  for (size_t n = 0; n < NAME; n++) text[n] = n < count ? first[n] : 0x10348;
  return (uintptr_t)at;
}

static void python(void) {
  static const uint32_t evil[] = {'e', 'v', 'i', 'l', 0x1b, '[', '2', 'J', 0x202e, 'x', 0x2066, 7, 0x2028, 0x7f, '\n'};
  uint64_t *runtime = _PyRuntime;
  memcpy(runtime, "xdebugpy", 8);
  runtime[1] = 0x030e00f0;
  runtime[5] = 85 * 8;
  runtime[8] = 8, runtime[9] = 16;
  runtime[24] = 0, runtime[26] = 8, runtime[28] = 16;
  runtime[32] = 0, runtime[33] = 8, runtime[34] = 16, runtime[36] = 24;
  runtime[40] = 0, runtime[42] = 8, runtime[43] = 16, runtime[44] = 24, runtime[48] = 32;
  runtime[75] = 16, runtime[76] = 24;
  runtime[78] = 16, runtime[79] = 8, runtime[80] = 24;
  uint64_t *table = room(1 << 19);
  table[2] = 1 << 18;
  uint64_t *code = room(4096);
  code[0] = code[1] = string(evil, sizeof evil / sizeof *evil);
  code[2] = (uintptr_t)table;
  code[3] = 1;
  uint64_t *frames = room(FRAMES * 32);
  for (size_t n = 0; n < FRAMES; n++) {
    uint64_t *frame = frames + 4 * n;
    frame[0] = (uintptr_t)(frames + 4 * ((n + 1) % FRAMES));
    frame[1] = (uintptr_t)code;
    frame[2] = (uintptr_t)code + 32 + 1000000;
  }
  uint64_t *threads = room(THREADS * 24), *interpreter = room(4096);
  for (uint64_t n = 0; n < THREADS; n++) {
    uint64_t *thread = threads + 3 * n;
    thread[0] = (uintptr_t)(threads + 3 * ((n + 1) % THREADS));
    thread[1] = (uintptr_t)frames;
    thread[2] = getpid() + n;
  }
  interpreter[1] = (uintptr_t)interpreter;
  interpreter[2] = (uintptr_t)threads;
  runtime[85] = (uintptr_t)interpreter;
}

__attribute__((constructor)) static void build(void) {
  objects();
  python();
  // One copy has the queues of both.
  if (!getenv("MAZE")) queues();
  setenv("MAZE", "1", 1);
}
