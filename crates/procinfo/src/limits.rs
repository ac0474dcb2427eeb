//! `/proc/TID/limits` and what memory there is.

use crate::decimal;

/// Soft limits of a process. None is "unlimited", or not told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// `RLIMIT_NOFILE`: descriptors.
    pub descriptors: Option<u64>,
    /// `RLIMIT_AS`: bytes of address space.
    pub address_space: Option<u64>,
    /// `RLIMIT_NPROC`: threads of the same real user.
    pub processes: Option<u64>,
}

/// Parses the file (columns: name, soft limit, hard limit, unit; source: proc(5)).
pub fn parse(text: &[u8]) -> Limits {
    let mut limits = Limits::default();
    for line in text.split(|&byte| byte == b'\n') {
        let soft = |name: &[u8]| {
            let rest = line.strip_prefix(name)?;
            rest.split(u8::is_ascii_whitespace)
                .find(|word| !word.is_empty())
                .and_then(decimal)
        };
        limits.descriptors = limits.descriptors.or(soft(b"Max open files"));
        limits.address_space = limits.address_space.or(soft(b"Max address space"));
        limits.processes = limits.processes.or(soft(b"Max processes"));
    }
    limits
}

/// A number of kilobytes of `/proc/meminfo` or `/proc/TID/status`, in bytes.
pub fn kilobytes(text: &[u8], name: &str) -> Option<u64> {
    text.split(|&byte| byte == b'\n').find_map(|line| {
        let rest = line.strip_prefix(name.as_bytes())?.strip_prefix(b":")?;
        let number = rest.trim_ascii().strip_suffix(b" kB")?;
        decimal::<u64>(number)?.checked_mul(1024)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_none() {
        let text = b"Limit                     Soft Limit           Hard Limit           Units\n\
            Max address space         1048576              unlimited            bytes\n\
            Max processes             unlimited            unlimited            processes\n\
            Max open files            1024                 4096                 files\n";
        let got = parse(text);
        assert_eq!(
            (got.descriptors, got.address_space, got.processes),
            (Some(1024), Some(1_048_576), None)
        );
        assert_eq!(parse(b"Max open files"), Limits::default());
    }

    #[test]
    fn sizes() {
        let text = b"MemTotal:  8 kB\nMemAvailable:     123 kB\nVmSize:\t 9 pages\n";
        assert_eq!(kilobytes(text, "MemAvailable"), Some(123 * 1024));
        assert_eq!(kilobytes(text, "VmSize"), None);
        assert_eq!(kilobytes(b"A: 99999999999999999999 kB", "A"), None);
        assert_eq!(kilobytes(b"A: 18446744073709551615 kB", "A"), None);
    }
}
