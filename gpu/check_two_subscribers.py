"""(s) Whether one process can have two subscribers of CUPTI: by each CUPTI, each way of the first with each of the second. None of our code is in
these processes (subscribers.cu)."""

import json
import subprocess

from kit import Problem
from check_pc_sampling import own

WAYS = (("v1", "v1"), ("v1", "shared"), ("alone", "shared"), ("shared", "v1"), ("shared", "shared"))


def run(check):
    words = ["nvcc", "-std=c++17", "-O2", "-arch=native", "-o", check.built("subscribers"), check.source("subscribers.cu"), "-ldl"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise Problem(f"nvcc: {done.stderr.strip()[-800:]}")
    for cupti in [own(), *check.cuptis]:
        for ways in WAYS:
            check.results.guarded("s", f"{ways}", lambda cupti=cupti, ways=ways: one(check, cupti, ways))


def one(check, cupti, ways):
    done = subprocess.run([check.built("subscribers"), cupti, *ways], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise Problem(f"exit code {done.returncode}: {done.stderr.strip()[-300:]}")
    told = json.loads(done.stdout)
    check.results.add("s", f"CUPTI {told['cupti']}, driver {told['driver']}: {ways[0]}, then {ways[1]}",
                      f"subscribed {told['subscribed']}, enabled {told['enabled']}, calls seen {told['seen']}, error {told['error']}", "", None)
