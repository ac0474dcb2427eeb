// launch_functions [CODE]: kernels that are launched by known functions. With CODE, a code object, its kernel `scale` is launched on
// AMD's runtimes; without, a kernel of the stand-in. The functions have the names that a C++ compiler would give them. Each launch has
// its function's number as grid.x in blocks, and the thread's number as grid.y, from 1. Commands:
//   work N        each function launches, N times
//   steps N       the same in the first thread alone
//   corrupt N     the same through code without unwind tables that has garbage in its frame pointer
//   open FILE     opens a library, whose function `launch_by` launches
//   call          calls that function
//   close         closes the library
//   library FILE  all three
//   context N     N launches on a stack that the program has made itself
//   small N       N launches in a loop; answers with the nanoseconds of one as well
//   quit
// Each answers with its name when it is done.
#ifdef __HIP_PLATFORM_AMD__
#include "hip_kit.h"
#else
#include "hip.h"
#include "kit.h"
#endif
#include <alloca.h>
#include <dlfcn.h>
#include <time.h>
#include <ucontext.h>

#define NAME(symbol) __asm__(symbol) __attribute__((noinline, noipa))

enum { FIRST = 1, RECURSIVE, TEMPLATE, ALIGNED, BARE, THREAD, DEEP, CORRUPT, LIBRARY, OTHER_LIBRARY, OWN_STACK, THREADS = 3 };

#ifdef __HIP_PLATFORM_AMD__
static kernels_t kernels;
static work_t objects;

static void load(const char *code) {
  kernels = load_kernels(code);
  objects = new_work();
}

static inline __attribute__((always_inline)) int launch(unsigned number, unsigned thread) {
  int n = ELEMENTS;
  float factor = 2;
  void *arguments[] = {&objects.c, &factor, &n};
  return hipModuleLaunchKernel(kernels.scale, number, thread, 1, 64, 1, 1, 0, NULL, arguments, NULL);
}
#else
KERNEL(scale, "scale")

static void load(const char *code) { (void)code; }

static inline __attribute__((always_inline)) int launch(unsigned number, unsigned thread) {
  return hipLaunchKernel((const void *)scale, (dim3){number, thread, 1}, (dim3){64, 1, 1}, NULL, 0, NULL);
}
#endif

static void launched(int error) {
  if (error) fail("a kernel is not launched: %d", error);
}

// Nothing is left to do after the launch in these, and they return what it says: no call is a jump.
int first(unsigned thread) NAME("_ZN3app5firstEj");
int first(unsigned thread) {
  int error = launch(FIRST, thread);
  launched(error);
  return error + 1;
}

int forward(unsigned thread, int depth) NAME("_ZN3app3Net7forwardEji");
int forward(unsigned thread, int depth) {
  int error = depth ? forward(thread, depth - 1) : launch(RECURSIVE, thread);
  return error + 1;
}

int layer(unsigned thread) NAME("_ZN3app5LayerILi7EE3runEj");
int layer(unsigned thread) {
  int error = 0;
  for (int round = 0; round < 3; round++) error += launch(TEMPLATE, thread);
  launched(error);
  return error + 1;
}

// A stack pointer that only the frame pointer, or a copy of it, leads out of.
int aligned(unsigned thread, size_t bytes) NAME("_ZN3app7alignedEjm");
int aligned(unsigned thread, size_t bytes) {
  char block[64] __attribute__((aligned(64)));
  char *more = alloca(bytes);
  memset(more, 1, bytes);
  block[0] = more[bytes / 2];
  __asm__ volatile("" : : "r"(block), "r"(more) : "memory");
  int error = launch(ALIGNED, thread);
  launched(error);
  return error + block[0];
}

int bare(unsigned thread) NAME("_ZN3app4bareEj");
int bare(unsigned thread) {
  int error = launch(BARE, thread);
  launched(error);
  return error + 1;
}

int corrupt(unsigned thread) NAME("_ZN3app7corruptEj");
int corrupt(unsigned thread) {
  int error = launch(CORRUPT, thread);
  launched(error);
  return error + 1;
}

// Deeper than what is kept of a stack.
int deep(unsigned thread, int depth) NAME("_ZN3app4deepEji");
int deep(unsigned thread, int depth) {
  if (depth) return deep(thread, depth - 1) + 1;
  int error = launch(DEEP, thread);
  launched(error);
  return error + 1;
}

// Calls without unwind tables: one keeps a frame pointer, the other has garbage in its register.
#ifdef __x86_64__
__asm__(
    ".text\n.type with_frame, @function\nwith_frame:\n"
    "push %rbp\nmov %rsp, %rbp\nmov %rdi, %rax\nmov %rsi, %rdi\ncall *%rax\npop %rbp\nret\n.size with_frame, . - with_frame\n"
    ".type with_garbage, @function\nwith_garbage:\n"
    "push %rbp\nmov %rdi, %rax\nmov %rsi, %rdi\nmov %rdx, %rbp\ncall *%rax\npop %rbp\nret\n.size with_garbage, . - with_garbage\n");
