"""(a) A program that counts its own work: recorded = launched between two marks, none twice, each with its call."""

from kit import Attached, Problem, Program, begun_between, between, count_by, untimed, whole

KERNELS = {"add": "count_add(", "scale": "count_scale<"}
# The exit code where records were lost.
LOST = 32
COPIES = {"h2d": "HOST_TO_DEVICE", "d2h": "DEVICE_TO_HOST", "d2d": "DEVICE_TO_DEVICE"}


def run(check):
    for mode, threads, options in (
        ("plain", 1, ["--kernel-trace", "--memory-copy-trace"]),
        ("plain", 1, ["--kernel-trace", "--memory-copy-trace", "--cuda-trace"]),
        ("mixed", 8, ["--kernel-trace", "--memory-copy-trace", "--cuda-trace"]),
        ("graph", 4, ["--kernel-trace", "--memory-copy-trace", "--cuda-trace"]),
        ("graph", 4, []),
        ("capture", 1, ["--kernel-trace", "--cuda-trace"]),
    ):
        calls = "all calls" if "--cuda-trace" in options else "kernels and copies"
        check.results.guarded("a", f"{mode}, {threads} threads, {calls}", lambda m=mode, t=threads, o=options: one(check, m, t, o))
    few, all_calls = ["--kernel-trace", "--memory-copy-trace"], ["--kernel-trace", "--memory-copy-trace", "--cuda-trace"]
    marks = [["--kernel-trace", "--marker-trace"], ["--kernel-trace", "--memory-allocation-trace"], ["--sys-trace"], few]
    for mode, threads, count, turns in (
        ("capture", 1, 20, (few, all_calls)),
        ("graph", 8, 60, (few, all_calls)),
        ("mixed", 8, 80, (few, all_calls)),
        ("waits", 8, 30, (few, all_calls)),
        ("marks", 8, 120, marks),
    ):
        check.results.guarded("a", f"attaches beside {mode}", lambda m=mode, t=threads, n=count, o=turns: cycles(check, m, t, n, o))


def cycles(check, mode, threads, count, turns):
    """Attach and detach, with the options in turn, at moments all over the program's work: it goes on without an error."""
    program = Program([check.built("count"), mode, str(threads)], check.log(f"a-cycles-{mode}"))
    try:
        program.said()
        kernels = lossy = 0
        for cycle in range(count):
            options = turns[cycle % len(turns)]
            attached = Attached(check.stage, program.pid, options, check.work, f"a-cycles-{mode}-{cycle}")
            if not attached.recording():
                raise Problem(f"attach {cycle}: {attached.text.strip()[-300:]}")
            check.sleep(0.02 + 0.013 * (cycle % 7))
            code = attached.stop()
            if code == LOST and options == ["--sys-trace"]:
                # All of eight threads at once may be more than is written in time: it is told, and the program is what counts here.
                lossy += 1
            else:
                whole(attached, code)
            kernels += len(attached.table("kernel_trace"))
            attached.clean()
        last, code = program.end()
        check.results.add("a", f"{mode}, {threads} threads: {count} attaches beside its work", f"{kernels} kernels{f', {lossy} with losses told' if lossy else ''}; "
                          f"the program: {last['errors']} errors, code {code}",
                          "0 errors, code 0", last["errors"] == 0 and code == 0 and kernels > 0)
    finally:
        program.kill()


def one(check, mode, threads, options):
    program = Program([check.built("count"), mode, str(threads)], check.log(f"a-{mode}-{threads}"))
    try:
        program.said()
        name = f"a-{mode}-{threads}-{'all' if '--cuda-trace' in options else 'few'}"
        attached = Attached(check.stage, program.pid, options, check.work, name)
        if not attached.recording():
            raise Problem(f"no attach: {attached.text.strip()[-300:]}")
        first = program.ask("mark")
        check.sleep(check.seconds(1.0))
        second = program.ask("mark")
        whole(attached, attached.stop())
        third = program.ask("mark")
        last, code = program.end()
        if code != 0 or third["errors"] or last["errors"]:
            raise Problem(f"the program had {last['errors']} errors, code {code}")
        judge(check, mode, threads, options, attached, first, second)
    finally:
        program.kill()


