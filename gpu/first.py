"""First uses of CUPTI beside the launches of a process: many processes of the inference loop, each forked from this one, which has loaded
PyTorch and not used CUDA. Afterwards each looks whether calls have a correlation id twice. One line of JSON each.

    first.py SECONDS AT_ONCE MIDAIR DIRECTORY WAY ...       with TWICE_LIBRARY and CUPTI_LIBRARY as in infer.py
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import infer
import torch
from twice import Twice

STEPS, KINDS = 12, (10, 5, 4)
ALL = {"kinds": [10, 1, 2, 5, 4], "runtime": [17, 317, 11, 10], "driver": [392, 719], "question": 0, "restores": 0}
LIMIT = 90


@torch.no_grad()
def child(way, midair, directory):
    torch.use_deterministic_algorithms(True)
    model = infer.build()
    graphs = [infer.captured(model, size) for size in infer.SIZES]
    source = torch.Generator(device="cuda").manual_seed(13)
    twice, done = Twice(os.environ["TWICE_LIBRARY"], os.environ["CUPTI_LIBRARY"]), [0]

    def step():
        graph, given, made = graphs[done[0] % len(graphs)]
        given.normal_(generator=source)
        graph.replay()
        float(made.double().sum())
        done[0] += 1

    for _ in range(30):
        step()
    before, after, *more = *way.split("+"), ""
    if before == "looked":
        # CUPTI is first used while the thread that launches is outside of CUDA.
        twice.look([STEPS, *KINDS], step)
    said = ""
    if after == "alone":
        twice.switch([1, json.dumps(ALL)], step)
    else:
        options = ["--kernel-trace", "--memory-copy-trace"] + (["--cuda-trace"] if after == "calls" else [])
        name = f"{way}-{os.getpid()}"
        words = [midair, "attach", str(os.getpid()), *options, "--duration", "50ms", "-f", "csv", "-d", directory, "-o", name]
        ended = []
        thread = threading.Thread(target=lambda: ended.append(subprocess.run(words, stdin=subprocess.DEVNULL,
                                                                       capture_output=True, text=True, timeout=60, check=False)))
        thread.start()
        while thread.is_alive():
            step()
        said = "" if ended and ended[0].returncode == 0 else str(ended)[-300:]
    look = twice.look([STEPS, *KINDS], step)
    return {"way": way, "twice": look["twice"], "text": look["text"][:200], "steps": done[0], "error": said}


def main():
    seconds, at_once, midair, directory, *ways = sys.argv[1:]
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    end, running, begun = time.monotonic() + float(seconds), set(), 0
    while running or time.monotonic() < end:
        while len(running) < int(at_once) and time.monotonic() < end:
            way = ways[begun % len(ways)]
            begun += 1
            pid = os.fork()
            if pid == 0:
                # A process that hangs is ended by this, and counts as that.
                signal.alarm(LIMIT)
                try:
                    answer = child(way, midair, directory)
                except Exception as error:
                    answer = {"way": way, "error": f"{type(error).__name__}: {error}"[:300]}
                os.write(1, (json.dumps(answer) + "\n").encode())
                os._exit(0)
            running.add(pid)
        pid, status = os.wait()
        running.discard(pid)
        if status:
            os.write(1, (json.dumps({"way": "?", "error": f"status {status}"}) + "\n").encode())


main()
