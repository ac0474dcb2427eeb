//! Limits of a process or of the machine that [`crate::headroom`] does not take into account.

use crate::decimal;

/// Returns `RLIMIT_NPROC` from `/proc/TID/limits`: how many threads the process's real user may
/// have, by the soft limit. None without a limit.
pub fn threads_of_user(text: &[u8]) -> Option<u64> {
    let lines = text.split(|&byte| byte == b'\n');
    // The columns are name, soft limit, hard limit and unit (source: proc(5)).
    let rest = lines
        .filter_map(|line| line.strip_prefix(b"Max processes"))
        .next()?;
    let mut words = rest.split(u8::is_ascii_whitespace);
    decimal(words.find(|word| !word.is_empty())?)
}

/// Returns a number of kilobytes from `/proc/meminfo` or `/proc/TID/status`, in bytes.
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
    fn threads() {
        let text = b"Limit      Soft Limit   Hard Limit  Units\n\
            Max processes             7            unlimited            processes\n";
        assert_eq!(threads_of_user(text), Some(7));
        assert_eq!(threads_of_user(b"Max processes  unlimited 8\n"), None);
        assert_eq!(threads_of_user(b"Max processes"), None);
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
