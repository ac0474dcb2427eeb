//! What the listener reads from `/proc` about its own process and about attachers.

use std::ops::Range;
use std::os::unix::ffi::OsStrExt;

/// The fields of `/proc/TID/status` that decide who may attach.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Status {
    /// Real, effective, saved and file-system user ids.
    pub(crate) uid: [u32; 4],
    /// The same for groups.
    pub(crate) gid: [u32; 4],
    /// The process ids, from the pid namespace of `/proc` to the process's own.
    pub(crate) ns_tgid: Vec<i32>,
    /// Permitted capabilities.
    pub(crate) permitted: u64,
    /// Effective capabilities.
    pub(crate) effective: u64,
    /// What the process has given up for good.
    pub(crate) sandbox: Sandbox,
    /// Whether it has ended (`Z` or `X`).
    pub(crate) ended: bool,
}

/// The part of a sandbox that the kernel shows to everybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sandbox {
    /// Whether `no_new_privs` is set.
    pub(crate) no_new_privs: bool,
    /// Seccomp's mode: 0 none, 1 strict, 2 filters.
    pub(crate) seccomp: u32,
    /// The number of seccomp filters. 0 on kernels before 5.9, which do not print it.
    pub(crate) filters: u32,
}

impl Sandbox {
    /// Whether this sandbox is tighter than `other`, as far as that can be determined: filters are
    /// counted, not compared.
    pub(crate) fn is_tighter_than(&self, other: &Sandbox) -> bool {
        (self.no_new_privs && !other.no_new_privs)
            || (self.seccomp != 0 && other.seccomp == 0)
            || (self.seccomp == 1 && other.seccomp != 1)
            || self.filters > other.filters
    }
}

/// Parses the file. `None` when a field is missing.
pub(crate) fn parse_status(text: &[u8]) -> Option<Status> {
    let text = std::str::from_utf8(text.get(..).unwrap_or_default()).map_or_else(
        |_| String::from_utf8_lossy(text).into_owned(),
        str::to_owned,
    );
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
    };
    let four = |name: &str| -> Option<[u32; 4]> {
        let ids: Vec<u32> = field(name)?
            .split_ascii_whitespace()
            .map(str::parse)
            .collect::<Result<_, _>>()
            .ok()?;
        ids.try_into().ok()
    };
    // A kernel without these features prints no such lines.
    let number = |name: &str| field(name).map_or(Some(0), |text| text.parse::<u32>().ok());
    let mask = |name: &str| u64::from_str_radix(field(name)?, 16).ok();
    Some(Status {
        uid: four("Uid")?,
        gid: four("Gid")?,
        ns_tgid: field("NStgid")?
            .split_ascii_whitespace()
            .map(str::parse)
            .collect::<Result<_, _>>()
            .ok()?,
        permitted: mask("CapPrm")?,
        effective: mask("CapEff")?,
        sandbox: Sandbox {
            no_new_privs: number("NoNewPrivs")? != 0,
            seccomp: number("Seccomp")?,
            filters: number("Seccomp_filters")?,
        },
        ended: field("State")?.starts_with(['Z', 'X']),
    })
}

/// Returns the status of a process or thread.
pub(crate) fn status(of: &str) -> Option<Status> {
    parse_status(&std::fs::read(format!("/proc/{of}/status")).ok()?)
}

/// Returns the number of seccomp filters of this thread. Kernels before 5.9 show only whether there
/// are any.
pub(crate) fn filters() -> u32 {
    let sandbox = status("thread-self").unwrap_or_default().sandbox;
    match sandbox.filters {
        0 => sandbox.seccomp,
        filters => filters,
    }
}

/// Returns when the process `of` started, in clock ticks since boot (field 22 of `/proc/PID/stat`).
pub(crate) fn start_ticks(of: &str) -> Option<u64> {
    stat_field(of, 22)?.parse().ok()
}

/// Returns the state of a thread of this process: `R` while it runs or wants to.
pub(crate) fn state(tid: i32) -> Option<u8> {
    stat_field(&format!("self/task/{tid}"), 3)?.bytes().next()
}

/// Returns a field of `/proc/OF/stat` that comes after the name. Fields are numbered from 1.
fn stat_field(of: &str, number: usize) -> Option<String> {
    let text = std::fs::read(format!("/proc/{of}/stat")).ok()?;
    // The name may contain anything, even brackets. So fields are counted from the last bracket,
    // which ends field 2.
    let end = text.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(text.get(end + 1..)?).ok()?;
    let field = rest.split_ascii_whitespace().nth(number.checked_sub(3)?)?;
    Some(field.to_owned())
}

