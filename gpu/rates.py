"""`rates.py [PROCESSOR]`: loops whose speed is measured: `small` (launches of small kernels: the processor is the limit), `gpt` (a GPT-2 of twelve layers, module by module) and `big` (matrix products: the GPU is).

  rate SECONDS small|gpt|big    does so for so long; iterations per second
  raw COMMANDS              CUPTI alone (raw.c, which the variable RAW_LIBRARY names): what it answers
  on cuda|both, off         torch.profiler, for CUDA alone or for CPU and CUDA, on and off
  end
"""

import ctypes
import os
import sys
import time

import torch
from torch.profiler import ProfilerActivity, profile

from control import answer


class Block(torch.nn.Module):
    """A layer of a GPT-2 of 256 channels."""

    def __init__(self):
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(256) for _ in range(2))
        self.into, self.out = torch.nn.Linear(256, 768), torch.nn.Linear(256, 256)
        self.wide, self.narrow = torch.nn.Linear(256, 1024), torch.nn.Linear(1024, 256)

    def attend(self, x):
        query, key, value = (part.view(*x.shape[:2], 4, 64).transpose(1, 2) for part in self.into(x).chunk(3, -1))
        mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(x.shape))

    def forward(self, x):
        x = x + self.attend(self.norms[0](x))
        return x + self.narrow(torch.nn.functional.gelu(self.wide(self.norms[1](x))))


def main():
    model = torch.nn.Sequential(*[Block() for _ in range(12)]).cuda().eval()
    tokens = torch.randn(1, 32, 256, device="cuda")
    small = torch.ones(1000, device="cuda")
    left = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    right = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)

    def of_small():
        for _ in range(200):
            small.add_(1)
        return 200

    def of_big():
        product = left
        for _ in range(10):
            product = torch.mm(product, right) * 0.01
        return 10

    def of_gpt():
        with torch.no_grad():
            model(tokens)
        return 1

    for _ in range(3):
        of_small()
        of_gpt()
        of_big()
    torch.cuda.synchronize()
    # This thread alone: the helpers of CUDA and PyTorch run where they like.
    if len(sys.argv) > 1:
        os.sched_setaffinity(0, {int(sys.argv[1])})
    loops, running = {"small": of_small, "gpt": of_gpt, "big": of_big}, None
    answer(ready=True)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "rate":
            length, loop, count = float(words[1]), loops[words[2]], 0
            begin = time.perf_counter()
            while True:
                count += loop()
                torch.cuda.synchronize()
                took = time.perf_counter() - begin
                if took >= length:
                    break
            answer(rate=count / took)
        elif words[0] == "raw":
            # Without Python's lock, as any call through ctypes; this thread waits outside of CUDA.
            command = ctypes.CDLL(os.environ["RAW_LIBRARY"]).raw_command
            command.restype = ctypes.c_char_p
            answer(raw=command(line.strip()[4:].encode()).decode())
        elif words[0] == "on":
            activities = [ProfilerActivity.CUDA] + ([ProfilerActivity.CPU] if words[1] == "both" else [])
            running = profile(activities=activities)
            running.start()
            answer(on=True)
        elif words[0] == "off":
            running.stop()
            running = None
            answer(on=False)
        else:
            break


main()
