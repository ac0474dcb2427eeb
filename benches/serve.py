#!/usr/bin/env python3
"""`midair serve --always 1%` beside many programs: what it takes, how long a scrape takes, and does anything grow?

    benches/serve.py --programs 200 --seconds 90 --pause-us 1000000
    benches/serve.py --programs 4 --seconds 10800 --visitors 60 --to serve.tsv

It starts so many of the demo program of `target/stage` on the stand-in runtimes, each with two modelled GPUs and a round of kernels and copies
at each pause, and a server that names only those. It scrapes /metrics (and, with visitors, asks for a profile and a stream, and starts
and ends a program), and notes memory, descriptors, mappings and threads of the server and of all programs, and what is in its temporary
directory. At the end it prints the times of scrapes, the server's processor time, and the first and the last tenth of each figure; every
program has to end with the right results.

No part of the suite.
"""
import argparse
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
STAGE = ROOT / "target/stage"
NAME = "benched-serve"


def figures(pid):
    proc = pathlib.Path("/proc") / str(pid)
    status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines() if ":" in line)
    if "VmRSS" not in status:
        raise SystemExit(f"{pid} has ended")
    ticks = (proc / "stat").read_text().rpartition(")")[2].split()
    return {
        "rss_mib": int(status["VmRSS"].split()[0]) / 1024,
        "descriptors": len(list((proc / "fd").iterdir())),
        "mappings": len((proc / "maps").read_text().splitlines()),
        "threads": int(status["Threads"]),
        "processor_s": (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK"),
    }


def program(directory, pause, seconds):
    demo = STAGE / "lib/midair-demo"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(demo), "HSA_MODEL_TOPOLOGY": str(demo / "topology")}
    words = [directory / NAME, "0", str(pause), "alone", str(seconds)]
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)


def ask(url):
    began = time.monotonic()
    with urllib.request.urlopen(url, timeout=60) as answer:
        body = answer.read()
        return (time.monotonic() - began) * 1e3, body, int(answer.headers.get("Age", 0))


def spread(values):
    ordered = sorted(values)
    at = lambda share: ordered[min(len(ordered) - 1, int(share * len(ordered)))]
    return f"p50 {at(0.5):.1f}, p90 {at(0.9):.1f}, p99 {at(0.99):.1f}, max {ordered[-1]:.1f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--warm-up", type=float, default=30)
    parser.add_argument("--pause-us", type=int, default=1_000_000)
    parser.add_argument("--every", type=float, default=1.0, help="seconds between scrapes")
    parser.add_argument("--visitors", type=float, default=0, help="seconds between programs that come and go")
    parser.add_argument("--to", type=pathlib.Path)
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        bench(words, pathlib.Path(scratch))


def bench(words, scratch):
    shutil.copy(STAGE / "lib/midair-demo/workload", scratch / NAME)
    temporary = scratch / "tmp"
    temporary.mkdir()
    whole = int(words.warm_up + words.seconds + 60 + words.programs / 2)
    programs = []
    for _ in range(words.programs):
        programs.append(program(scratch, words.pause_us, whole))
        # Many that start at once would be a bench of their own.
        time.sleep(0.2)
    command = [STAGE / "bin/midair", "serve", "--listen", "127.0.0.1:0", "--always", "1%", "--only-name", NAME]
    server = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(temporary)}, stderr=subprocess.PIPE, text=True)
    base = server.stderr.readline().split()[-1]
    time.sleep(words.warm_up)
    began, first = time.monotonic(), figures(server.pid)
    scrapes, ages, rows, visitor = [], [], [], None
    next_scrape = next_visit = began
    while (now := time.monotonic()) < began + words.seconds:
        if now >= next_scrape:
            next_scrape = max(next_scrape + words.every, now)
            took, body, age = ask(base + "/metrics")
            scrapes.append(took)
            ages.append(age)
            row = {"seconds": now - began, "scrape_ms": took, "bytes": len(body), "temporary": len(list(temporary.rglob("*")))}
            row |= {f"server_{key}": value for key, value in figures(server.pid).items()}
            seen = [figures(it.pid) for it in programs]
            for key in ("rss_mib", "descriptors", "mappings", "threads"):
                row[f"programs_{key}"] = sum(it[key] for it in seen)
            rows.append(row)
            if words.to:
                # A run of hours that is ended early has its figures.
                with words.to.open("a") as file:
                    file.write("\t".join(row if len(rows) == 1 else (f"{value:.2f}" for value in row.values())) + "\n")
        if words.visitors and now >= next_visit:
            next_visit += words.visitors
            if visitor:
                visitor.kill()
                visitor.communicate()
            visitor = program(scratch, words.pause_us, whole)
            pid = programs[0].pid
            for path in (f"/debug/pprof/gpu?pid={pid}&seconds=1", f"/top/{pid}?stream=1&interval=0.5&seconds=1", "/processes"):
                try:
                    ask(base + path)
                except OSError as error:
                    print(f"{now - began:.0f} s: {path}: {error}")
        time.sleep(max(0.0, min(next_scrape, next_visit if words.visitors else next_scrape) - time.monotonic()))
    took, last = time.monotonic() - began, figures(server.pid)
    page = ask(base + "/metrics")[1].decode()
    value = lambda name: sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name))
    server.send_signal(signal.SIGTERM)
    said = server.communicate(timeout=60)[1]
    print(f"{words.programs} programs, {took:.0f} s, load {os.getloadavg()[0]:.1f}")
    print(f"scrapes: {len(scrapes)}, ms: {spread(scrapes)}; age of the page at most {max(ages)} s; {len(body)} bytes")
    share = (last["processor_s"] - first["processor_s"]) / took
    print(f"server: {100 * share:.2f} % of a processor, {value('midair_attaches_total'):.0f} attaches, "
          f"{value('midair_attach_failures_total'):.0f} failures, recorded "
          f"{sum(line.startswith('midair_recorded_seconds_total') for line in page.splitlines())} of {words.programs}")
    tenth = max(1, len(rows) // 10)
    for key in rows[0]:
        if key not in ("seconds", "server_processor_s"):
            start, end = (statistics.median(row[key] for row in part) for part in (rows[:tenth], rows[-tenth:]))
            print(f"  {key}: {start:.1f} to {end:.1f}")
    if visitor:
        visitor.kill()
    wrong = 0
    for it in programs:
        out = it.communicate()[0].splitlines()
        wrong += it.returncode != 0 or not out[-1].endswith(" bad 0")
    print(f"left in the temporary directory: {len(list(temporary.rglob('*')))}; programs with wrong results: {wrong}")
    if said.strip():
        print(said.strip())


main()
