"""`lines.py`: PyTorch operations at known lines, each with a size of its own, so that each kernel's grid says which line launched it.

  work N    does all of it N times; the sizes of each line, and how many kernels it launches in a round
  end
"""

import asyncio
import sys
import threading

import torch

from control import answer

SIZES = {}
TENSORS = {}
STEP = 1 << 16


def add(times=1):
    """Launches kernels for the line that calls this, with the size that belongs to the line."""
    line = sys._getframe(1).f_lineno
    if line not in TENSORS:
        TENSORS[line] = torch.zeros(STEP * (1 + len(TENSORS)), device="cuda")
        SIZES[line] = 0
    SIZES[line] += times
    for _ in range(times):
        TENSORS[line].add_(1)


class Net(torch.nn.Module):
    def forward(self, depth):
        add()
        if depth:
            self(depth - 1)
        add(2)


def batches():
    for _ in range(3):
        add()
        yield


async def request():
    await asyncio.sleep(0)
    add()


async def serve():
    await asyncio.gather(*[request() for _ in range(4)])


def in_thread():
    for _ in range(5):
        add()


def work():
    Net()(3)
    for _ in batches():
        add()
    asyncio.run(serve())
    with torch.no_grad():
        add(7)
    threads = [threading.Thread(target=in_thread) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    weight = torch.ones(1000, device="cuda", requires_grad=True)
    (weight * 2).sum().backward()


def main():
    work()
    torch.cuda.synchronize()
    answer(ready=True)
    for line in sys.stdin:
        words = line.split()
        if words[0] != "work":
            break
        for known in SIZES:
            SIZES[known] = 0
        for _ in range(int(words[1])):
            work()
        torch.cuda.synchronize()
        answer(lines={line: [tensor.numel(), SIZES[line]] for line, tensor in TENSORS.items()})


main()
