"""(g) The whole GPU sampled, from a process that works beside it: values, rates, losses, processor time, what it costs the sampled
process, the clocks of samples and kernels, a second profiler, and samples beside an attach, in each form of results and in `midair top`; and
CUPTI's plain loop (plainloop.c) beside the helper. With --cupti FILE also by that CUPTI."""

import glob
import json
import os
import sqlite3
import statistics
import subprocess
import sys

import clocks
import tracks
from kit import WITHIN, Attached, Problem, Program, whole

# Processor time of the helper while it samples, as a share of one processor.
MOST_PROCESSOR = {1000: 0.15, 5000: 0.15, 10000: 0.3}
# Nanoseconds.
MOST_SHIFT = 5000
# Turns of the helper and of CUPTI's plain loop, one after the other.
TURNS = 4


def run(check):
    check.results.guarded("g", "building pulse.cu", lambda: build(check))
    for cupti in ["", *check.cuptis]:
        check.results.guarded("g", "sampling", lambda cupti=cupti: rates(check, cupti))
    check.results.guarded("g", "what it costs the sampled process", lambda: cost(check))
    check.results.guarded("g", "a second profiler", lambda: second(check))
    for turn in range(3):
        check.results.guarded("g", "samples beside an attach", lambda turn=turn: beside(check, turn))
    check.results.guarded("g", "forms of results", lambda: forms(check))
    check.results.guarded("g", "top", lambda: top(check))


