//! What the listener asks the kernel about its own process and about attachers.

use std::os::unix::ffi::OsStrExt;

/// The fields of `/proc/TID/status` that decide who may attach.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Status {
    /// Real, effective, saved and file-system user ids.
    pub(crate) uid: [u32; 4],
    /// The same for groups.
    pub(crate) gid: [u32; 4],
    /// Process ids, from the pid namespace of `/proc` to the process's own.
    pub(crate) ns_tgid: Vec<i32>,
    /// Permitted capabilities.
    pub(crate) permitted: u64,
    /// Effective capabilities.
    pub(crate) effective: u64,
}

/// Parses the file; `None` when a field is missing.
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
    })
}

/// The status of a process or thread.
pub(crate) fn status(of: &str) -> Option<Status> {
    parse_status(&std::fs::read(format!("/proc/{of}/status")).ok()?)
}

/// Number of seccomp filters of this thread. Kernels before 5.9 tell only whether there are any.
pub(crate) fn filters() -> u32 {
    let text = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    field("Seccomp_filters:")
        .or_else(|| field("Seccomp:"))
        .unwrap_or(0)
}

/// Field 22 of `/proc/self/stat`: when the process began, in clock ticks since boot.
pub(crate) fn start_ticks() -> Option<u64> {
    let text = std::fs::read("/proc/self/stat").ok()?;
    // The name may contain anything, also brackets: fields are counted from the last bracket, which
    // ends field 2.
    let end = text.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(text.get(end + 1..)?).ok()?;
    rest.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
}

/// The threads of this process.
pub(crate) fn threads() -> Vec<i32> {
    let Ok(directory) = std::fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    directory
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

/// The name of a thread of this process.
pub(crate) fn name(tid: i32) -> Option<Vec<u8>> {
    let mut name = std::fs::read(format!("/proc/self/task/{tid}/comm")).ok()?;
    name.pop_if(|last| *last == b'\n');
    Some(name)
}

/// The address that a thread of this process waits on, when it is in a futex call.
pub(crate) fn futex_address(tid: i32) -> Option<usize> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{tid}/syscall")).ok()?;
    let mut words = text.split_ascii_whitespace();
    if words.next()?.parse::<i64>().ok()? != libc::SYS_futex {
        return None;
    }
    usize::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()
}

/// Whether a process is in the user namespace of this one; `None` when the kernel does not tell.
pub(crate) fn same_user_namespace(pid: i32) -> Option<bool> {
    let own = std::fs::read_link("/proc/self/ns/user").ok()?;
    let its = std::fs::read_link(format!("/proc/{pid}/ns/user")).ok()?;
    Some(own.as_os_str().as_bytes() == its.as_os_str().as_bytes())
}

/// Whether user ids are mapped equally in both. Weaker than [`same_user_namespace`], but readable
/// for everybody.
pub(crate) fn same_user_map(pid: i32) -> bool {
    let map = |of: &str| std::fs::read(format!("/proc/{of}/uid_map")).ok();
    let own = map("self");
    own.is_some() && own == map(&pid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_parsed_completely_or_not_at_all() {
        let text = b"Name:\t\xff Uid:\t1\nUid:\t1000\t0\t1\t2\nGid:\t5\t6\t7\t8\nNStgid:\t70\t3\nCapPrm:\t00000000a80425fb\nCapEff:\t0\n";
        let got = parse_status(text).unwrap();
        assert_eq!(got.uid, [1000, 0, 1, 2]);
        assert_eq!(got.gid, [5, 6, 7, 8]);
        assert_eq!(got.ns_tgid, [70, 3]);
        assert_eq!((got.permitted, got.effective), (0xa804_25fb, 0));
        for missing in ["Uid:", "Gid:", "NStgid:", "CapPrm:", "CapEff:"] {
            let text = String::from_utf8_lossy(text).replace(&format!("\n{missing}"), "\nX:");
            assert_eq!(parse_status(text.as_bytes()), None, "{missing}");
        }
        assert_eq!(parse_status(b"Uid:\t1 2\n"), None);
    }

    #[test]
    fn this_process_reads_its_own_files() {
        let own = std::process::id() as i32;
        assert!(threads().contains(&own));
        assert!(start_ticks().unwrap() > 0);
        assert_eq!(status("self").unwrap().ns_tgid.last(), Some(&own));
        assert_eq!(same_user_namespace(own), Some(true));
        assert!(same_user_map(own));
        assert!(name(own).is_some());
    }
}
