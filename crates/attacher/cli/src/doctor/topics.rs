//! The further members of a check in `midair doctor --json`: why it matters, what was inspected,
//! and how certain the answer is.

/// The properties of a check that are the same wherever it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Topic {
    /// The start of the check's name.
    name: &'static str,
    /// The area that it belongs to: attach, counters, nvidia, outputs, container or machine.
    pub(super) area: &'static str,
    /// Why an attach depends on it.
    pub(super) cause: &'static str,
    /// What was read, or asked.
    pub(super) evidence: &'static str,
    /// It is `certain` where the kernel or the file says so, and `likely` where it is concluded.
    pub(super) confidence: &'static str,
}

const fn certain(
    name: &'static str,
    area: &'static str,
    cause: &'static str,
    evidence: &'static str,
) -> Topic {
    Topic {
        name,
        area,
        cause,
        evidence,
        confidence: "certain",
    }
}

const fn likely(
    name: &'static str,
    area: &'static str,
    cause: &'static str,
    evidence: &'static str,
) -> Topic {
    Topic {
        name,
        area,
        cause,
        evidence,
        confidence: "likely",
    }
}

/// The first topic with whose name the check's name starts is used. So longer names come before
/// their own beginnings.
#[rustfmt::skip]
const TOPICS: &[Topic] = &[
    // Ours.
    certain("libraries", "attach", "midair sends them into the target", "the files next to the program, or in it"),
    certain("installation", "attach", "a user who can change them can run code in targets", "owners and modes of the directories above"),
    certain("tools", "attach", "a tool library is loaded into the target", "ROCPROF_ATTACH_TOOL_LIBRARY and the files that it names"),
    certain("inspection", "attach", "a process that does not answer cannot be checked", "/proc/PID, with a deadline"),
    // The process.
    certain("process", "attach", "the target must exist, and be no kernel thread or zombie", "/proc/PID/stat, /proc/PID/status"),
    certain("permission", "attach", "the kernel requires the right to trace", "users, capabilities and namespaces of both sides, kernel.yama.ptrace_scope, access(2) of /proc/PID/mem"),
    certain("rights", "attach", "a tool must not gain privileges that its owner lacks", "/proc/PID/status: Uid, CapPrm"),
    certain("tracer", "attach", "a thread has at most one tracer", "/proc/PID/status: TracerPid"),
    certain("state", "attach", "a stopped process cannot run midair's code", "/proc/PID/status: State"),
    likely("seccomp", "container", "entering makes system calls in the target", "/proc/PID/status: Seccomp, Seccomp_filters; the filter itself if readable"),
    certain("mappings", "attach", "midair finds libraries in the mappings, and their number is limited", "/proc/PID/maps, vm.max_map_count"),
    certain("machine", "attach", "midair's code must run there", "the ELF header of /proc/PID/exe"),
    certain("C library", "attach", "midair's libraries link against it", "the C library's file in /proc/PID/maps"),
    certain("thread manager", "attach", "some sanitizers and translators crash on a thread that they did not create", "file names in /proc/PID/maps; functions that the program exports"),
    certain("runtime", "attach", "midair records a GPU runtime", "/proc/PID/maps"),
    certain("other runtime", "attach", "midair records one runtime at a time", "/proc/PID/maps"),
    certain("table source", "attach", "midair finds dispatch tables through it", "symbols of the mapped libraries"),
    likely("other profilers", "attach", "two profilers may hook the same tables", "/proc/PID/maps"),
    certain("worker thread", "attach", "an earlier attach leaves it parked for the next one", "names and states of the threads"),
    certain("own session", "attach", "a process that profiles itself already has a session", "midair's state in the target's memory"),
    likely("listener", "attach", "with a listener, no thread must be stopped", "threads' names and system calls, /proc/net/unix"),
    certain("thread limit", "attach", "midair creates one thread in the target", "/proc/PID/limits: Max processes; threads of its user"),
    likely("threads", "attach", "one of them must be at a safe place to enter", "/proc/PID/task/*/syscall"),
    certain("namespaces", "container", "paths and pids differ there; midair sends libraries as descriptors", "/proc/PID/ns"),
    likely("headroom", "container", "libraries and the spool take memory, mappings and descriptors there", "limits, mappings and memory cgroups of both sides"),
    certain("limits", "container", "they limit the resources of an attach", "/proc/PID/limits"),
    certain("descriptors", "container", "midair passes libraries and the spool as descriptors", "/proc/PID/limits: Max open files; /proc/PID/fd"),
    certain("address space", "container", "midair maps libraries and the spool", "/proc/PID/limits: Max address space"),
    certain("memory cgroup", "container", "the kernel kills a process when its cgroup reaches the limit", "memory.max and memory.current of its cgroups"),
    certain("entering", "attach", "no entry path is open", "the engine's own inspection"),
    certain("clock", "attach", "each record reads the clock twice", "the current clocksource; /proc/PID/ns/time"),
    // What is counted.
    likely("counters: library", "counters", "AMD's library makes the counter packets", "files below ROCM_PATH and /opt"),
    certain("counters: profiler lock", "counters", "it keeps two profilers from using the same counters", "the driver, by an ioctl of /dev/kfd; midair's capabilities"),
    likely("counters: others", "counters", "counters include the work of other processes", "/sys/class/kfd/kfd/proc"),
    certain("thread trace:", "counters", "midair traces threads of gfx9, for AMD's decoder", "the driver's topology in /sys; files of ROCm and ROCPROF_ATT_LIBRARY_PATH"),
    certain("samples:", "counters", "one process samples a GPU with one setting at a time", "the driver, by an ioctl of /dev/kfd"),
    certain("counters:", "counters", "the GPU must be known, and its clock stable", "the driver's topology and power level in /sys"),
    // NVIDIA.
    certain("recording", "nvidia", "not every feature for HIP exists for CUDA", "the options"),
    certain("GPU counters", "nvidia", "--gpu-metrics samples the whole GPU", "/proc/driver/nvidia: params, capabilities; midair's capabilities; names of processes"),
    certain("CUDA driver", "nvidia", "CUPTI must support it", "the name of libcuda in /proc/PID/maps"),
    likely("CUPTI", "nvidia", "midair records CUDA through it", "the process's libraries, the toolkits and Python packages that it can reach"),
    likely("CUDA profilers", "nvidia", "CUPTI serves one at a time", "environment and libraries of the process"),
    likely("torch.profiler", "nvidia", "its first start takes seconds, during which no kernel runs", "the Python frames in the process's memory"),
    certain("CUDA debugger", "nvidia", "CUPTI may refuse to run together with it", "/proc/PID/maps"),
    likely("MPS", "nvidia", "kernels of other processes may run concurrently", "/proc/PID/environ"),
    certain("NVIDIA driver", "nvidia", "only a process with libcuda is a CUDA process", "/proc/driver/nvidia/version"),
    // What is written.
    likely("results", "outputs", "midair writes them, with its user's permissions", "access(2) and statvfs(2) of the directory"),
    likely("spool", "outputs", "records stay in memory until midair collects them", "/proc/meminfo: MemAvailable"),
    // The machine.
    certain("kernel", "machine", "entering depends on its system calls", "the calls themselves, with harmless arguments"),
    certain("tracing", "machine", "the kernel requires the right to trace", "kernel.yama.ptrace_scope; midair's effective capabilities"),
    certain("own seccomp filters", "container", "midair's own filter may refuse ptrace, and hides other processes' filters", "/proc/self/status: Seccomp, Seccomp_filters; a harmless ptrace request"),
    certain("real-time priority", "machine", "a thread that midair holds must get its turn at once", "sched_setscheduler(2) for a thread of midair, undone at once"),
    certain("pid namespace", "container", "processes outside it have no pid here", "/proc/self/ns/pid"),
    certain("/proc", "container", "midair cannot find processes that it hides", "/proc/self/mountinfo"),
    likely("GPU processes", "machine", "midair attaches to GPU processes", "/proc/PID/maps of all readable processes"),
    certain("AMD GPUs", "machine", "only GPUs run kernels and have counters", "/sys/class/kfd/kfd/topology"),
];

/// The topic of a check that has no description yet.
const OTHER: Topic = likely("", "attach", "", "");

/// Returns the topic of the check with this name.
pub(super) fn of(name: &str) -> &'static Topic {
    let begins = |topic: &&Topic| name.starts_with(topic.name);
    TOPICS.iter().find(begins).unwrap_or(&OTHER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_topic_hides_one_behind_it() {
        for topic in TOPICS {
            assert_eq!(of(topic.name), topic, "{}", topic.name);
            assert!(!topic.cause.is_empty() && !topic.evidence.is_empty());
        }
        assert_eq!(of("counters: GPU 3").area, "counters");
        assert_eq!(of("listener's socket").area, "attach");
    }
}
