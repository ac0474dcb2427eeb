# launch_lines.py LIBRARY [CODE]: kernels that are launched at known lines of Python code.
#
# LIBRARY is HIP, the stand-in's CUDA runtime, or CUDA's driver. With CODE, a code object, its kernel
# `scale` is launched; without, a kernel of the stand-in runtimes is. Each launch has 64 times its
# line as grid.x, and as grid.y the number of the thread that makes it, from 1. Commands: work N, quit. Each answers with its name.
import asyncio
import ctypes
import sys
import threading

hip = ctypes.CDLL(sys.argv[1])
prefix = "cuda" if "cudart" in sys.argv[1] else "hip"
is_driver = "libcuda.so" in sys.argv[1]
synchronize = hip.cuCtxSynchronize if is_driver else getattr(hip, prefix + "DeviceSynchronize")


class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint32), ("y", ctypes.c_uint32), ("z", ctypes.c_uint32)]


if is_driver:
    context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    assert hip.cuInit(0) == 0
    assert hip.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert hip.cuCtxSetCurrent(context) == 0
    assert hip.cuModuleLoad(ctypes.byref(module), sys.argv[2].encode()) == 0
    assert hip.cuModuleGetFunction(ctypes.byref(function), module, b"_Z5scalePffi") == 0
    buffer = ctypes.c_void_p()
    assert hip.cuMemAlloc_v2(ctypes.byref(buffer), ctypes.c_size_t(4096)) == 0
    values = [buffer, ctypes.c_float(2), ctypes.c_int(16)]
    arguments = (ctypes.c_void_p * 3)(*[ctypes.addressof(value) for value in values])

    def start(line, thread):
        # A context is each thread's own.
        hip.cuCtxSetCurrent(context)
        return hip.cuLaunchKernel(function, line, thread, 1, 64, 1, 1, 0, None, arguments, None)
elif len(sys.argv) > 2:
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    assert hip.hipModuleLoad(ctypes.byref(module), sys.argv[2].encode()) == 0
    assert hip.hipModuleGetFunction(ctypes.byref(function), module, b"_Z5scalePffi") == 0
    buffer = ctypes.c_void_p()
    assert hip.hipMalloc(ctypes.byref(buffer), ctypes.c_size_t(4096)) == 0
    values = [buffer, ctypes.c_float(2), ctypes.c_int(16)]
    arguments = (ctypes.c_void_p * 3)(*[ctypes.addressof(value) for value in values])

    def start(line, thread):
        return hip.hipModuleLaunchKernel(function, line, thread, 1, 64, 1, 1, 0, None, arguments, None)
else:
    class Wrapper(ctypes.Structure):
        _fields_ = [
            ("magic", ctypes.c_uint32),
            ("version", ctypes.c_uint32),
            ("binary", ctypes.c_void_p),
            ("unused", ctypes.c_void_p),
        ]

    wrapper, host = Wrapper(0x48495046, 1, None, None), ctypes.create_string_buffer(8)
    register = getattr(hip, f"__{prefix}RegisterFatBinary")
    register.restype = ctypes.c_void_p
    fat = ctypes.c_void_p(register(ctypes.byref(wrapper)))
    name = ctypes.c_char_p(b"scale")
    zero = ctypes.c_void_p(0)
    getattr(hip, f"__{prefix}RegisterFunction")(
        fat, host, name, name, ctypes.c_uint(0xFFFFFFFF), zero, zero, zero, zero, zero
    )
    kernel = getattr(hip, prefix + "LaunchKernel")
    kernel.argtypes = [
        ctypes.c_void_p, Dim3, Dim3, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p
    ]

    def start(line, thread):
        return kernel(host, Dim3(line, thread, 1), Dim3(64, 1, 1), None, 0, None)


def launch(thread=1):
    line = sys._getframe(1).f_lineno
    if start(line, thread):
        sys.exit("a kernel is not launched")


class Net:
    def forward(self, depth):
        launch()
        if depth:
            self.forward(depth - 1)

    def backward(self):
        launch()
        launch(); launch()
        return [launch() for _ in range(3)]


def batches():
    for _ in range(2):
        launch()
        yield


async def request():
    await asyncio.sleep(0)
    launch()


async def serve():
    await asyncio.gather(*[request() for _ in range(4)])


def in_thread(number):
    for _ in range(5):
        launch(number)


def work():
    net = Net()
    net.forward(3)
    net.backward()
    for _ in batches():
        launch()
    asyncio.run(serve())
    eval(compile("launch()", "été.py", "eval"))
    threads = [threading.Thread(target=in_thread, args=(2 + at,)) for at in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


work()
synchronize()
print("ready", flush=True)
for command in sys.stdin:
    word, *rest = command.split()
    if word == "quit":
        print("done", flush=True)
        break
    for _ in range(int(rest[0])):
        work()
    synchronize()
    print(word, flush=True)
