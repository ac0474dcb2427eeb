"""What the PyTorch programs of this folder have in common: they are told what to do line by line, and answer by lines "@ {json}"."""

import json
import queue
import sys
import threading
import time

import torch
from torch.profiler import ProfilerActivity, profile


def boottime():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def answer(**what):
    sys.stdout.write("@ " + json.dumps(what) + "\n")
    sys.stdout.flush()


def kernels_of(prof):
    """Name to number of the kernels that torch.profiler saw, and how many calls that launch."""
    names, launches = {}, 0
    for event in prof.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            # Ranges of the application are shown on the device, too.
            if not event.name.startswith(("Memcpy", "Memset")) and not getattr(event, "is_user_annotation", False):
                names[event.name] = names.get(event.name, 0) + 1
        elif "LaunchKernel" in event.name:
            launches += 1
    return names, launches


class Control:
    """Reads the lines on a thread of its own; the program asks between two steps."""

    def __init__(self):
        self.lines, self.ranges = queue.SimpleQueue(), False
        # What else the program can be told: word to a function of the words behind it and `step`, which returns the answer.
        self.others = {}
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in sys.stdin:
            self.lines.put(line.split())
        self.lines.put(["end"])

    def between_steps(self, steps, step):
        """Does what was asked for; `step` does one more step. The steps done, and whether the program shall end."""
        while not self.lines.empty():
            words = self.lines.get()
            if words[0] == "end":
                return steps, True
            if words[0] == "mark":
                torch.cuda.synchronize()
                answer(step=steps, time=boottime())
            elif words[0] == "ranges":
                self.ranges = True
                answer(ranges=True)
            elif words[0] in self.others:
                answer(**self.others[words[0]](words[1:], step))
            elif words[0] == "profile":
                steps = self._profile(steps, step, int(words[1]), "cpu" in words)
        return steps, False

    def _profile(self, steps, step, count, cpu):
        """`count` steps under torch.profiler."""
        activities = [ProfilerActivity.CUDA] + ([ProfilerActivity.CPU] if cpu else [])
        torch.cuda.synchronize()
        try:
            with profile(activities=activities) as prof:
                for _ in range(count):
                    step()
                torch.cuda.synchronize()
            names, launches = kernels_of(prof)
            answer(profiled=count, kernels=names, launches=launches)
        except Exception as error:  # What a user would see; the checker judges it.
            answer(profiled=count, error=f"{type(error).__name__}: {error}", kernels={}, launches=0)
        return steps + count
