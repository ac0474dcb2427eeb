"""Kernels that Triton compiles for this GPU, launched by its own driver, under its profiler Proton.

Triton asks PyTorch for the device, the stream and memory; here HIP is asked. Nothing else of Triton
or Proton is changed. A modelled GPU runs no instructions: what the kernels compute is not looked at.

Commands: "start PATH" begins a session of Proton's, which "finalize" writes to PATH.hatchet;
"round N" launches `add` N times and `scale` 2 N times and waits for them; "quit" says "done". Each is
answered by its first word.
"""

import ctypes
import sys

import triton
import triton.language as tl
import triton.profiler as proton
from triton.backends.amd.driver import HIPDriver, HIPLauncher, HIPUtils

hip = ctypes.CDLL("libamdhip64.so.7", mode=ctypes.RTLD_GLOBAL)
BLOCK = 256


class Driver(HIPDriver):
    def __init__(self):
        self.utils = HIPUtils()
        self.launcher_cls = HIPLauncher
        self.get_current_device = lambda: 0
        self.set_current_device = lambda device: None
        self.get_current_stream = lambda device: 0


class Array:
    dtype = tl.float32

    def __init__(self, elements):
        pointer = ctypes.c_void_p()
        status = hip.hipMalloc(ctypes.byref(pointer), ctypes.c_size_t(4 * elements))
        assert status == 0, f"hipMalloc: {status}"
        self.pointer = pointer.value

    def data_ptr(self):
        return self.pointer


@triton.jit
def add(x, y, out, count, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < count
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def scale(x, factor, count, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < count
    tl.store(x + at, tl.load(x + at, mask=inside) * factor, mask=inside)


def say(line):
    print(line, flush=True)


triton.runtime.driver.set_active(Driver())
x, y, out = Array(1024), Array(1024), Array(1024)
say(f"ready {triton.runtime.driver.active.get_current_target().arch}")
for line in sys.stdin:
    command, *words = line.split()
    if command == "quit":
        break
    if command == "start":
        proton.start(words[0], backend="rocprofiler", hook="triton")
    elif command == "round":
        for _ in range(int(words[0])):
            with proton.scope("step"):
                # 4 groups of 4 warps, and 3 of 2.
                add[(4,)](x, y, out, 1024, block=BLOCK)
                scale[(3,)](x, 2.0, 768, block=BLOCK, num_warps=2)
                scale[(3,)](y, 2.0, 768, block=BLOCK, num_warps=2)
        status = hip.hipDeviceSynchronize()
        assert status == 0, f"hipDeviceSynchronize: {status}"
    elif command == "finalize":
        proton.finalize()
    else:
        raise ValueError(command)
    say(command)
say("done")
