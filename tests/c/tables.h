// Where the live API tables of the HIP and HSA runtimes are, told by the program itself: a test
// reads them there before and after a profiler was attached. Found by the exported functions, which
// jump through the tables (source of the code shapes: the disassembly of AMD's ROCm 7.2 libraries
// as Debian builds them):
//   HSA: endbr64; mov table(%rip),%rax; jmp *offset(%rax)
//   HIP: endbr64; sub; saved arguments; call get_table; restored arguments; mov offset(%rax),%rax; add; jmp *%rax
// On aarch64 there are only the stand-ins (sim/build/tables.rs):
//   HSA: bti c; adrp x16; ldr x16,[x16,#table]; ldr x16,[x16,#offset]; br x16
//   HIP: bti c; saved arguments; bl get_table; ldr x16,[x0,#offset]; restored arguments; br x16
#pragma once
#include "kit.h"
#include <dlfcn.h>

typedef struct {
  void **table;
  unsigned offset;  // in bytes, of the function's own slot
} slot_t;

#ifdef __aarch64__

__attribute__((unused)) static const uint32_t *exported(const char *name) {
  const uint32_t *code = dlsym(RTLD_DEFAULT, name);
  if (!code) fail("%s is not exported", name);
  return *code == 0xd503245f ? code + 1 : code;
}

// Whether it loads 64 bits at an offset from this register.
__attribute__((unused)) static int loads_from(uint32_t code, unsigned base) {
  return (code & 0xffc00000) == 0xf9400000 && (code >> 5 & 31) == base;
}

__attribute__((unused)) static unsigned offset_in(uint32_t load) { return (load >> 10 & 0xfff) * 8; }

// The slot that an exported HSA function jumps through.
__attribute__((unused)) static slot_t hsa_slot(const char *name) {
  const uint32_t *code = exported(name);
  unsigned at = *code & 31;
  if ((*code & 0x9f000000) != 0x90000000 || !loads_from(code[1], at) || !loads_from(code[2], code[1] & 31))
    fail("%s is not the stub that we know", name);
  int64_t pages = (int64_t)((uint64_t)((*code >> 5 & 0x7ffff) << 2 | (*code >> 29 & 3)) << 43) >> 43;
  char *page = (char *)((uintptr_t)code & ~(uintptr_t)4095) + pages * 4096;
  return (slot_t){*(void ***)(page + offset_in(code[1])), offset_in(code[2])};
}

// The slot that an exported HIP function jumps through. Calls the runtime's own getter.
__attribute__((unused)) static slot_t hip_slot(const char *name) {
  const uint32_t *code = exported(name), *end = code + 40;
  while (code < end && *code >> 26 != 0x25) code++;
  if (code == end) fail("%s calls no getter", name);
  int64_t words = (int64_t)((uint64_t)*code << 38) >> 38;
  void **(*get)(void) = (void **(*)(void))(uintptr_t)(code + words);
  for (code++; code < end; code++)
    if (loads_from(*code, 0)) return (slot_t){get(), offset_in(*code)};
  fail("%s does not load a slot", name);
}

#else

__attribute__((unused)) static int32_t displacement_at(const unsigned char *code) {
  int32_t value;
  memcpy(&value, code, sizeof value);
  return value;
}

__attribute__((unused)) static const unsigned char *exported(const char *name) {
  const unsigned char *code = dlsym(RTLD_DEFAULT, name);
  if (!code) fail("%s is not exported", name);
  return memcmp(code, "\xf3\x0f\x1e\xfa", 4) ? code : code + 4;
}

// The slot that an exported HSA function jumps through.
__attribute__((unused)) static slot_t hsa_slot(const char *name) {
  const unsigned char *code = exported(name);
  if (memcmp(code, "\x48\x8b\x05", 3)) fail("%s is not the stub that we know", name);
  void **table = *(void ***)(code + 7 + displacement_at(code + 3));
  code += 7;
  if (code[0] == 0xff && code[1] == 0x60) return (slot_t){table, code[2]};
  if (code[0] == 0xff && code[1] == 0xa0) return (slot_t){table, (unsigned)displacement_at(code + 2)};
  fail("%s does not end as we know", name);
}

// The slot that an exported HIP function jumps through. Calls the runtime's own getter.
__attribute__((unused)) static slot_t hip_slot(const char *name) {
  const unsigned char *code = exported(name), *end = code + 160;
  while (code < end && *code != 0xe8) code++;
  if (code == end) fail("%s calls no getter", name);
  void **(*get)(void) = (void **(*)(void))(code + 5 + displacement_at(code + 1));
  for (code += 5; code < end; code++) {
    if (!memcmp(code, "\x48\x8b\x40", 3)) return (slot_t){get(), code[3]};
    if (!memcmp(code, "\x48\x8b\x80", 3)) return (slot_t){get(), (unsigned)displacement_at(code + 3)};
  }
  fail("%s does not load a slot", name);
}

#endif

// One line per table: "table NAME ADDRESS BYTES", then "tables". An HSA table has its size in the
// second word of 32 bits, a HIP table in the first of 64.
__attribute__((unused)) static void say_tables(void) {
  void **core = hsa_slot("hsa_system_get_info").table, **ext = hsa_slot("hsa_amd_profiling_set_profiler_enabled").table;
  void **hip = hip_slot("hipGetLastError").table, **compiler = hip_slot("__hipPopCallConfiguration").table;
  say("table core %p %u", (void *)core, ((unsigned *)core)[1]);
  say("table amd_ext %p %u", (void *)ext, ((unsigned *)ext)[1]);
  say("table hip %p %lu", (void *)hip, *(unsigned long *)hip);
  say("table compiler %p %lu", (void *)compiler, *(unsigned long *)compiler);
  say("tables");
}
