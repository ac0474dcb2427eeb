//! The parser of `/proc/TID/stat`.

use crate::{Pid, decimal};

/// The fields of the line that are used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// The name of the thread. It may contain any byte, `)` too.
    pub comm: Vec<u8>,
    /// One letter: R running, S sleeping, D uninterruptible, T stopped by job control, t stopped by
    /// a tracer, Z zombie, X dead.
    pub state: u8,
    /// The parent process. None when the parent is outside of our pid namespace.
    pub parent: Option<Pid>,
    /// The kernel's `PF_` flags.
    pub flags: u64,
    /// User and system time, in clock ticks.
    pub cpu_ticks: u64,
    /// Start time since boot, in clock ticks. Together with the id it identifies one thread for
    /// good.
    pub start_ticks: u64,
    /// The processor that the thread runs on, or ran on last.
    pub processor: u64,
    /// The kernel's `SCHED_` policy: 0 for ordinary threads, 1 and 2 for real-time ones, 6 for
    /// deadlines.
    pub policy: u64,
}

impl Stat {
    /// Whether the thread runs before all ordinary threads (`SCHED_FIFO`, `SCHED_RR`,
    /// `SCHED_DEADLINE`). The application relies on it.
    pub fn is_real_time(&self) -> bool {
        matches!(self.policy, 1 | 2 | 6)
    }
    /// Whether the thread is one of the kernel's own (`PF_KTHREAD`).
    pub fn is_kernel_thread(&self) -> bool {
        self.flags & 0x0020_0000 != 0
    }
    /// Whether the thread has ended and only its status is left.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// Parses the line. The name ends at the *last* closing bracket.
pub fn parse(text: &[u8]) -> Option<Stat> {
    let open = text.iter().position(|&byte| byte == b'(')?;
    let close = text.iter().rposition(|&byte| byte == b')')?;
    let comm = text.get(open + 1..close)?.to_vec();
    let fields: Vec<&[u8]> = text
        .get(close + 1..)?
        .split(u8::is_ascii_whitespace)
        .filter(|field| !field.is_empty())
        .collect();
    // Field 3 of proc(5) is the first after the name.
    let field = |number: usize| fields.get(number - 3).copied();
    let number = |at: usize| field(at).and_then(decimal::<u64>);
    Some(Stat {
        comm,
        state: *field(3)?.first()?,
        // 0 stands for a parent outside of our pid namespace.
        parent: Pid::try_from(field(4).and_then(decimal::<i32>)?).ok(),
        flags: number(9)?,
        cpu_ticks: number(14)?.saturating_add(number(15)?),
        start_ticks: number(22)?,
        processor: number(39).unwrap_or(0),
        policy: number(41).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces() {
        let got =
            parse(b"42 (a) R 1 (\xff) S 1 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 2 0 900 1 2 3\n")
                .unwrap();
        assert_eq!(got.comm, b"a) R 1 (\xff");
        assert_eq!(
            (got.state, got.flags, got.cpu_ticks, got.start_ticks),
            (b'S', 4_194_560, 11, 900)
        );
        assert!(!got.is_kernel_thread() && !got.is_dead());
    }

    #[test]
    fn a_kernel_thread() {
        let got =
            parse(b"2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 2 0 0").unwrap();
        assert!(got.is_kernel_thread());
    }

    #[test]
    fn too_short_or_no_name() {
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"1 x S"), None);
        assert_eq!(parse(b"1 (x) S 1 2"), None);
        assert_eq!(parse(b"1 )x( S 1 2"), None);
    }
}
