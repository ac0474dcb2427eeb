"""A training loop with deterministic algorithms. Ends at step N (`train.py N`), or when told (`train.py 0`), and writes its losses, bit for
bit, and what its parameters come to: two runs of the same steps must be equal. Each step is an NVTX range, from the first one on."""

import hashlib
import json
import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from torch import nn

from control import Control, answer


def build():
    torch.manual_seed(5)
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.GroupNorm(8, 64),
        nn.ReLU(),
        nn.AvgPool2d(4),
        nn.Flatten(),
        nn.Linear(64 * 16, 256),
        nn.LayerNorm(256),
        nn.GELU(),
        nn.Linear(256, 10),
    ).cuda()


def digest(model):
    sums = hashlib.sha256()
    for parameter in model.parameters():
        sums.update(parameter.detach().cpu().numpy().tobytes())
    return sums.hexdigest()


def main():
    last, out = int(sys.argv[1]), sys.argv[2]
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    model = build()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    source = torch.Generator(device="cuda").manual_seed(7)
    losses = []

    def step():
        torch.cuda.nvtx.range_push("step")
        images = torch.randn(32, 3, 32, 32, device="cuda", generator=source)
        labels = (images.mean(dim=(1, 2, 3)) * 400).long().remainder(10)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()).hex())
        torch.cuda.nvtx.range_pop()

    step()
    control = Control()
    answer(ready=True)
    steps, end = 1, False
    while not end and (last == 0 or steps < last):
        step()
        steps += 1
        steps, end = control.between_steps(steps, step)
    with open(out, "w", encoding="ascii") as file:
        json.dump({"steps": len(losses), "losses": losses, "parameters": digest(model)}, file)
    answer(steps=len(losses))


main()
