# graph_lines.py HIP CODE: kernels of graphs that are captured at known lines of Python code. CODE is a code object
# with the kernel `scale`. Each kernel has as grid.x 64 times the line at which its time belongs, and as grid.y how
# it belongs there: 1 captured there, 2 its graph was captured before "ready" and is launched there, 3 its graph is
# launched there, and which of its kernels is which cannot be known, 4 captured at the line that ORDER has at its
# place among such kernels of its launch. Commands: work N, quit. `work` answers with its name and ORDER.
import ctypes
import sys
import threading

hip = ctypes.CDLL(sys.argv[1])
LINES = {}
for number, text in enumerate(open(__file__), 1):
    for mark in ("BEFORE", "UNCLEAR"):
        if text.rstrip().endswith("# " + mark):
            LINES[mark] = number
ORDER = []


def check(error, name="a launch"):
    if error:
        sys.exit(f"{name}: {error}")


def call(name, *arguments):
    check(getattr(hip, name)(*arguments), name)


def made(name, *arguments):
    handle = ctypes.c_void_p()
    call(name, ctypes.byref(handle), *arguments)
    return handle


module, function = ctypes.c_void_p(), ctypes.c_void_p()
call("hipModuleLoad", ctypes.byref(module), sys.argv[2].encode())
call("hipModuleGetFunction", ctypes.byref(function), module, b"_Z5scalePffi")
buffer, other = (made("hipMalloc", ctypes.c_size_t(4096)) for _ in range(2))
values = [buffer, ctypes.c_float(2), ctypes.c_int(16)]
arguments = (ctypes.c_void_p * 3)(*[ctypes.addressof(value) for value in values])


def launch(stream, how=1, line=None):
    line = line or sys._getframe(1).f_lineno
    check(hip.hipModuleLaunchKernel(function, line, how, 1, 64, 1, 1, 0, stream, arguments, None))


def replay(graph, stream):
    check(hip.hipGraphLaunch(graph, stream))


def same(stream):
    ORDER.append(sys._getframe(1).f_lineno)
    launch(stream, 4, 1)


def begin(stream):
    call("hipStreamBeginCapture", stream, 2)


def end(stream):
    graph = ctypes.c_void_p()
    call("hipStreamEndCapture", stream, ctypes.byref(graph))
    return graph


def instantiated(graph):
    return made("hipGraphInstantiate", graph, None, None, ctypes.c_size_t(0))


def captured(build, stream):
    begin(stream)
    build(stream)
    graph = end(stream)
    ready = instantiated(graph)
    call("hipGraphDestroy", graph)
    return ready


def layers(stream):
    launch(stream)
    for _ in range(3):
        launch(stream)
    launch(stream); launch(stream)


def others(stream):
    launch(stream)
    call("hipMemcpyAsync", buffer, other, ctypes.c_size_t(4096), 3, stream)
    launch(stream)


def alike(stream):
    ORDER.clear()
    same(stream)
    same(stream)
    for _ in range(2):
        same(stream)
        launch(stream)
    same(stream)


def early(stream):
    for _ in range(4):
        launch(stream, 2, LINES["BEFORE"])


side = made("hipStreamCreate")
forked, joined = made("hipEventCreate"), made("hipEventCreate")


def branches(stream):
    launch(stream)
    call("hipEventRecord", forked, stream)
    call("hipStreamWaitEvent", side, forked, 0)
    for _ in range(2):
        launch(stream)
        launch(side)
    for branch in (stream, side):
        launch(branch)
    launch(stream, 3, LINES["UNCLEAR"])
    launch(side, 3, LINES["UNCLEAR"])
    call("hipEventRecord", joined, side)
    call("hipStreamWaitEvent", stream, joined, 0)
    launch(stream)


def in_thread(build, stream, into):
    into.append(captured(build, stream))


def work(stream):
    first = captured(layers, stream)
    second = captured(others, stream)
    replay(first, stream)
    for graph in (second, first):
        replay(graph, stream)
    replay(first, stream)
    # Its handle may be the next one's.
    call("hipStreamSynchronize", stream)
    call("hipGraphExecDestroy", first)
    ordered = captured(alike, stream)
    replay(ordered, stream)
    replay(ordered, stream)
    replay(before, stream)  # BEFORE
    launch(stream)
    forking = captured(branches, stream)
    for _ in range(2):
        replay(forking, stream)  # UNCLEAR
    into = []
    thread = threading.Thread(target=in_thread, args=(layers, stream, into))
    thread.start()
    thread.join()
    replay(into[0], stream)
    # One graph, twice executable, the second time with a copy of it.
    begin(stream)
    launch(stream)
    graph = end(stream)
    copy = made("hipGraphClone", graph)
    twice = [instantiated(graph), instantiated(copy)]
    for ready in twice:
        replay(ready, stream)
    call("hipStreamSynchronize", stream)
    for ready in [second, ordered, forking, into[0], *twice]:
        call("hipGraphExecDestroy", ready)
    for unready in (graph, copy):
        call("hipGraphDestroy", unready)


stream = made("hipStreamCreate")
before = captured(early, stream)
replay(before, stream)
call("hipStreamSynchronize", stream)
print("ready", flush=True)
for command in sys.stdin:
    word, *rest = command.split()
    if word == "quit":
        print("done", flush=True)
        break
    for _ in range(int(rest[0])):
        work(stream)
    call("hipDeviceSynchronize")
    print(word, *ORDER, flush=True)
