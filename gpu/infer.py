"""An inference loop over CUDA graphs that are captured and instantiated at the start; with EAGER=1 in its environment, without graphs. As train.py: ends at step N, or when told, and writes
what each step came to, bit for bit. Steps are NVTX ranges once that was asked for."""

import json
import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from torch import nn

from control import Control, answer

SIZES = (1, 8, 32)


def build():
    torch.manual_seed(11)
    layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).cuda().eval()


def captured(model, size):
    """A graph of one pass, what it reads and what it writes."""
    given = torch.zeros(size, 16, 128, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(given)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = model(given)
    return graph, given, made


@torch.no_grad()
def main():
    last, out = int(sys.argv[1]), sys.argv[2]
    torch.use_deterministic_algorithms(True)
    model = build()
    eager = os.environ.get("EAGER") == "1"
    graphs = [(None, torch.zeros(size, 16, 128, device="cuda"), None) if eager else captured(model, size) for size in SIZES]
    source = torch.Generator(device="cuda").manual_seed(13)
    control = Control()
    if "TWICE_LIBRARY" in os.environ:
        from twice import Twice
        control.others = Twice(os.environ["TWICE_LIBRARY"], os.environ["CUPTI_LIBRARY"]).commands()
    results = []

    def step():
        if control.ranges:
            torch.cuda.nvtx.range_push("step")
        graph, given, made = graphs[len(results) % len(graphs)]
        given.normal_(generator=source)
        if eager:
            made = model(given)
        else:
            graph.replay()
        results.append(float(made.double().sum()).hex())
        if control.ranges:
            torch.cuda.nvtx.range_pop()

    step()
    answer(ready=True)
    steps, end = 1, False
    while not end and (last == 0 or steps < last):
        step()
        steps += 1
        steps, end = control.between_steps(steps, step)
    with open(out, "w", encoding="ascii") as file:
        json.dump({"steps": len(results), "losses": results, "parameters": ""}, file)
    answer(steps=len(results))


if __name__ == "__main__":
    main()
