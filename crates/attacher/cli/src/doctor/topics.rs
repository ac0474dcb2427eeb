//! The further members of a check in `midair doctor --json`: why it matters, what was inspected,
//! and how certain the answer is.

/// The properties of a check that are the same wherever it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Topic {
    /// The beginning of the check's name.
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

/// The first topic with whose name the check's name begins is used. So longer names come before
/// their own beginnings.
#[rustfmt::skip]
const TOPICS: &[Topic] = &[
    // Ours.
    certain("libraries", "attach", "they are what is sent into the target", "the files beside the program, or in it"),
    certain("installation", "attach", "whoever can change them runs code in targets", "owners and modes of the directories above"),
    certain("tools", "attach", "a tool library is loaded into the target", "ROCPROF_ATTACH_TOOL_LIBRARY and the files that it names"),
    certain("inspection", "attach", "a process that does not answer cannot be judged", "/proc/PID, with a deadline"),
    // The process.
    certain("process", "attach", "there has to be one, and no kernel thread or zombie", "/proc/PID/stat, /proc/PID/status"),
    certain("permission", "attach", "the kernel asks for the right to trace", "users, capabilities and namespaces of both sides, kernel.yama.ptrace_scope, access(2) of /proc/PID/mem"),
    certain("rights", "attach", "a tool must not get rights that its owner lacks", "/proc/PID/status: Uid, CapPrm"),
    certain("tracer", "attach", "a thread has one tracer at most", "/proc/PID/status: TracerPid"),
    certain("state", "attach", "a stopped process runs nothing of ours", "/proc/PID/status: State"),
    likely("seccomp", "container", "entering makes system calls in the target", "/proc/PID/status: Seccomp, Seccomp_filters; the filter itself where it can be read"),
    certain("mappings", "attach", "libraries are found by them, and their number is limited", "/proc/PID/maps, vm.max_map_count"),
    certain("machine", "attach", "code of ours has to run there", "the ELF header of /proc/PID/exe"),
    certain("C library", "attach", "our libraries are linked with it", "the C library's file in /proc/PID/maps"),
    certain("thread manager", "attach", "some sanitizers and translators crash at a thread that they did not make", "file names in /proc/PID/maps; functions that the program exports"),
    certain("runtime", "attach", "what is recorded are calls of a GPU runtime", "/proc/PID/maps"),
    certain("other runtime", "attach", "one runtime is recorded at a time", "/proc/PID/maps"),
    certain("table source", "attach", "dispatch tables are found through it", "symbols of the mapped libraries"),
    likely("other profilers", "attach", "two profilers may hook the same tables", "/proc/PID/maps"),
    certain("worker thread", "attach", "an earlier attach left it for the next one", "names and states of the threads"),
    certain("own session", "attach", "a process that profiles itself has one session", "our state in the target's memory"),
    likely("listener", "attach", "with one nothing has to be stopped", "threads' names and system calls, /proc/net/unix"),
    certain("thread limit", "attach", "one thread is made in the target", "/proc/PID/limits: Max processes; threads of its user"),
    likely("threads", "attach", "one of them has to be where it is safe to enter", "/proc/PID/task/*/syscall"),
    certain("namespaces", "container", "paths and numbers differ there; libraries are sent as descriptors", "/proc/PID/ns"),
    likely("headroom", "container", "libraries and the spool take memory, mappings and descriptors there", "limits, mappings and memory cgroups of both sides"),
    certain("limits", "container", "they bound what an attach needs", "/proc/PID/limits"),
    certain("descriptors", "container", "libraries and the spool are passed as such", "/proc/PID/limits: Max open files; /proc/PID/fd"),
    certain("address space", "container", "libraries and the spool are mapped", "/proc/PID/limits: Max address space"),
    certain("memory cgroup", "container", "a cgroup at its limit has the kernel kill a process", "memory.max and memory.current of its cgroups"),
    certain("entering", "attach", "no entry path is open", "the engine's own inspection"),
    certain("clock", "attach", "each record has two readings of it", "the current clocksource; /proc/PID/ns/time"),
    // What is counted.
    likely("counters: library", "counters", "packets that count are made by AMD's library", "files below ROCM_PATH and /opt"),
    certain("counters: profiler lock", "counters", "it keeps two profilers from one set of counters", "the driver, by an ioctl of /dev/kfd; our capabilities"),
    likely("counters: others", "counters", "work of others is counted, too", "/sys/class/kfd/kfd/proc"),
    certain("counters:", "counters", "the GPU has to be known, and its clock steady", "the driver's topology and power level in /sys"),
    // NVIDIA.
    certain("recording", "nvidia", "not all that HIP programs have is there in CUDA", "the options"),
    certain("GPU counters", "nvidia", "--gpu-metrics samples the whole GPU", "/proc/driver/nvidia: params, capabilities; our own; names of processes"),
    certain("CUDA driver", "nvidia", "CUPTI has to know it", "the name of libcuda in /proc/PID/maps"),
    likely("CUPTI", "nvidia", "CUDA is recorded through it", "the process's libraries, the toolkits and Python packages that it can reach"),
    likely("CUDA profilers", "nvidia", "CUPTI serves one at a time", "environment and libraries of the process"),
    likely("torch.profiler", "nvidia", "its first start takes seconds, in which no kernel runs", "the Python frames in the process's memory"),
    certain("CUDA debugger", "nvidia", "CUPTI may refuse beside it", "/proc/PID/maps"),
    likely("MPS", "nvidia", "kernels of others may run beside its own", "/proc/PID/environ"),
    certain("NVIDIA driver", "nvidia", "without it there is no CUDA process", "/proc/driver/nvidia/version"),
    // What is written.
    likely("results", "outputs", "the attacher writes them, with its user's rights", "access(2) and statvfs(2) of the directory"),
    likely("spool", "outputs", "records wait in memory until they are collected", "/proc/meminfo: MemAvailable"),
    // The machine.
    certain("kernel", "machine", "entering depends on its system calls", "the calls themselves, with arguments that do nothing"),
    certain("tracing", "machine", "the kernel asks for the right to trace", "kernel.yama.ptrace_scope; our effective capabilities"),
    certain("own seccomp filters", "container", "a filter of midair's own may refuse ptrace, and hides how others are filtered", "/proc/self/status: Seccomp, Seccomp_filters; a request to ptrace that the kernel answers in vain"),
    certain("pid namespace", "container", "processes outside of it have no number here", "/proc/self/ns/pid"),
    certain("/proc", "container", "processes that it hides cannot be found", "/proc/self/mountinfo"),
    likely("GPU processes", "machine", "they are what can be attached to", "/proc/PID/maps of all that can be read"),
    certain("AMD GPUs", "machine", "kernels and counters are those of GPUs", "/sys/class/kfd/kfd/topology"),
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