def judge(check, mode, threads, options, attached, first, second):
    what = f"{mode}, {threads} threads" + (", all calls" if "--cuda-trace" in options else "")
    all_kernels = attached.table("kernel_trace")
    # By their begins: at the marks nothing is under way, so whatever began between them belongs there, and ends are judged by themselves.
    rows = begun_between(all_kernels, first["time"], second["time"])
    launched = {key: second[key] - first[key] for key in first}
    names = count_by(rows, "Kernel_Name")
    captured = {key: sum(n for name, n in names.items() if text in name) for key, text in KERNELS.items()}
    wanted = {key: launched[key] for key in KERNELS}
    check.results.add("a", f"{what}: kernels", f"{sum(captured.values())} of {sum(wanted.values())} launched",
                      "equal, by name", captured == wanted and sum(wanted.values()) > 0)
    twice = len(rows) - len({row["Dispatch_Id"] for row in rows})
    # A graph's launch is one call for many kernels: the node tells them apart.
    same = len(rows) - len({(row["Correlation_Id"], row["Graph_Node_Id"]) for row in rows})
    check.results.add("a", f"{what}: twice, without times", f"{twice + same}, {untimed(all_kernels)}", "0, 0",
                      twice + same == 0 and untimed(rows) == 0)
    late = [int(row["End_Timestamp"]) - mark["time"] for mark in (first, second) for row in all_kernels
            if 0 < int(row["Start_Timestamp"]) < mark["time"] < int(row["End_Timestamp"])]
    if late:
        # The device was waited for before each mark. CUPTI's own times: they are passed on as they are.
        check.results.add("a", f"{what}: kernels whose end CUPTI tells behind a mark that was reached after it", f"{len(late)} of {len(all_kernels)}, "
                          f"by {max(late) / 1e6:.2f} ms at most", "", None)
    if mode == "mixed":
        moved = count_by(between(attached.table("memory_copy_trace"), first["time"], second["time"]), "Direction")
        got = {key: sum(n for name, n in moved.items() if name.endswith(text)) for key, text in COPIES.items()}
        fills = len(between(attached.table("memory_set_trace"), first["time"], second["time"]))
        need = {key: launched[key] for key in COPIES}
        check.results.add("a", f"{what}: copies, fills", f"{sum(got.values())} of {sum(need.values())}, {fills} of {launched['fill']}",
                          "equal, by direction", got == need and fills == launched["fill"])
    if "--cuda-trace" in options:
        correlated(check, what, mode, threads, attached, all_kernels, rows, launched, first, second)
    attached.clean()


def times_of(call, kernels, moment):
    """Begins and ends of a call's kernels, in us behind a moment."""
    mine = [row for row in kernels if row["Correlation_Id"] == call["Correlation_Id"]]
    return [tuple(round((int(row[key]) - moment) / 1e3, 1) for key in ("Start_Timestamp", "End_Timestamp")) for row in mine]


def correlated(check, what, mode, workers, attached, all_kernels, rows, launched, first, second):
    calls = attached.table("cuda_api_trace")
    launches = {}
    for row in calls:
        if "Launch" in row["Function"]:
            launches.setdefault(row["Correlation_Id"], []).append(row)
    lonely = late = 0
    for row in rows:
        mine = launches.get(row["Correlation_Id"])
        if not mine:
            lonely += 1
        elif all(int(call["Start_Timestamp"]) > int(row["Start_Timestamp"]) for call in mine):
            late += 1
    check.results.add("a", f"{what}: kernels without their call, before it", f"{lonely}, {late}", "0, 0", lonely + late == 0 and bool(rows))
    wanted, function = (launched["graphs"], "cudaGraphLaunch") if mode in ("graph", "capture") else (launched["launch_calls"], "cudaLaunchKernel")
    found = [row for row in between(calls, first["time"], second["time"]) if row["Function"].startswith(function)]
    check.results.add("a", f"{what}: {function}", f"{len(found)} of {wanted} calls", "equal", len(found) == wanted)
    if found and mode in ("graph", "capture"):
        done = {row["Correlation_Id"] for row in rows}
        lost = [row for row in found if row["Correlation_Id"] not in done]
        for row in lost[:5]:
            print(f"    launch without kernels: {(int(row['Start_Timestamp']) - first['time']) / 1e3:.1f} us behind the first mark, "
                  f"{(second['time'] - int(row['End_Timestamp'])) / 1e3:.1f} us before the second; result {row['Result']}, thread {row['Thread_Id']}, "
                  "its kernels, us behind the second mark:", times_of(row, all_kernels, second["time"]))
    threads = len({row["Thread_Id"] for row in found})
    failed = sum(row["Result"] not in ("0", "", "cudaSuccess") for row in found)
    check.results.add("a", f"{what}: threads of these calls, failed ones", f"{threads}, {failed}", f"{workers}, 0",
                      threads == workers and failed == 0)
