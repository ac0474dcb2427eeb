# graph_lines.py HIP CODE: kernels of graphs that are captured at known lines of Python code. CODE is a code object
# with the kernel `scale`. Each kernel has as grid.x 64 times the line at which its time belongs, and as grid.y how
# it belongs there: 1 captured there, 2 its graph was captured before "ready" and is launched there, 3 its graph is
# launched there, and which of its kernels is which cannot be known, 4 captured at the line that ORDER has at its
# place among such kernels of its launch, 5 added at the line that CHAIN has there. Commands: work N, quit. `work`
# answers with its name, ORDER, 0 and CHAIN.
import ctypes
import sys
import threading

hip = ctypes.CDLL(sys.argv[1])
LINES = {}
for number, text in enumerate(open(__file__), 1):
    for mark in ("BEFORE", "UNCLEAR", "FORKED"):
        if text.rstrip().endswith("# " + mark):
            LINES[mark] = number
ORDER, CHAIN = [], []


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


class Config(ctypes.Structure):
    _fields_ = [("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
                ("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p), ("count", ctypes.c_uint)]


def launch_by_config(stream, how=1, line=None):
    line = line or sys._getframe(1).f_lineno
    config = Config((line, how, 1), (64, 1, 1), 0, stream.value)
    check(hip.hipLaunchKernelExC(ctypes.byref(config), host_function, arguments))


class FatBinary(ctypes.Structure):
    _fields_ = [("magic", ctypes.c_uint), ("version", ctypes.c_uint), ("binary", ctypes.c_void_p),
                ("unused", ctypes.c_void_p)]


# What a compiler writes for a kernel in a program: hipLaunchKernelExC takes the address of its stand-in.
code = ctypes.create_string_buffer(open(sys.argv[2], "rb").read())
fat_binary = FatBinary(0x48495046, 1, ctypes.addressof(code), None)
host_function = ctypes.c_void_p(ctypes.addressof(ctypes.create_string_buffer(8)))
register = getattr(hip, "__hipRegisterFatBinary")
register.restype = ctypes.c_void_p
registered = ctypes.c_void_p(register(ctypes.byref(fat_binary)))
getattr(hip, "__hipRegisterFunction")(registered, host_function, b"_Z5scalePffi", b"_Z5scalePffi",
                                      ctypes.c_uint(0xFFFFFFFF), None, None, None, None, None)


class NodeParameters(ctypes.Structure):
    _fields_ = [("block", ctypes.c_uint * 3), ("extra", ctypes.c_void_p), ("function", ctypes.c_void_p),
                ("grid", ctypes.c_uint * 3), ("parameters", ctypes.c_void_p), ("shared", ctypes.c_uint)]


def parameters_of(line, how):
    return NodeParameters((64, 1, 1), None, function.value, (line, how, 1), ctypes.addressof(arguments))


def launch_node(graph, after, how=1, line=None):
    """Adds a kernel node, which is launched with its graph."""
    line = line or sys._getframe(1).f_lineno
    nodes = (ctypes.c_void_p * max(1, len(after)))(*after)
    node = ctypes.c_void_p()
    parameters = parameters_of(line, how)
    check(hip.hipGraphAddKernelNode(ctypes.byref(node), graph, nodes, ctypes.c_size_t(len(after)),
                                    ctypes.byref(parameters)))
    return node.value


def same_node(graph, after):
    CHAIN.append(sys._getframe(1).f_lineno)
    return launch_node(graph, after, 5, 1)


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


class AnyParameters(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("reserved", ctypes.c_int * 3), ("kernel", NodeParameters),
                ("more", ctypes.c_byte * (240 - ctypes.sizeof(NodeParameters)))]


def launch_any_node(graph, after):
    nodes = (ctypes.c_void_p * 1)(after)
    node = ctypes.c_void_p()
    parameters = AnyParameters(0, (0, 0, 0), parameters_of(sys._getframe(1).f_lineno, 1))
    check(hip.hipGraphAddNode(ctypes.byref(node), graph, nodes, ctypes.c_size_t(1), ctypes.byref(parameters)))


def child(stream):
    launch(stream)
    launch_by_config(stream)
    launch_by_config(stream)


def added(stream):
    """Replays graphs of nodes that were not captured, and a graph in one."""
    CHAIN.clear()
    graph, inner = made("hipGraphCreate", 0), ctypes.c_void_p()
    nodes = [same_node(graph, [])]
    nodes.append(same_node(graph, [nodes[-1]]))
    copied = ctypes.c_void_p()
    call("hipGraphAddMemcpyNode1D", ctypes.byref(copied), graph, (ctypes.c_void_p * 1)(nodes[-1]),
         ctypes.c_size_t(1), buffer, other, ctypes.c_size_t(64), 3)
    nodes.append(launch_node(graph, [copied.value, nodes[-1]]))
    for _ in range(2):
        nodes.append(same_node(graph, [nodes[-1]]))
    launch_any_node(graph, nodes[-1])
    begin(stream)
    child(stream)
    part = end(stream)
    call("hipGraphAddChildGraphNode", ctypes.byref(inner), graph, (ctypes.c_void_p * 1)(nodes[-1]),
         ctypes.c_size_t(1), part)
    ready = instantiated(graph)
    # The executable graph has neither this node nor the order of the next one's nodes.
    launch_node(graph, [])
    replay(ready, stream)
    parameters = NodeParameters((64, 1, 1), None, function.value, (1, 5, 1), ctypes.addressof(arguments))
    call("hipGraphExecKernelNodeSetParams", ready, ctypes.c_void_p(nodes[0]), ctypes.byref(parameters))
    replay(ready, stream)
    forks = made("hipGraphCreate", 0)
    launch_node(forks, [], 3, LINES["FORKED"])
    launch_node(forks, [], 3, LINES["FORKED"])
    launch_node(forks, [])
    forked = instantiated(forks)
    replay(forked, stream)  # FORKED
    call("hipStreamSynchronize", stream)
    for gone in (ready, forked):
        call("hipGraphExecDestroy", gone)
    for gone in (graph, part, forks):
        call("hipGraphDestroy", gone)


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
    added(stream)
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
    print(word, *ORDER, 0, *CHAIN, flush=True)
