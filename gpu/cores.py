"""Core files of programs that died, and the stacks in them."""

import glob
import os
import resource
import shutil
import signal
import subprocess
import tempfile

# Where core files and stacks go; empty: none are kept.
PLACES = {}


def keep(out):
    """From here on, programs that die leave core files, until the machine starts again."""
    os.makedirs(out, exist_ok=True)
    PLACES.update(cores=tempfile.mkdtemp(prefix="midair-cores-"), out=out)
    with open("/proc/sys/kernel/core_pattern", "w", encoding="ascii") as file:
        file.write(os.path.join(PLACES["cores"], "core.%p"))
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def stop_silent(process, program):
    """Ends a process that gives no answer with a core file, if cores are kept, and writes its stacks. Returns the innermost frames of its first thread."""
    if not PLACES:
        return ""
    process.send_signal(signal.SIGABRT)
    process.wait()
    return stacks_of(process.pid, program)


def stacks_of(pid, program):
    """Writes the stacks of all threads of a process that died. Returns the innermost frames of the one that died, in one line."""
    found = glob.glob(os.path.join(PLACES["cores"], f"core.{pid}")) if PLACES else []
    debugger = shutil.which("cuda-gdb") or shutil.which("gdb")
    if not found or not debugger:
        return ""
    words = [debugger, "-batch", "-ex", "set pagination off", "-ex", "bt 20", "-ex", "info registers", "-ex", "x/8i $pc-16", "-ex", "info proc mappings",
             "-ex", "thread apply all bt 20", program, found[0]]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=120, check=False)
    with open(os.path.join(PLACES["out"], f"stacks-{pid}.txt"), "w", encoding="utf-8") as file:
        file.write(done.stdout)
    # The registers follow the stack of the thread that died, which the debugger's greeting shows the first frame of.
    own = done.stdout.split("\nrax ", 1)[0].splitlines()
    frames = [line.split(" in ", 1)[-1].split(" (", 1)[0] for line in own if line.startswith("#")]
    return f"; died in {' < '.join(frames[1:13])}"
