// A library with functions that have the names of PyTorch's: `launch_by` runs the backward node of a matrix product, which calls the
// operator, and the operator launches a kernel by a function of the program, through the dispatcher.
typedef int launch_t(unsigned, unsigned);

#define FUNCTION(name, symbol, next)                                            \
  int name(launch_t *launch) __asm__(symbol) __attribute__((noinline, noipa)); \
  int name(launch_t *launch) {                                                  \
    int result = next;                                                          \
    __asm__ volatile("" : "+r"(result));                                        \
    return result;                                                              \
  }

FUNCTION(kernel, "_ZN2at6native7mm_cudaERKNS_6TensorES3_", launch(11, 1) + 1)
FUNCTION(redispatch, "_ZN2at4_ops2mm10redispatchEN3c1014DispatchKeySetERKNS_6TensorES6_", kernel(launch))
FUNCTION(dispatcher, "_ZN3c1010Dispatcher4callEv", redispatch(launch))
FUNCTION(call, "_ZN2at4_ops2mm4callERKNS_6TensorES4_", dispatcher(launch))
FUNCTION(node, "_ZN5torch8autograd9generated11MmBackward05applyEOSt6vectorIN2at6TensorESaIS4_EE", call(launch))
FUNCTION(launch_by, "launch_by", node(launch))
