// A part of libregshim.so. ROCr 7.2 in its model mode opens the driver with a count of nodes that it
// never sets: hsaKmtOpenKFD reads the field from its stack, where the low half of some older pointer
// lies. It then clears that many bytes, 2 GiB on average and up to 4 GiB, and maps eight times as
// many: seconds of CPU time at each start of a program, forks that are refused, and a machine that
// runs out of memory when some programs start together. Here the stack below that call is filled
// first, so that the count is one that a machine can have. The hook is operator new, by which ROCr
// makes the object of its driver (64 bytes) immediately before.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

static const size_t DRIVER = 64;
// More than the two of the modelled machine.
static const uint64_t NODES = 64;

// More than the frames of the calls that follow.
static __attribute__((noinline)) void fill_stack() {
  volatile uint64_t area[512];
  for (size_t i = 0; i < sizeof area / sizeof *area; i++) area[i] = NODES;
}

__attribute__((visibility("default"))) void *operator new(std::size_t bytes) {
  if (bytes == DRIVER) fill_stack();
  void *block = std::malloc(bytes ? bytes : 1);
  if (!block) throw std::bad_alloc();
  return block;
}
