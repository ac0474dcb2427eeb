//! Reads the threads of a process.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::files::{kernel_list, kernel_text, kernel_words};
use crate::stat::{self, Stat};
use crate::status::{self, Status};
use crate::syscall::{self, Activity};
use crate::{Pid, Tid, decimal};

/// Returns all thread ids of the process that `tid` belongs to, in the kernel's order. It is a
/// snapshot: threads come and go.
///
/// # Errors
/// The kernel's error; not found when the process is gone.
pub fn list(tid: impl Into<Tid>) -> io::Result<Vec<Tid>> {
    let tid = tid.into();
    let mut tids = Vec::new();
    for name in kernel_list(format!("{tid}/task"))? {
        tids.extend(decimal::<Tid>(name.as_encoded_bytes()));
    }
    Ok(tids)
}

/// Reads and parses `/proc/TID/stat`.
///
/// # Errors
/// The kernel's error; invalid data when the line is of no known form.
pub fn stat(tid: impl Into<Tid>) -> io::Result<Stat> {
    let tid = tid.into();
    let path = format!("{tid}/stat");
    stat::parse(&kernel_text(path)?).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// Returns the wait status of a process that has ended, by its pidfd. `PIDFD_GET_INFO` with
/// `PIDFD_INFO_EXIT` (Linux 6.15) has it even after the process was reaped. On older kernels the
/// zombie's stat has it, until its parent reaps it.
pub fn exit_status(pidfd: BorrowedFd<'_>, pid: Pid) -> Option<i32> {
    midair_ptrace::sys::exit_status(pidfd).or_else(|| {
        let stat = kernel_words(format!("{pid}/stat")).ok()?;
        let after_name: Vec<&str> = stat.rsplit(") ").next()?.split_ascii_whitespace().collect();
        (*after_name.first()? == "Z").then_some(())?;
        after_name.get(49)?.parse().ok()
    })
}

/// Reads and parses `/proc/TID/status`.
///
/// # Errors
/// The kernel's error.
pub fn status(tid: impl Into<Tid>) -> io::Result<Status> {
    let tid = tid.into();
    Ok(status::parse(&kernel_text(format!("{tid}/status"))?))
}

/// Returns the name of a thread.
///
/// # Errors
/// The kernel's error.
pub fn comm(tid: impl Into<Tid>) -> io::Result<Vec<u8>> {
    let tid = tid.into();
    let mut name = kernel_text(format!("{tid}/comm"))?;
    if name.last() == Some(&b'\n') {
        name.pop();
    }
    Ok(name)
}

/// Returns what a thread is doing now.
///
/// # Errors
/// The kernel's error; invalid data when the line is of no known form.
pub fn activity(tid: impl Into<Tid>) -> io::Result<Activity> {
    let tid = tid.into();
    let path = format!("{tid}/syscall");
    syscall::parse(&kernel_text(path)?).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// The times of a thread on processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Turns {
    /// How long it has run. The kernel adds to it at its ticks, and when the thread stops running.
    pub run: Duration,
    /// How long it has waited for a processor.
    pub waited: Duration,
    /// How many times it has come to run.
    pub number: u64,
}

/// Returns how often and how long a thread has run, and has waited for that (source: proc_pid_schedstat(5)).
///
/// # Errors
/// The kernel's error; unsupported where it keeps no such account and writes zeros; invalid data
/// when the line is of no known form.
pub fn turns(tid: impl Into<Tid>) -> io::Result<Turns> {
    let tid = tid.into();
    let text = kernel_text(format!("{tid}/schedstat"))?;
    let mut words = text.split(u8::is_ascii_whitespace).map(decimal::<u64>);
    match (words.next(), words.next(), words.next()) {
        (Some(Some(0)), Some(Some(0)), Some(Some(0))) => Err(io::ErrorKind::Unsupported.into()),
        (Some(Some(run)), Some(Some(waited)), Some(Some(number))) => Ok(Turns {
            run: Duration::from_nanos(run),
            waited: Duration::from_nanos(waited),
            number,
        }),
        _ => Err(io::Error::from(io::ErrorKind::InvalidData)),
    }
}

/// Returns a thread of the process of `pid` that has not ended: the first thread if it lives. None
/// when all have ended. `pid` may also be the id of any thread of the process.
///
/// # Errors
/// The kernel's error; not found when there is no such process.
pub fn live(pid: impl Into<Tid>) -> io::Result<Option<Tid>> {
    let pid = pid.into();
    if !stat(pid)?.is_dead() {
        return Ok(Some(pid));
    }
    Ok(list(pid)?
        .into_iter()
        .find(|&tid| stat(tid).is_ok_and(|stat| !stat.is_dead())))
}

/// Whether the thread exists and has not ended.
pub fn is_alive(tid: impl Into<Tid>) -> bool {
    let tid = tid.into();
    stat(tid).is_ok_and(|stat| !stat.is_dead())
}

/// Returns the open descriptor numbers of a process.
///
/// # Errors
/// The kernel's error.
pub fn descriptors(tid: impl Into<Tid>) -> io::Result<Vec<i32>> {
    let tid = tid.into();
    let mut fds = Vec::new();
    for name in kernel_list(format!("{tid}/fd"))? {
        fds.extend(decimal::<i32>(name.as_encoded_bytes()));
    }
    fds.sort_unstable();
    Ok(fds)
}

/// Returns how far the boot clock of the processes that this one starts is ahead of the kernel's, in
/// ns. Unless it has just asked for another one, that is its own clock as well.
///
/// # Errors
/// The kernel's error; not found where it has no time namespaces.
pub fn boot_offset(tid: impl Into<Tid>) -> io::Result<i64> {
    let tid = tid.into();
    let text = kernel_text(format!("{tid}/timens_offsets"))?;
    boot_offset_of(&text).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// Returns the offset of the line for the boot clock: seconds, and nanoseconds to add.
fn boot_offset_of(text: &[u8]) -> Option<i64> {
    let mut lines = text.split(|&byte| byte == b'\n');
    let rest = lines.find_map(|line| line.strip_prefix(b"boottime"))?;
    let mut words = rest
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    let (seconds, more): (i64, i64) = (decimal(words.next()?)?, decimal(words.next()?)?);
    seconds.checked_mul(1_000_000_000)?.checked_add(more)
}

/// Returns how many numbers the table of descriptors has room for now. The kernel enlarges it for a
/// higher number, and never makes it smaller again.
///
/// # Errors
/// The kernel's error.
pub fn descriptor_table(tid: impl Into<Tid>) -> io::Result<u64> {
    let tid = tid.into();
    let text = kernel_text(format!("{tid}/status"))?;
    Ok(text
        .split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(b"FDSize:"))
        .and_then(|rest| decimal(rest.trim_ascii()))
        .unwrap_or(0))
}

/// Returns the soft limit on descriptor numbers.
///
/// # Errors
/// The kernel's error.
pub fn descriptor_limit(tid: impl Into<Tid>) -> io::Result<u64> {
    let tid = tid.into();
    let text = kernel_text(format!("{tid}/limits"))?;
    Ok(text
        .split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(b"Max open files"))
        .and_then(|rest| {
            rest.split(u8::is_ascii_whitespace)
                .find(|word| !word.is_empty())
        })
        .and_then(decimal)
        .unwrap_or(256))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_of_a_boot_clock() {
        let text = b"monotonic           7         0\nboottime       1000      5\n";
        assert_eq!(boot_offset_of(text), Some(1_000_000_000_005));
        let behind = b"monotonic           0         0\nboottime         -1 999999999\n";
        assert_eq!(boot_offset_of(behind), Some(-1));
        for bad in [
            &b""[..],
            b"boottime",
            b"boottime x 0",
            b"boottime 9223372036854775807 0",
        ] {
            assert_eq!(boot_offset_of(bad), None);
        }
    }

    #[test]
    fn ourselves() {
        let me = crate::Pid::own().leader();
        assert!(list(me).unwrap().contains(&me));
        assert_eq!(live(me).unwrap(), Some(me));
        assert!(is_alive(me) && !is_alive(Tid::MAX));
        assert_eq!(status(me).unwrap().tgid, Some(crate::Pid::own()));
        assert!(descriptors(me).unwrap().contains(&0) || !descriptors(me).unwrap().is_empty());
        assert!(descriptor_limit(me).unwrap() > 0);
        assert!(descriptor_table(me).unwrap() >= 64);
        assert!(live(Tid::MAX).is_err());
        let turns = turns(me).unwrap();
        assert!(turns.number > 0 && turns.run > Duration::ZERO, "{turns:?}");
    }
}
