# launch_modules.py LIBRARY: kernels that are launched by modules, on the stand-in for HIP. Each launch has its module's number as
# grid.x in blocks. Commands: work N, quit. Each answers with its name.
import ctypes
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "modules"))
from torch.nn.modules.module import Module

hip = ctypes.CDLL(sys.argv[1])


class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint32), ("y", ctypes.c_uint32), ("z", ctypes.c_uint32)]


class Wrapper(ctypes.Structure):
    _fields_ = [("magic", ctypes.c_uint32), ("version", ctypes.c_uint32), ("binary", ctypes.c_void_p), ("unused", ctypes.c_void_p)]


wrapper, host = Wrapper(0x48495046, 1, None, None), ctypes.create_string_buffer(8)
getattr(hip, "__hipRegisterFatBinary").restype = ctypes.c_void_p
fat = ctypes.c_void_p(getattr(hip, "__hipRegisterFatBinary")(ctypes.byref(wrapper)))
name, zero = ctypes.c_char_p(b"scale"), ctypes.c_void_p(0)
getattr(hip, "__hipRegisterFunction")(fat, host, name, name, ctypes.c_uint(0xFFFFFFFF), zero, zero, zero, zero, zero)
hip.hipLaunchKernel.argtypes = [ctypes.c_void_p, Dim3, Dim3, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]


def launch(number):
    if hip.hipLaunchKernel(host, Dim3(number, 1, 1), Dim3(64, 1, 1), None, 0, None):
        sys.exit("a kernel is not launched")


class Leaf(Module):
    def __init__(self, number):
        super().__init__()
        self.number = number

    def forward(self):
        launch(self.number)


class Block(Module):
    def __init__(self, number):
        super().__init__()
        # More attributes than CPython shares the names of.
        for at in range(number):
            setattr(self, f"attribute_{at}", at)
        self.attn = Leaf(number + 1)
        self.mlp = Leaf(number + 2)

    def forward(self):
        self.attn()
        self.mlp()


class List(Module):
    def __init__(self, modules):
        super().__init__()
        for at, module in enumerate(modules):
            setattr(self, str(at), module)


class Sequential(List):
    def forward(self):
        for module in self._modules.values():
            module()


class GPT(Module):
    def __init__(self):
        super().__init__()
        self.layers = List([Block(10 * at) for at in range(6)])
        self.head = Sequential([Leaf(91), Leaf(92)])
        self.bias = None
        self._modules["absent"] = None
        self._forward_hooks["hook"] = lambda module: launch(93)

    def forward(self):
        for layer in self.layers._modules.values():
            layer()
        self.head()
        launch(94)


model, alone = GPT(), Leaf(99)


def work():
    model()
    alone()
    launch(100)


work()
hip.hipDeviceSynchronize()
print("ready", flush=True)
for command in sys.stdin:
    word, *rest = command.split()
    if word == "quit":
        print("done", flush=True)
        break
    for _ in range(int(rest[0])):
        work()
    hip.hipDeviceSynchronize()
    print(word, flush=True)
