"""A program that waits for a kernel of 20 s, in a Python function of its own. Answers before it waits."""

import json
import sys

import torch


def waits_for_the_gpu():
    torch.cuda.synchronize()


torch.ones(1, device="cuda")
torch.cuda.synchronize()
torch.cuda._sleep(40_000_000_000)
sys.stdout.write("@ " + json.dumps({"ready": True}) + "\n")
sys.stdout.flush()
waits_for_the_gpu()
