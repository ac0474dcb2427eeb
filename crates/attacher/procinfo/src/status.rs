//! The parser of `/proc/TID/status`.

use crate::{Pid, Tid, decimal, hex};

/// The fields that are used. Those that an old kernel does not print have their neutral value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// State letter, as in [`crate::stat::Stat::state`]; 0 when missing.
    pub state: u8,
    /// Process (thread group) id.
    pub tgid: Option<Pid>,
    /// The parent process. None where the parent is outside of our pid namespace.
    pub parent: Option<Pid>,
    /// Thread id.
    pub pid: Option<Tid>,
    /// The thread that traces this one, if any.
    pub tracer: Option<Tid>,
    /// Real, effective, saved and file-system user id.
    pub uid: [u32; 4],
    /// The same for groups.
    pub gid: [u32; 4],
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Address space in use, bytes; 0 when it has none.
    pub vm_size: u64,
    /// Threads of the process.
    pub threads: u64,
    /// Thread ids from the outermost pid namespace that we see to the target's own.
    pub ns_pid: Vec<Tid>,
    /// The same for the process id.
    pub ns_tgid: Vec<Pid>,
    /// Signals pending for this thread.
    pub sig_pending: u64,
    /// Signals pending for the process.
    pub shared_pending: u64,
    /// Blocked signals.
    pub sig_blocked: u64,
    /// Ignored signals.
    pub sig_ignored: u64,
    /// Signals with a handler.
    pub sig_caught: u64,
    /// Permitted capabilities.
    pub cap_permitted: u64,
    /// Effective capabilities.
    pub cap_effective: u64,
    /// Ambient capabilities. They are kept over an exec, so they come from the user.
    pub cap_ambient: u64,
    /// Whether the process has given up gaining rights by an exec (`NoNewPrivs`). Landlock needs it,
    /// too, unless the process is an administrator's.
    pub no_new_privs: bool,
    /// The seccomp mode: 0 none, 1 strict, 2 filter.
    pub seccomp: u32,
    /// The number of seccomp filters. 0 where the kernel does not print it (before Linux 5.9).
    pub seccomp_filters: u32,
    /// Whether the shadow stack is on (`x86_Thread_features: shstk`).
    pub shadow_stack: bool,
    /// How often the thread went to sleep by itself.
    pub voluntary_switches: u64,
    /// The processors that it may run on, as the kernel lists them.
    pub cpus_allowed: Vec<u8>,
}

impl Status {
    /// Returns the thread's id in its own pid namespace.
    pub fn own_tid(&self) -> Option<Tid> {
        self.ns_pid.last().copied().or(self.pid)
    }

    /// Whether this process has given up rights that `other` has, as far as the kernel shows it:
    /// filters are counted, not compared.
    pub fn is_more_confined_than(&self, other: &Status) -> bool {
        (self.no_new_privs && !other.no_new_privs)
            || (self.seccomp != 0 && other.seccomp == 0)
            || self.seccomp_filters > other.seccomp_filters
    }
}

/// Parses the file.
pub fn parse(text: &[u8]) -> Status {
    let mut status = Status::default();
    for line in text.split(|&byte| byte == b'\n') {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else {
            continue;
        };
        let value = line[colon + 1..].trim_ascii();
        match &line[..colon] {
            b"State" => status.state = value.first().copied().unwrap_or(0),
            b"Tgid" => status.tgid = decimal(value),
            b"PPid" => status.parent = decimal(value),
            b"Pid" => status.pid = decimal(value),
            b"TracerPid" => status.tracer = decimal(value),
            b"Uid" => status.uid = four(value),
            b"Gid" => status.gid = four(value),
            b"Groups" => status.groups = words(value).filter_map(decimal).collect(),
            b"VmSize" => {
                let size = value.strip_suffix(b" kB").and_then(decimal::<u64>);
                status.vm_size = size.unwrap_or(0).saturating_mul(1024);
            }
            b"Threads" => status.threads = decimal(value).unwrap_or(0),
            b"NSpid" => status.ns_pid = words(value).filter_map(decimal).collect(),
            b"NStgid" => status.ns_tgid = words(value).filter_map(decimal).collect(),
            b"SigPnd" => status.sig_pending = hex(value).unwrap_or(0),
            b"ShdPnd" => status.shared_pending = hex(value).unwrap_or(0),
            b"SigBlk" => status.sig_blocked = hex(value).unwrap_or(0),
            b"SigIgn" => status.sig_ignored = hex(value).unwrap_or(0),
            b"SigCgt" => status.sig_caught = hex(value).unwrap_or(0),
            b"CapPrm" => status.cap_permitted = hex(value).unwrap_or(0),
            b"CapAmb" => status.cap_ambient = hex(value).unwrap_or(0),
            b"CapEff" => status.cap_effective = hex(value).unwrap_or(0),
            b"NoNewPrivs" => status.no_new_privs = value != b"0",
            b"Seccomp" => status.seccomp = decimal(value).unwrap_or(0),
            b"Seccomp_filters" => status.seccomp_filters = decimal(value).unwrap_or(0),
            b"x86_Thread_features" => {
                status.shadow_stack = words(value).any(|word| word == b"shstk")
            }
            b"voluntary_ctxt_switches" => status.voluntary_switches = decimal(value).unwrap_or(0),
            b"Cpus_allowed" => status.cpus_allowed = value.to_vec(),
            _ => {}
        }
    }
    status
}