def build(check):
    words = ["nvcc", "-std=c++17", "-O2", "-arch=native", "-o", check.built("pulse"), check.source("pulse.cu")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise Problem(f"nvcc: {done.stderr.strip()[-400:]}")
    words = ["gcc", "-O2", "-o", check.built("plainloop"), check.source("plainloop.c"), "-ldl"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise Problem(f"gcc: {done.stderr.strip()[-400:]}")


def metrics(check, *words):
    done = subprocess.run([os.path.join(check.stage, "bin/midair"), "metrics", *words], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr.strip()


def sampled(check, *words):
    code, out, err = metrics(check, "--json", *words)
    if code not in (0, 32):
        raise Problem(f"midair metrics ended with {code}: {err[-300:]}")
    return json.loads(out)


def rates(check, cupti):
    program = Program([check.built("pulse"), "300"], check.log("g-pulse"))
    words = ["--cupti", cupti] if cupti else []
    try:
        program.said(60)
        for rate, names in ((1000, "default"), (5000, "default"), (5000, "sm_active,tensor"), (10000, "default"), (10000, "compute")):
            check.results.guarded("g", f"sampling {names} at {rate} Hz", lambda rate=rate, names=names: one_rate(check, rate, names, words))
        check.results.guarded("g", "sampling 3 metrics at 20000 Hz", lambda: few(check, words))
        check.results.guarded("g", "sampling all metrics at 20000 Hz", lambda: fastest(check, words))
        for rate, names in ((5000, "default"), (5000, "sm_active,tensor"), (10000, "default")):
            check.results.guarded("g", f"the plain loop, {names} at {rate} Hz", lambda rate=rate, names=names: plain(check, rate, names, words))
        check.results.guarded("g", "turns", lambda: turns(check, words))
    finally:
        program.kill()


def one_rate(check, rate, names, words):
    got = sampled(check, "--rate", str(rate), "--duration", f"{check.seconds(3)}s", "--set", names, *words)
    helper, by_name = got["helper"], {metric["name"]: metric for metric in got["metrics"]}
    wanted = rate * got["seconds"]
    what = f"CUPTI {helper['cupti']}, {len(by_name)} metrics, {rate} Hz"
    check.results.add("g", f"{what}: samples", f"{got['samples']} of {wanted:.0f}, lost {got['lost']}", "all, none lost",
                      got["lost"] == 0 and abs(got["samples"] - wanted) <= 0.01 * wanted)
    shares = [float(helper[key]) / 1e3 / got["seconds"] for key in ("decode_ms", "evaluate_ms", "clear_ms")]
    parts = "decoding {:.3f}, values {:.3f}, images {:.3f}".format(*shares)
    check.results.add("g", f"{what}: processor time of the helper while it samples",
                      f"{sum(shares):.3f} ({parts}); a sample's values {helper['prepared_us']} us, by name {helper['by_name_us']} us; "
                      f"image {int(helper['image_bytes']) >> 20} MiB, buffer {int(helper['buffer_bytes']) >> 20} MiB, {helper['looks']} looks", f"<= {MOST_PROCESSOR[rate]}",
                      sum(shares) <= MOST_PROCESSOR[rate])
    check.results.add("g", f"{what}: set-up, configuration and start, stop", f"{helper['set_up_ms']}, {helper['start_ms']}, {helper['stop_ms']} ms", "", None)
    tensor, active = by_name["tensor"], by_name["sm_active"]
    fits = 40 < tensor["mean"] < 75 and tensor["min"] < 1 and tensor["max"] > 90 and active["mean"] > 95
    check.results.add("g", f"{what}: tensor pipes on 58 % of the time", f"mean {tensor['mean']:.1f}, {tensor['min']:.1f} to {tensor['max']:.1f}; SM active {active['mean']:.1f}",
                      "as the kernels are", fits)


def few(check, words):
    got = sampled(check, "--rate", "20000", "--duration", "2s", "--set", "sm_active,tensor,issue", *words)
    wanted = 20000 * got["seconds"]
    check.results.add("g", f"CUPTI {got['helper']['cupti']}, 3 metrics, 20000 Hz: samples", f"{got['samples']} of {wanted:.0f}, lost {got['lost']}", "all, none lost",
                      got["lost"] == 0 and abs(got["samples"] - wanted) <= 0.01 * wanted)


def fastest(check, words):
    """More than the helper is made for (docs/attach/cuda.md): how much of it comes."""
    got = sampled(check, "--rate", "20000", "--duration", f"{check.seconds(3)}s", "--set", "default", *words)
    helper = got["helper"]
    shares = [float(helper[key]) / 1e3 / got["seconds"] for key in ("decode_ms", "evaluate_ms", "clear_ms")]
    check.results.add("g", f"CUPTI {helper['cupti']}, {len(got['metrics'])} metrics, 20000 Hz: samples",
                      f"{got['samples']} of {20000 * got['seconds']:.0f}, lost {got['lost']}; the GPU's buffer was full {got.get('overflows', 0)} times; processor time of the helper {sum(shares):.3f}", "", None)


def plain(check, rate, names, words):
    """The helper and the plainest program that does the same, by turns: processor time for decoding, values and images."""
    ours, theirs, lost = [], [], [0, 0]
    cupti = None
    for _ in range(TURNS):
        got = sampled(check, "--rate", str(rate), "--duration", f"{check.seconds(3)}s", "--set", names, *words)
        ours.append(sum(float(got["helper"][key]) / 1e3 / got["seconds"] for key in ("decode_ms", "evaluate_ms", "clear_ms")))
        lost[0] += got["lost"]
        cupti = got["helper"]["cupti"]
        command = [check.built("plainloop"), got["helper"]["library"], str(rate), str(check.seconds(3)), *(metric["cupti"] for metric in got["metrics"])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            raise Problem(f"plainloop ended with {done.returncode}: {done.stderr.strip()[-300:]}")
        told = json.loads(done.stdout.split("@ ", 1)[1])
        if told["samples"] < 0.5 * rate * told["seconds"]:
            raise Problem(f"plainloop took {told['samples']} samples in {told['seconds']} s")
        tensor = [mean for metric, mean in zip(got["metrics"], told["means"]) if metric["name"] == "tensor"]
        if tensor and not 40 < tensor[0] < 75:
            raise Problem(f"plainloop says that the tensor pipes work {tensor[0]} % of the time")
        theirs.append([told["decode"], told["evaluate"], told["initialise"]])
        lost[1] += told["lost"]
    sums = [sum(turn) for turn in theirs]
    ratios = sorted(mine / other for mine, other in zip(ours, sums))
    middle = statistics.median(ratios)
    parts = [statistics.median(column) for column in zip(*theirs)]
    check.results.add("g", f"CUPTI {cupti}, {len(got['metrics'])} metrics, {rate} Hz: processor time of the helper against that of CUPTI's plain loop",
                      f"{middle:.3f} [{ratios[0]:.3f}, {ratios[-1]:.3f}]: {statistics.median(ours):.3f} of {statistics.median(sums):.3f} "
                      f"(decoding {parts[0]:.3f}, values by name {parts[1]:.3f}, images made anew {parts[2]:.3f}); lost {lost[0]}, {lost[1]}", "< 1", True if middle < 1 else WITHIN if ratios[0] < 1 else False)


def turns(check, words):
    got = sampled(check, "--duration", "3s", "--set", "default,sm__issue_active.avg.pct_of_peak_sustained_elapsed", *words)
    counts = [metric["samples"] for metric in got["metrics"]]
    issue = got["metrics"][-1]
    check.results.add("g", f"CUPTI {got['helper']['cupti']}: groups take turns where they are not one pass", f"{got['groups']} groups; samples {min(counts)} to {max(counts)} in {got['seconds']:.2f} s; {issue['name']} {issue['mean']}",
                      "each has some", min(counts) > 1000)


def cost(check):
    """Ratios of the speeds of one program, by turns with and without sampling."""
    ratios = []
    script = ("import sys,time,torch\n"
              "a=torch.randn(2048,2048,device='cuda',dtype=torch.bfloat16);b=torch.randn_like(a);n=0\n"
              "print('@ {}',flush=True)\n"
              "for line in sys.stdin:\n"
              "    if line.startswith('end'): break\n"
              "    end=time.time()+float(line);n=0;torch.cuda.synchronize();began=time.time()\n"
              "    while time.time()<end:\n"
              "        for _ in range(50): a@b\n"
              "        torch.cuda.synchronize();n+=50\n"
              "    print('@ '+str(n/(time.time()-began)),flush=True)\n"
              "print('@ 0',flush=True)\n")
    program = Program([sys.executable, "-c", script], check.log("g-cost"))
    try:
        program.said(120)
        program.ask("1")
        for _ in range(4 if check.quick else 10):
            plain = program.ask("0.8")
            sampler = subprocess.Popen([os.path.join(check.stage, "bin/midair"), "metrics", "--duration", "20s"], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            check.sleep(1.2)
            with_samples = program.ask("0.8")
            sampler.terminate()
            sampler.wait(30)
            after = program.ask("0.8")
            ratios.append(with_samples / statistics.mean([plain, after]))
        program.end()
    finally:
        program.kill()
    ratios.sort()
    middle = statistics.median(ratios)
    check.results.add("g", "matrix products while the GPU is sampled at 5 kHz", f"{middle:.4f} [{ratios[0]:.4f}, {ratios[-1]:.4f}] of {plain:.0f}/s", ">= 0.99", middle >= 0.99)


def second(check):
    first = subprocess.Popen([os.path.join(check.stage, "bin/midair"), "metrics", "--duration", "6s"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    check.sleep(3)
    code, _, err = metrics(check, "--duration", "1s")
    said, _ = first.communicate(timeout=30)
    check.results.add("g", "a second profiler of the same GPU", f"code {code}: {err.splitlines()[0][:160] if err else ''}; the first: code {first.returncode} {' '.join(line for line in said.splitlines() if 'missing' in line)[:120]}",
                      "a sentence; the first goes on", code == 38 and "in use" in err and first.returncode in (0, 32) and "tensor" in said)


def beside(check, turn):
    """One attach with samples: each kernel's means, and by how much the clocks differ."""
    name = f"g-{turn}"
    program = Program([check.built("pulse"), "60"], check.log(name))
    try:
        clock = program.said(60)["timer_ahead_ns"]
        # 20 kHz for three metrics; with all of them 10 kHz.
        what = [["--gpu-metrics", "sm_active,tensor,issue", "--gpu-metrics-rate", "20000"], ["--gpu-metrics", "default", "--gpu-metrics-rate", "10000"],
                ["--gpu-metrics", "default"]][turn]
        attached = Attached(check.stage, program.pid, ["--kernel-trace", "--stats", *what], check.work, name, formats=("csv,pftrace,rocpd",))
        if not attached.recording():
            raise Problem(f"no attach: {attached.text.strip()[-300:]}")
        check.sleep(check.seconds(4))
        code = attached.stop()
        whole(attached, code)
    finally:
        program.kill()
    rows = attached.table("gpu_metrics_kernels")
    on = [row for row in rows if "tensor_on" in row["Kernel_Name"]]
    off = [row for row in rows if "tensor_off" in row["Kernel_Name"]]
    means = [statistics.mean(float(row["tensor"]) for row in part) if part else float("nan") for part in (on, off)]
    check.results.add("g", f"{' '.join(what)}: tensor pipes within kernels that use them, and within others", f"{means[0]:.1f} %, {means[1]:.3f} % ({len(on)} and {len(off)} kernels)",
                      "> 80, < 0.5", means[0] > 80 and means[1] < 0.5)
    kernels = clocks.kernels(attached.table("kernel_trace"), "tensor_on")
    path = glob.glob(os.path.join(check.work, f"{name}_gpu_metrics.csv"))[0]
    taken = clocks.samples(path, "tensor")
    shift = clocks.shift(taken, kernels)
    check.results.add("g", f"{' '.join(what)}: samples are late against kernels by", f"{-shift / 1e3 if shift is not None else float('nan'):.1f} us ({len(taken)} samples; the GPU's timer is {clock[0] / 1e3:.0f} us ahead of the wall clock)",
                      "<= 5 us", shift is not None and abs(shift) <= MOST_SHIFT)
    database = glob.glob(os.path.join(check.work, f"{name}_results.db"))
    with sqlite3.connect(database[0]) as db:
        values = count_values(db)
    check.results.add("g", f"{' '.join(what)}: values in rocpd, samples in csv", f"{values}, {len(taken)}", "equal", values == len(taken))


def forms(check):
    """A session with samples of three metrics: what each form of results has of them."""
    program = Program([check.built("pulse"), "60"], check.log("g-forms"))
    names = ("sm_active", "tensor", "issue")
    try:
        program.said(60)
        attached = Attached(check.stage, program.pid, ["--kernel-trace", "--gpu-metrics", ",".join(names)], check.work, "g-forms", formats=("csv", "pftrace", "kineto", "parquet"))
        if not attached.recording():
            raise Problem(f"no attach: {attached.text.strip()[-300:]}")
        check.sleep(check.seconds(3))
        whole(attached, attached.stop())
    finally:
        program.kill()
    path = glob.glob(os.path.join(check.work, "g-forms_gpu_metrics.csv"))[0]
    taken = {name: clocks.samples(path, name) for name in names}

    def judge(form, found, missing):
        """`found`: the values of each metric, or nothing where this machine cannot read the file."""
        def equal(name):
            mine, wanted = found.get(name, []), [value for _, _, value in taken[name]]
            # A track ends with a zero, and begins anew after a gap.
            return len(wanted) <= len(mine) <= 1.05 * len(wanted) + 2 and abs(max(mine) - max(wanted)) < 0.01 if mine and wanted else False

        check.results.add("g", f"--gpu-metrics {','.join(names)}: values in {form}, samples in csv",
                          missing or "; ".join(f"{name} {len(found.get(name, []))}, {len(taken[name])}" for name in names), "a track with them for each metric",
                          None if missing else all(equal(name) for name in names))

    traces = glob.glob(os.path.join(check.work, "g-forms*.pftrace"))
    judge("pftrace", tracks.of_pftrace(traces[0], names), None)
    traces = glob.glob(os.path.join(check.work, "g-forms*.pt.trace.json"))
    judge("kineto", tracks.of_kineto(traces[0], names), None)
    found, missing = tracks.of_parquet(check.work, program.pid)
    judge("parquet", found, missing)


def top(check):
    program = Program([check.built("pulse"), "60"], check.log("g-top"))
    try:
        program.said(60)
        words = [os.path.join(check.stage, "bin/midair"), "top", str(program.pid), "--once", "--json", "--gpu-metrics", "default"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False)
        try:
            shown = json.loads(done.stdout.splitlines()[-1])
        except (ValueError, IndexError) as error:
            raise Problem(f"midair top ended with {done.returncode}: {done.stderr.strip()[-300:]}") from error
    finally:
        program.kill()
    means = {counter["name"]: counter["mean"] for counter in shown["counters"]}
    tensor, active = means.get("tensor", float("nan")), means.get("sm_active", float("nan"))
    check.results.add("g", "top --gpu-metrics default --once --json", f"{len(means)} counters; tensor {tensor:.1f}, sm_active {active:.1f}", "as the kernels are",
                      len(means) >= 8 and 40 < tensor < 75 and active > 90)


def count_values(db):
    tables = [name for (name,) in db.execute("select name from sqlite_master where type='table'")]
    events = next(name for name in tables if name.startswith("rocpd_pmc_event"))
    info = next(name for name in tables if name.startswith("rocpd_info_pmc"))
    return db.execute(f'select count(*) from "{events}" e join "{info}" i on e.pmc_id = i.id where i.name = \'tensor\'').fetchone()[0]