/// Returns the threads of this process.
pub(crate) fn threads() -> Vec<i32> {
    let Ok(directory) = std::fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    directory
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

/// Returns the name of a thread of this process.
pub(crate) fn name(tid: i32) -> Option<Vec<u8>> {
    let mut name = std::fs::read(format!("/proc/self/task/{tid}/comm")).ok()?;
    name.pop_if(|last| *last == b'\n');
    Some(name)
}

/// Returns the address that a thread of this process waits on, if it is in a futex call.
pub(crate) fn futex_address(tid: i32) -> Option<usize> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{tid}/syscall")).ok()?;
    let mut words = text.split_ascii_whitespace();
    if words.next()?.parse::<i64>().ok()? != libc::SYS_futex {
        return None;
    }
    usize::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()
}

/// Whether a range lies in private anonymous memory of this process that may be read and written.
pub(crate) fn is_anonymous_and_writable(range: &Range<usize>) -> bool {
    // The calling thread's file is read, because the main thread may have ended, and then its own
    // is empty.
    let text = std::fs::read("/proc/thread-self/maps").unwrap_or_default();
    covers(&text, range)
}

/// Whether such mappings in `text`, the contents of a `maps` file, cover a range.
fn covers(text: &[u8], range: &Range<usize>) -> bool {
    let mut covered = range.start;
    for line in text.split(|byte| *byte == b'\n') {
        let Some(mapped) = anonymous_and_writable(line) else {
            continue;
        };
        if mapped.contains(&covered) {
            covered = mapped.end;
        }
    }
    covered >= range.end
}

/// Returns the addresses in a line of `maps`, if the line is of such memory.
fn anonymous_and_writable(line: &[u8]) -> Option<Range<usize>> {
    let line = std::str::from_utf8(line).ok()?;
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let access = fields.next()?;
    let inode = fields.nth(2)?;
    let name = fields.next().unwrap_or_default();
    // Memory may have a name (`prctl(PR_SET_VMA_ANON_NAME)`). The stacks of threads have none.
    let good = access.starts_with("rw")
        && access.ends_with('p')
        && inode == "0"
        && (name.is_empty() || name.starts_with("[anon:"));
    let address = |text| usize::from_str_radix(text, 16).ok();
    good.then_some(address(start)?..address(end)?)
}

/// Whether a process is in the user namespace of this one. `None` when the kernel does not say.
pub(crate) fn same_user_namespace(pid: i32) -> Option<bool> {
    let own = std::fs::read_link("/proc/self/ns/user").ok()?;
    let its = std::fs::read_link(format!("/proc/{pid}/ns/user")).ok()?;
    are_same(own.as_os_str().as_bytes(), its.as_os_str().as_bytes())
}

/// Whether two namespaces are one. Linux 5.10 gives an empty text where a newer kernel says that this
/// process may not know.
fn are_same(own: &[u8], its: &[u8]) -> Option<bool> {
    (!own.is_empty() && !its.is_empty()).then_some(own == its)
}

