"""Threads that come and go while they use PyTorch, and check their own results: `churn.py SECONDS THREADS [profile] [graphs]`.

Each thread makes a stream, computes, compares, and ends; another takes its place. With "profile", torch.profiler runs for a moment every
four seconds. With "graphs", each thread captures its work as a CUDA graph and replays it. "end" on standard input and the end of SECONDS
end the program. It answers as gpu/kit.py reads it."""

import os
import sys
import threading
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":16:8")

import torch

from control import answer

END = time.monotonic() + float(sys.argv[1])
WIDTH = int(sys.argv[2])
PROFILE = "profile" in sys.argv[3:]
GRAPHS = "graphs" in sys.argv[3:]
ends, wrong, stop = 0, 0, threading.Event()
lock = threading.Lock()
# PyTorch's allocator serves one capture at a time.
capture = threading.Lock()


def replayed(stream, start):
    """Captures 15 additions into one tensor as a graph, replays it twice and returns whether the sum is right."""
    value = torch.zeros_like(start)
    stream.synchronize()
    with capture:
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(capture_error_mode="thread_local")
        for _ in range(15):
            value.add_(start)
        graph.capture_end()
    graph.replay()
    graph.replay()
    right = bool((value == 30).all())
    with capture:
        del graph
    return right


def work(stream=None):
    """Ones times ones: each element is SIDE after a product, and 1 again after the division."""
    global ends, wrong
    side = 128
    stream = stream or torch.cuda.Stream()
    with torch.cuda.stream(stream):
        ones = torch.ones(side, side, device="cuda")
        value = ones
        for _ in range(15):
            value = (value @ ones) / side
        right = bool((value == 1).all()) and (not GRAPHS or replayed(stream, ones))
    with lock:
        ends += 1
        wrong += not right


def keep():
    # PyTorch hands out the same 32 streams by turns, and a stream that captures serves one thread: each keeper has its own.
    stream = torch.cuda.Stream() if GRAPHS else None
    while not stop.is_set() and time.monotonic() < END:
        thread = threading.Thread(target=work, args=[stream])
        thread.start()
        thread.join()


def listen():
    for line in sys.stdin:
        if line.strip() == "end":
            break
    stop.set()


def profile():
    """Returns how many kernels it saw."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        stop.wait(0.3)
    events = profiler.profiler.kineto_results.events()
    return sum(event.device_type() == torch.autograd.DeviceType.CUDA for event in events)


def main():
    work()
    answer(ready=True)
    threading.Thread(target=listen, daemon=True).start()
    keepers = [threading.Thread(target=keep) for _ in range(WIDTH)]
    for keeper in keepers:
        keeper.start()
    profiles, empty = 0, 0
    while PROFILE and not stop.is_set() and time.monotonic() < END:
        profiles += 1
        empty += profile() == 0
        stop.wait(4)
    for keeper in keepers:
        keeper.join()
    counts = {"graphs": ends} if GRAPHS else {}
    answer(ends=ends, wrong=wrong, profiles=profiles, empty=empty, **counts)


main()
