"""(l) What is shown while a process runs: `midair top`, `midair why`, and a trace in the form of PyTorch's profiler."""

import glob
import json
import os
import subprocess
import sys

from kit import Attached, Problem, Program, whole


def run(check):
    check.results.guarded("l", "top", lambda: top(check))
    check.results.guarded("l", "why", lambda: why(check))
    check.results.guarded("l", "kineto", lambda: kineto(check))


def document(check, *words):
    done = subprocess.run([os.path.join(check.stage, "bin/midair"), *words], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False)
    try:
        return json.loads(done.stdout.splitlines()[-1] if words[0] == "top" else done.stdout)
    except (ValueError, IndexError) as error:
        raise Problem(f"midair {words[0]} ended with {done.returncode}: {done.stderr.strip()[-300:]}") from error


def top(check):
    program = Program([check.built("count"), "mixed", "2"], check.log("l-top"))
    try:
        program.said()
        shown = document(check, "top", str(program.pid), "--once", "--json", "--until-signal")
        last, code = program.end()
        busy = [device["busy"] for device in shown["devices"]]
        kernels = {kernel["name"].split("(")[0].split("<")[0]: kernel["all"]["count"] for kernel in shown["kernels"]}
        good = any(busy) and all(any(name in known for known in kernels) for name in ("count_add", "count_scale"))
        check.results.add("l", "top --once --json: two threads that launch and copy",
                          f"{shown['records']} records, {shown['lost']} lost; busy {', '.join(f'{share:.2f}' for share in busy)}; {kernels}; the program: {last['errors']} errors, code {code}",
                          "both kernels, busy, none lost, no error", good and shown["lost"] == 0 and last["errors"] == 0 and code == 0)
    finally:
        program.kill()


def why(check):
    program = Program([sys.executable, check.source("hang.py")], check.log("l-why"))
    try:
        program.said(120)
        check.sleep(0.5)
        told = document(check, "why", str(program.pid), "--json")
        waiting = [thread for thread in told["threads"] if any(frame["function"] == "waits_for_the_gpu" for frame in thread["python"])]
        calls = [thread["call"] for thread in waiting]
        check.results.add("l", "why --json: a thread of Python that waits for a kernel of 20 s", f"{calls}; alive: {program.alive()}", "a call of CUDA, below the function's name",
                          len(waiting) == 1 and bool(calls[0]) and "cuda" in str(calls[0]).lower() and program.alive())
    finally:
        program.kill()


def kineto(check):
    program = Program([sys.executable, check.source("train.py"), "0", check.file("l-kineto.json")], check.log("l-kineto"))
    try:
        program.said(120)
        attached = Attached(check.stage, program.pid, ["--cuda-trace", "--kernel-trace", "--memory-copy-trace"], check.work, "l-kineto", formats=("csv", "kineto"))
        if not attached.recording():
            raise Problem(f"no attach: {attached.text.strip()[-300:]}")
        check.sleep(0.5)
        whole(attached, attached.stop())
        program.end()
    finally:
        program.kill()
    rows = attached.table("kernel_trace")
    found = glob.glob(os.path.join(check.work, "l-kineto*.pt.trace.json"))
    if len(found) != 1:
        raise Problem(f"{len(found)} files of kineto")
    with open(found[0], encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    launches = {event["args"]["correlation"] for event in events if event.get("cat") in ("cuda_runtime", "cuda_driver")}
    joined = sum(event["args"]["correlation"] in launches for event in kernels)
    check.results.add("l", "kineto: kernels, and those with their launch", f"{len(kernels)} of csv's {len(rows)}; {joined} with a launch", "as many as csv; nearly all with a launch",
                      len(kernels) == len(rows) > 0 and joined > 0.95 * len(kernels))
