# cuda_graph_lines.py LIBRARY [CODE]: kernels of CUDA graphs that are captured at known lines of Python code. CODE is
# a module with the kernel `scale`; without it LIBRARY is the stand-in's runtime, else the driver. Each kernel has as grid.x the line at
# which its time belongs, and as grid.y how it belongs there: 1 captured or launched there, 2 its graph was captured
# before "ready" and is launched there. Commands: work N, quit. Each answers with its name.
import ctypes
import sys
import threading

cuda = ctypes.CDLL(sys.argv[1])
for number, text in enumerate(open(__file__), 1):
    if text.rstrip().endswith("# BEFORE"):
        BEFORE = number


def check(error, name="a launch"):
    if error:
        sys.exit(f"{name}: {error}")


def call(name, *arguments):
    check(getattr(cuda, name)(*arguments), name)


def made(name, *arguments):
    handle = ctypes.c_void_p()
    call(name, ctypes.byref(handle), *arguments)
    return handle


call("cuInit", 0)
context = made("cuDevicePrimaryCtxRetain", 0)
call("cuCtxSetCurrent", context)
code = open(sys.argv[2], "rb").read() if len(sys.argv) > 2 else b""
module = made("cuModuleLoadData", code + b"\0")
function = made("cuModuleGetFunction", module, b"_Z5scalePffi")
arguments = None
if code:
    buffer = made("cuMemAlloc_v2", ctypes.c_size_t(4096))
    values = [buffer, ctypes.c_float(2), ctypes.c_int(16)]
    arguments = (ctypes.c_void_p * 3)(*[ctypes.addressof(value) for value in values])


def launch(stream, how=1, line=None):
    line = line or sys._getframe(1).f_lineno
    check(cuda.cuLaunchKernel(function, line, how, 1, 64, 1, 1, 0, stream, arguments, None))


def replay(graph, stream):
    check(cuda.cuGraphLaunch(graph, stream))


def end(stream):
    graph = ctypes.c_void_p()
    call("cuStreamEndCapture", stream, ctypes.byref(graph))
    return graph


def captured(build, stream):
    call("cuStreamBeginCapture_v2", stream, 2)
    build(stream)
    graph = end(stream)
    ready = made("cuGraphInstantiateWithFlags", graph, ctypes.c_ulonglong(0))
    call("cuGraphDestroy", graph)
    return ready


def layers(stream):
    launch(stream)
    for _ in range(3):
        launch(stream)
    launch(stream); launch(stream)


def others(stream):
    launch(stream)
    launch(stream)


def early(stream):
    for _ in range(4):
        launch(stream, 2, BEFORE)


def in_thread(build, stream, into):
    call("cuCtxSetCurrent", context)
    into.append(captured(build, stream))


def work(stream):
    first = captured(layers, stream)
    second = captured(others, stream)
    replay(first, stream)
    for graph in (second, first):
        replay(graph, stream)
    replay(before, stream)  # BEFORE
    launch(stream)
    into = []
    thread = threading.Thread(target=in_thread, args=(layers, stream, into))
    thread.start()
    thread.join()
    replay(into[0], stream)
    # One graph, twice executable.
    call("cuStreamBeginCapture_v2", stream, 2)
    launch(stream)
    graph = end(stream)
    twice = [made("cuGraphInstantiateWithFlags", graph, ctypes.c_ulonglong(0)) for _ in range(2)]
    for ready in twice:
        replay(ready, stream)
    call("cuStreamSynchronize", stream)
    for ready in [first, second, into[0], *twice]:
        call("cuGraphExecDestroy", ready)
    call("cuGraphDestroy", graph)


stream = made("cuStreamCreate", 0)
before = captured(early, stream)
replay(before, stream)
call("cuStreamSynchronize", stream)
print("ready", flush=True)
for command in sys.stdin:
    word, *rest = command.split()
    if word == "quit":
        print("done", flush=True)
        break
    for _ in range(int(rest[0])):
        work(stream)
    call("cuCtxSynchronize")
    print(word, flush=True)
