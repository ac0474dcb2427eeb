"""One rank of a torchrun job: additions and all-reduces. Every 50 steps it waits for its device and notes the step and the time
(CLOCK_BOOTTIME, ns) in DIR/rank-N, a line each. Ends when DIR/end is there."""

import os
import sys
import time

import torch
import torch.distributed as dist


def main():
    directory = sys.argv[1]
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    mine, shared = torch.ones(4096, device="cuda"), torch.ones(1 << 20, device="cuda")
    stop = torch.zeros(1, device="cuda")
    step = 0
    with open(os.path.join(directory, f"rank-{rank}"), "w", encoding="ascii") as notes:
        while True:
            for _ in range(50):
                mine.mul_(1.0001)
                dist.all_reduce(shared)
                step += 1
            torch.cuda.synchronize()
            notes.write(f"{step} {time.clock_gettime_ns(time.CLOCK_BOOTTIME)} {os.getpid()}\n")
            notes.flush()
            # All ranks leave after the same step.
            if rank == 0 and os.path.exists(os.path.join(directory, "end")):
                stop.fill_(1)
            dist.all_reduce(stop)
            if stop.item():
                break
    dist.destroy_process_group()


main()
