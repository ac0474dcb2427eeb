"""What the machine has: its kernel, what of ptrace works, its GPU. Nothing of midair's is used."""

import ctypes
import os
import platform
import signal
import subprocess
import time

SEIZE, INTERRUPT, GETREGSET, SYSCALL_INFO, DETACH = 0x4206, 0x4207, 0x4204, 0x420E, 17


class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def ptrace_features():
    """What an attach needs, tried on a child: name to whether it works."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    libc.waitpid.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
    child = subprocess.Popen(["sleep", "20"])
    time.sleep(0.1)
    status, room = ctypes.c_int(0), ctypes.create_string_buffer(16384)
    tried = {}
    try:
        tried["seize"] = libc.ptrace(SEIZE, child.pid, None, None) == 0
        tried["interrupt"] = libc.ptrace(INTERRUPT, child.pid, None, None) == 0
        tried["stop seen"] = tried["interrupt"] and libc.waitpid(child.pid, ctypes.addressof(status), 0x40000000) == child.pid
        if tried["stop seen"]:
            for name, which in (("registers", 1), ("extended registers", 0x202)):
                vector = Vector(ctypes.addressof(room), len(room))
                tried[name] = libc.ptrace(GETREGSET, child.pid, which, ctypes.addressof(vector)) == 0
            tried["system call told"] = libc.ptrace(SYSCALL_INFO, child.pid, 88, ctypes.addressof(room)) > 0
            tried["detach"] = libc.ptrace(DETACH, child.pid, None, None) == 0
        tried["/proc/PID/syscall"] = bool(read(f"/proc/{child.pid}/syscall"))
        tried["pidfd"] = hasattr(os, "pidfd_open") and os.close(os.pidfd_open(child.pid)) is None
    except OSError as error:
        tried[f"error {error}"] = False
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    return tried


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def said(*words):
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False).stdout.strip()
    except OSError:
        return ""


def machine():
    """One line for each fact that numbers depend on."""
    return {
        "kernel": platform.release(),
        "glibc": platform.libc_ver()[1],
        "processors": str(os.cpu_count()),
        "gpu": said("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").replace("\n", "; "),
        "nvcc": said("nvcc", "--version").splitlines()[-1:] and said("nvcc", "--version").splitlines()[-1],
    }