/// Whether user ids are mapped equally in both processes. This is weaker than
/// [`same_user_namespace`], but everybody can read it.
pub(crate) fn same_user_map(pid: i32) -> bool {
    let map = |of: &str| std::fs::read(format!("/proc/{of}/uid_map")).ok();
    let own = map("self");
    own.is_some() && own == map(&pid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::filter;

    #[test]
    fn the_filters_of_this_thread_are_counted() {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let before = filters();
                for more in 1..=3 {
                    filter(libc::SYS_swapon, None, libc::SECCOMP_RET_ALLOW);
                    assert_eq!(filters(), before + more);
                }
            });
        });
    }

    /// The time since boot, in clock ticks.
    fn now() -> u64 {
        let text = std::fs::read_to_string("/proc/uptime").unwrap();
        let seconds: f64 = text.split(' ').next().unwrap().parse().unwrap();
        // SAFETY: the call takes a number.
        (seconds * unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64) as u64
    }

    #[test]
    fn a_process_began_when_it_was_made() {
        let before = now();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let after = now();
        let began = start_ticks(&child.id().to_string());
        child.kill().unwrap();
        child.wait().unwrap();
        let began = began.unwrap();
        assert!(
            (before.saturating_sub(1)..=after + 1).contains(&began),
            "{before} {began} {after}"
        );
    }

    #[test]
    fn of_a_process_that_is_not_there_nothing_is_known() {
        assert_eq!(status("0"), None);
        assert_eq!(start_ticks("0"), None);
        assert_eq!(same_user_namespace(0), None);
        assert!(!same_user_map(0));
        assert_eq!((state(0), name(0), futex_address(0)), (None, None, None));
    }

    #[test]
    fn a_namespace_without_text_is_unknown() {
        assert_eq!(are_same(b"user:[1]", b""), None);
        assert_eq!(are_same(b"user:[1]", b"user:[2]"), Some(false));
        assert_eq!(are_same(b"user:[1]", b"user:[1]"), Some(true));
    }

    #[test]
    fn a_status_is_parsed_completely_or_not_at_all() {
        let text = b"Name:\t\xff Uid:\t1\nState:\tS (sleeping)\nUid:\t1000\t0\t1\t2\nGid:\t5\t6\t7\t8\nNStgid:\t70\t3\nCapPrm:\t00000000a80425fb\nCapEff:\t0\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n";
        let got = parse_status(text).unwrap();
        assert_eq!(got.uid, [1000, 0, 1, 2]);
        assert_eq!(got.gid, [5, 6, 7, 8]);
        assert_eq!(got.ns_tgid, [70, 3]);
        assert_eq!((got.permitted, got.effective), (0xa804_25fb, 0));
        assert!(!got.ended);
        let sandbox = Sandbox {
            no_new_privs: true,
            seccomp: 2,
            filters: 3,
        };
        assert_eq!(got.sandbox, sandbox);
        let old = String::from_utf8_lossy(text).replace("Seccomp_filters", "X");
        assert_eq!(parse_status(old.as_bytes()).unwrap().sandbox.filters, 0);
        let bad = old.replace("Seccomp:\t2", "Seccomp:\tx");
        assert_eq!(parse_status(bad.as_bytes()), None);
        let ended = old.replace("S (sleeping)", "Z (zombie)");
        assert!(parse_status(ended.as_bytes()).unwrap().ended);
        for missing in ["State:", "Uid:", "Gid:", "NStgid:", "CapPrm:", "CapEff:"] {
            let text = String::from_utf8_lossy(text).replace(&format!("\n{missing}"), "\nX:");
            assert_eq!(parse_status(text.as_bytes()), None, "{missing}");
        }
        assert_eq!(parse_status(b"Uid:\t1 2\n"), None);
    }

    #[test]
    fn only_private_anonymous_writable_memory_is_such() {
        let text = b"1000-2000 rw-p 00000000 00:00 0 \n2000-3000 rw-p 00000000 00:00 0 [anon:x]\n\
            3000-4000 r--p 00000000 00:00 0 \n4000-5000 rw-s 00000000 00:05 9 /dev/zero (deleted)\n\
            5000-6000 rw-p 00001000 08:01 7 /usr/lib/\xff.so\n6000-7000 rw-p 00000000 00:00 0\n";
        for (range, good) in [
            (0x1000..0x1001, true),
            (0x1800..0x3000, true),
            (0x2fff..0x3001, false),
            (0x3000..0x3010, false),
            (0x4000..0x4010, false),
            (0x5000..0x5010, false),
            (0x6ff0..0x7000, true),
            (0x6ff0..0x7001, false),
            (0x0..0x10, false),
        ] {
            assert_eq!(covers(text, &range), good, "{range:x?}");
        }
        let heap = Box::new([0_u8; 64]);
        let at = heap.as_ptr().addr();
        assert!(!is_anonymous_and_writable(&(at..usize::MAX)));
    }

    #[test]
    fn a_tighter_sandbox_is_told_from_an_equal_one() {
        let of = |no_new_privs: bool, seccomp: u32, filters: u32| Sandbox {
            no_new_privs,
            seccomp,
            filters,
        };
        let open = of(false, 0, 0);
        for tight in [
            of(true, 0, 0),
            of(false, 2, 1),
            of(true, 2, 1),
            of(false, 1, 0),
            // An old kernel.
            of(false, 2, 0),
        ] {
            assert!(tight.is_tighter_than(&open), "{tight:?}");
            assert!(!open.is_tighter_than(&tight), "{tight:?}");
            assert!(!tight.is_tighter_than(&tight), "{tight:?}");
        }
        assert!(of(false, 2, 3).is_tighter_than(&of(false, 2, 2)));
        assert!(of(false, 1, 0).is_tighter_than(&of(false, 2, 1)));
        assert!(of(true, 0, 0).is_tighter_than(&of(false, 2, 1)));
    }

    #[test]
    fn this_process_reads_its_own_files() {
        let own = std::process::id() as i32;
        assert!(threads().contains(&own));
        assert!(start_ticks("self").unwrap() > 0);
        // SAFETY: the call takes no arguments and cannot fail.
        assert_eq!(state(unsafe { libc::gettid() }), Some(b'R'));
        assert_eq!(status("self").unwrap().ns_tgid.last(), Some(&own));
        assert_eq!(same_user_namespace(own), Some(true));
        assert!(same_user_map(own));
        assert!(name(own).is_some());
    }
}