/// Converts the processor mask to the form that system calls take: bit n of the little-endian bytes
/// stands for processor n.
pub fn cpu_mask(cpus_allowed: &[u8]) -> Vec<u8> {
    // The text looks like "00000000,00000003": groups of 32 bits, the highest first.
    let mut bytes = Vec::new();
    for group in cpus_allowed.rsplit(|&byte| byte == b',') {
        let Some(bits) = hex(group.trim_ascii()).and_then(|bits| u32::try_from(bits).ok()) else {
            return Vec::new();
        };
        bytes.extend_from_slice(&bits.to_le_bytes());
    }
    while bytes.len() % 8 != 0 {
        bytes.push(0);
    }
    bytes
}

fn words(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
}

fn four(value: &[u8]) -> [u32; 4] {
    let mut ids = [0; 4];
    for (id, word) in ids.iter_mut().zip(words(value)) {
        *id = decimal(word).unwrap_or(u32::MAX);
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields() {
        let got = parse(
            b"Name:\ta:b\nState:\tS (sleeping)\nTgid:\t7\nPid:\t8\nTracerPid:\t9\nUid:\t1000\t0\t1\t2\nNSpid:\t8\t3\nGroups:\t4 1000 \nVmSize:\t      12 kB\nThreads:\t3\n\
              SigBlk:\tfffffffe7ffbfeff\nNoNewPrivs:\t1\nSeccomp:\t2\nx86_Thread_features:\tshstk wrss \nCpus_allowed:\tffff,ffffffff\n\
              voluntary_ctxt_switches:\t12\nCapEff:\t000001ffffffffff\n",
        );
        assert_eq!((got.state, got.tgid), (b'S', Pid::new(7)));
        assert_eq!((got.pid, got.tracer), (Tid::new(8), Tid::new(9)));
        assert_eq!(
            (got.uid, got.seccomp, got.own_tid()),
            ([1000, 0, 1, 2], 2, Tid::new(3))
        );
        assert_eq!(got.sig_blocked, 0xffff_fffe_7ffb_feff);
        assert_eq!(
            (got.groups, got.vm_size, got.threads),
            (vec![4, 1000], 12 * 1024, 3)
        );
        assert!(got.shadow_stack && got.no_new_privs);
        assert_eq!(got.voluntary_switches, 12);
        assert_eq!(
            cpu_mask(&got.cpus_allowed),
            [255, 255, 255, 255, 255, 255, 0, 0]
        );
    }

    #[test]
    fn a_more_confined_process_is_told_from_an_equal_one() {
        let of = |text: &str| parse(text.as_bytes());
        let free = of("NoNewPrivs:\t0\nSeccomp:\t0\nSeccomp_filters:\t0\n");
        let filtered = of("NoNewPrivs:\t0\nSeccomp:\t2\nSeccomp_filters:\t1\n");
        let twice = of("NoNewPrivs:\t0\nSeccomp:\t2\nSeccomp_filters:\t2\n");
        let old = of("NoNewPrivs:\t1\nSeccomp:\t2\n");
        for (one, other, is) in [
            (&filtered, &free, true),
            (&twice, &filtered, true),
            (&old, &free, true),
            (&old, &filtered, true),
            (&free, &free, false),
            (&filtered, &filtered, false),
            (&free, &twice, false),
        ] {
            assert_eq!(one.is_more_confined_than(other), is, "{one:?} {other:?}");
        }
    }

    #[test]
    fn nothing_and_nonsense() {
        assert_eq!(parse(b""), Status::default());
        assert_eq!(parse(b"Tgid:\t-\nUid:\tx\n:\n").uid[0], u32::MAX);
        assert_eq!(cpu_mask(b"fffffffff"), [0_u8; 0]);
        assert_eq!(cpu_mask(b"3"), [3, 0, 0, 0, 0, 0, 0, 0]);
    }
}
