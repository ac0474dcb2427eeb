"""Real programs, small: `real.py NAME`. Each answers when it is ready; `go N` does N steps and answers with what they came to, bit for bit; `end`
ends it. The same steps of two processes come to the same.

  transformers   generate() of a GPT-2 of four layers with fixed weights
  compile        torch.compile with CUDA graphs (mode reduce-overhead)
  loader         training whose batches come from two DataLoader workers
  jax, cupy, triton, numba
  server         four processes, each with two streams; the last one ends after a quarter of the steps
"""

import hashlib
import json
import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "2")


def answer(**what):
    sys.stdout.write("@ " + json.dumps(what) + "\n")
    sys.stdout.flush()


def transformers():
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(3)
    model = GPT2LMHeadModel(GPT2Config(n_layer=4, n_head=4, n_embd=256, vocab_size=1000)).cuda().eval()
    words = torch.arange(8, device="cuda").reshape(1, 8)

    def step(at):
        made = model.generate(words + at % 7, max_new_tokens=12, do_sample=False, pad_token_id=0)
        return made.cpu().numpy().tobytes()

    return step


def compile():
    import torch

    torch.manual_seed(4)
    model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)).cuda().eval()
    quick = torch.compile(model, mode="reduce-overhead")
    given = torch.randn(32, 128, device="cuda")

    @torch.no_grad()
    def step(at):
        return quick(given * (1 + at % 5)).cpu().numpy().tobytes()

    return step


class Numbers:
    """A data set that is computed."""

    def __len__(self):
        return 1 << 20

    def __getitem__(self, at):
        import torch

        return torch.full((64,), (at % 97) / 97.0)


def loader():
    import torch

    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1)).cuda()
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = iter(torch.utils.data.DataLoader(Numbers(), batch_size=32, num_workers=2))

    def step(_):
        batch = next(batches).cuda()
        optimiser.zero_grad()
        loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimiser.step()
        return loss.detach().cpu().numpy().tobytes()

    return step


def jax():
    import jax
    import jax.numpy as jnp
    import numpy

    body = jax.jit(lambda x, y: jnp.tanh(x @ x) * 0.01 + y)
    x = jnp.ones((256, 256))

    def step(at):
        nonlocal x
        x = body(x, float(at % 3))
        return numpy.asarray(x).tobytes()

    return step


def cupy():
    import cupy

    scale = cupy.RawKernel("extern \"C\" __global__ void real_scale(float *x) { x[blockIdx.x * blockDim.x + threadIdx.x] *= 1.001f; }", "real_scale")
    x = cupy.ones(4096, dtype=cupy.float32)

    def step(_):
        scale((16,), (256,), (x,))
        return cupy.asnumpy(x + 0.5).tobytes()

    return step


def triton():
    import torch

    import real_kernel

    x = torch.ones(4096, device="cuda")
    y = torch.empty_like(x)

    def step(at):
        real_kernel.real_add[(4,)](x, y, float(at % 11), 4096, B=1024)
        return y.cpu().numpy().tobytes()

    return step


def numba():
    import numpy

    # numba-cuda looks for a name that NumPy 2.5 no longer has.
    if not hasattr(numpy, "row_stack"):
        numpy.row_stack = numpy.vstack
    from numba import cuda

    @cuda.jit
    def real_increment(a):
        i = cuda.grid(1)
        if i < a.size:
            a[i] += 1

    a = cuda.to_device(numpy.zeros(4096))

    def step(_):
        real_increment[16, 256](a)
        return a.copy_to_host().tobytes()

    return step


def serve(pipe, which):
    """One process of the server: two streams."""
    import torch

    streams = [torch.cuda.Stream() for _ in range(2)]
    held = [torch.full((4096,), float(which + at), device="cuda") for at in range(2)]
    torch.cuda.synchronize()
    pipe.send(os.getpid())
    while True:
        count = pipe.recv()
        if not count:
            return
        digest = hashlib.sha256()
        for at in range(count // 4 if which == 3 else count):
            for stream, some in zip(streams, held):
                with torch.cuda.stream(stream):
                    some.mul_(1.0001).add_(at % 3)
            if at % 10 == 9:
                torch.cuda.synchronize()
                digest.update(held[0].cpu().numpy().tobytes() + held[1].cpu().numpy().tobytes())
        pipe.send(digest.hexdigest())
        if which == 3:
            return


def server():
    import multiprocessing

    spawn = multiprocessing.get_context("spawn")
    pipes, workers = [], []
    for which in range(4):
        mine, theirs = spawn.Pipe()
        workers.append(spawn.Process(target=serve, args=(theirs, which)))
        workers[-1].start()
        pipes.append(mine)
    pids = [pipe.recv() for pipe in pipes]
    answer(ready=True, pids=pids)
    for line in sys.stdin:
        words = line.split()
        if words[0] != "go":
            break
        for pipe in pipes:
            pipe.send(int(words[1]))
        answer(digest=" ".join(pipe.recv() for pipe in pipes))
        # The last one has ended with its answer.
        pipes = pipes[:3]
    for pipe in pipes:
        pipe.send(0)
    for worker in workers:
        worker.join(20)


def main():
    name = sys.argv[1]
    if name == "server":
        server()
        return
    step = globals()[name]()
    for at in range(4):
        step(at)
    answer(ready=True)
    total = hashlib.sha256()
    for line in sys.stdin:
        words = line.split()
        if words[0] != "go":
            break
        for at in range(int(words[1])):
            total.update(step(at))
        answer(digest=total.hexdigest())


if __name__ == "__main__":
    main()