int with_frame(int (*function)(unsigned), unsigned long thread);
int with_garbage(int (*function)(unsigned), unsigned long thread, unsigned long garbage);
#else
static int with_frame(int (*function)(unsigned), unsigned long thread) { return function((unsigned)thread); }
static int with_garbage(int (*function)(unsigned), unsigned long thread, unsigned long garbage) {
  return function((unsigned)(thread + 0 * garbage));
}
#endif

int work(unsigned thread) NAME("_ZN3app4workEj");
int work(unsigned thread) {
  int sum = first(thread) + first(thread);
  sum += forward(thread, 4);
  sum += layer(thread);
  sum += aligned(thread, 200 + 16 * thread);
  sum += with_frame(bare, thread);
  return sum + deep(thread, 200);
}

int in_thread(unsigned thread) NAME("_ZN3app9in_threadEj");
int in_thread(unsigned thread) {
  int error = 0;
  for (int round = 0; round < 5; round++) error += launch(THREAD, thread);
  launched(error);
  return error + work(thread);
}

static void *body(void *number) {
  return (void *)(intptr_t)in_thread((unsigned)(uintptr_t)number);
}

static void round_of_all(void) {
  pthread_t threads[THREADS];
  for (unsigned at = 0; at < THREADS; at++) threads[at] = start_thread(body, (void *)(uintptr_t)(at + 2));
  work(1);
  for (unsigned at = 0; at < THREADS; at++) pthread_join(threads[at], NULL);
}

static void corrupted(unsigned long rounds) {
  unsigned long here = (unsigned long)__builtin_frame_address(0);
  for (unsigned long round = 0; round < rounds; round++) {
    unsigned long garbage[] = {0, 8, here + 24, here - 4096, here & ~0xffful, ~0ul, 0x800000000000ul + round, (unsigned long)corrupted, here + 3};
    with_garbage(corrupt, 1, garbage[round % (sizeof garbage / sizeof *garbage)]);
  }
}

static ucontext_t before, inside;
static unsigned long switches;

static void on_own_stack(void) {
  for (;;) {
    for (unsigned long at = 0; at < switches; at++) launched(launch(OWN_STACK, 1));
    swapcontext(&inside, &before);
  }
}

static void by_context(unsigned long rounds) {
  static char stack[256 << 10] __attribute__((aligned(16)));
  switches = rounds;
  if (!inside.uc_stack.ss_sp) {
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = sizeof stack;
    makecontext(&inside, on_own_stack, 0);
  }
  swapcontext(&before, &inside);
}

// For the library: it launches by this program's function, so that it needs no runtime of its own.
int launch_number(unsigned number, unsigned thread);
int launch_number(unsigned number, unsigned thread) { return launch(number, thread); }

static void *library;

static void open_library(const char *file) {
  library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!library) fail("%s", dlerror());
}

static void call_library(void) {
  int (*launch_by)(int (*)(unsigned, unsigned)) = (int (*)(int (*)(unsigned, unsigned)))dlsym(library, "launch_by");
  if (!launch_by) fail("%s", dlerror());
  if (launch_by(launch_number) != 1) fail("the library has not launched");
}

int main(int words, char **word) {
  load(words > 1 ? word[1] : NULL);
  round_of_all();
  if (hipDeviceSynchronize()) fail("no end of the kernels");
  say("ready");
  char line[512];
  while (hear(line, sizeof line)) {
    char *space = strchr(line, ' ');
    if (space) *space = 0;
    const char *argument = space ? space + 1 : "";
    unsigned long rounds = strtoul(argument, NULL, 10);
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    if (!strcmp(line, "work")) {
      for (unsigned long round = 0; round < rounds; round++) round_of_all();
    } else if (!strcmp(line, "steps")) {
      for (unsigned long round = 0; round < rounds; round++) work(1);
    } else if (!strcmp(line, "corrupt")) {
      corrupted(rounds);
    } else if (!strcmp(line, "context")) {
      by_context(rounds);
    } else if (!strcmp(line, "open")) {
      open_library(argument);
    } else if (!strcmp(line, "call")) {
      call_library();
    } else if (!strcmp(line, "close")) {
      dlclose(library);
    } else if (!strcmp(line, "library")) {
      open_library(argument);
      call_library();
      dlclose(library);
    } else if (!strcmp(line, "small")) {
      for (unsigned long round = 0; round < rounds; round++) launched(launch(FIRST, 1));
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    if (hipDeviceSynchronize()) fail("no end of the kernels");
    if (!strcmp(line, "small")) {
      say("small %.0f", ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / (double)rounds);
      continue;
    }
    say("%s", line);
    if (!strcmp(line, "quit")) return 0;
  }
  return 1;
}
