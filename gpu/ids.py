"""Runs ids.cu again and again, in several ways, and counts how many threads had calls with one correlation id afterwards.

    ids.py PROGRAM LIBCUPTI SILENT SECONDS AT_ONCE THREADS NAME=WORDS ..."""

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor


def main():
    program, cupti, silent, seconds, at_once, threads, *ways = sys.argv[1:]
    ways = [way.split("=", 1) for way in ways]
    end, told = time.monotonic() + float(seconds), {name: [0, 0, {}, []] for name, _ in ways}

    def one(at):
        if time.monotonic() > end:
            return
        name, words = ways[at % len(ways)]
        split = [word.replace("~", " ") for word in words.split()]
        try:
            done = subprocess.run([program, cupti, threads, silent, *split], capture_output=True, text=True, timeout=60, check=False)
            code, lines = done.returncode, [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        except subprocess.TimeoutExpired:
            code, lines = "hangs", []
        row = told[name]
        row[0] += 1
        if code != 0:
            row[2][str(code)] = row[2].get(str(code), 0) + 1
        for line in lines:
            if line.get("twice"):
                row[1] += 1
                row[3].append(f"{line['look']}: {line['twice']}{line['text']}")
            elif "run" in line or line.get("status"):
                row[2][json.dumps(line)[:60]] = row[2].get(json.dumps(line)[:60], 0) + 1
            elif line.get("threads", int(threads)) != int(threads):
                row[2]["threads missing"] = row[2].get("threads missing", 0) + 1

    with ThreadPoolExecutor(int(at_once)) as pool:
        list(pool.map(one, range(1_000_000 if not seconds else int(float(seconds) * 40))))
    for name, (runs, twice, bad, texts) in told.items():
        print(f"{name}: {runs} runs, {twice} with ids twice; {bad}; {texts[:4]}", flush=True)


main()
