//! A snapshot of what an attach might change in a process.

use crate::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::unix::fs::FileExt;

/// A line of `/proc/PID/maps`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Map {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Permissions such as `r-xp`.
    pub perms: String,
    /// Path or `[name]`. It is empty for anonymous memory.
    pub path: String,
}

/// A thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// Its name (`comm`).
    pub name: String,
    /// Blocked signals (`SigBlk`), as a mask.
    pub blocked: u64,
}

/// A process at one moment. The snapshot is not atomic, so take it of a process at rest where that
/// matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Mappings.
    pub maps: BTreeSet<Map>,
    /// Open descriptors and what they refer to.
    pub fds: BTreeMap<i32, String>,
    /// Threads by id.
    pub threads: BTreeMap<i32, Thread>,
    /// Signals with a handler (`SigCgt`), as a mask.
    pub caught: u64,
    /// Ignored signals (`SigIgn`), as a mask.
    pub ignored: u64,
    /// The tracer of any of its threads, or 0 for none.
    pub tracer: i32,
}

fn field<'a>(status: &'a str, key: &str) -> Result<&'a str> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    Ok(line.ok_or_else(|| format!("no {key} in a status"))?.trim())
}

impl Snapshot {
    /// Takes a snapshot of a process. A thread that ends meanwhile is left out.
    ///
    /// # Errors
    /// Fails when the process is gone or cannot be read.
    pub fn take(pid: impl Into<i32>) -> Result<Snapshot> {
        let pid = pid.into();
        let read = |path: String| {
            let bytes = std::fs::read(&path).map_err(|error| format!("{path}: {error}"))?;
            // The names of files and threads need not be valid UTF-8.
            Ok::<_, crate::Error>(String::from_utf8_lossy(&bytes).into_owned())
        };
        let mut snapshot = Snapshot {
            maps: BTreeSet::new(),
            fds: BTreeMap::new(),
            threads: BTreeMap::new(),
            caught: 0,
            ignored: 0,
            tracer: 0,
        };
        for line in read(format!("/proc/{pid}/maps"))?.lines() {
            let mut words = line.splitn(6, ' ');
            let range = words
                .next()
                .and_then(|range| range.split_once('-'))
                .ok_or("maps has a range")?;
            snapshot.maps.insert(Map {
                start: u64::from_str_radix(range.0, 16)?,
                end: u64::from_str_radix(range.1, 16)?,
                perms: words.next().unwrap_or_default().to_owned(),
                // Replacing a file on the disk changes nothing in the process, so the mark is
                // removed.
                path: words
                    .nth(3)
                    .unwrap_or_default()
                    .trim_start()
                    .trim_end_matches(" (deleted)")
                    .to_owned(),
            });
        }
        for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
            let entry = entry?;
            // The descriptor may be closed meanwhile.
            if let (Ok(number), Ok(what)) = (
                entry.file_name().to_string_lossy().parse(),
                std::fs::read_link(entry.path()),
            ) {
                snapshot
                    .fds
                    .insert(number, what.to_string_lossy().into_owned());
            }
        }
        let status = read(format!("/proc/{pid}/status"))?;
        snapshot.caught = u64::from_str_radix(field(&status, "SigCgt")?, 16)?;
        snapshot.ignored = u64::from_str_radix(field(&status, "SigIgn")?, 16)?;
        for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            let tid: i32 = entry?.file_name().to_string_lossy().parse()?;
            let Ok(status) = read(format!("/proc/{pid}/task/{tid}/status")) else {
                continue;
            };
            let tracer: i32 = field(&status, "TracerPid")?.parse()?;
            if tracer != 0 {
                snapshot.tracer = tracer;
            }
            let blocked = u64::from_str_radix(field(&status, "SigBlk")?, 16)?;
            snapshot.threads.insert(
                tid,
                Thread {
                    name: field(&status, "Name")?.to_owned(),
                    blocked,
                },
            );
        }
        Ok(snapshot)
    }

    /// Returns the differences to `later`.
    pub fn diff(&self, later: &Snapshot) -> Diff {
        let mut lines = Vec::new();
        let map = |map: &Map| format!("{:x}-{:x} {} {}", map.start, map.end, map.perms, map.path);
        lines.extend(
            self.maps
                .difference(&later.maps)
                .map(|m| Change::new(What::Map, false, map(m), &m.path)),
        );
        lines.extend(
            later
                .maps
                .difference(&self.maps)
                .map(|m| Change::new(What::Map, true, map(m), &m.path)),
        );
        let fds = |s: &Snapshot| {
            s.fds
                .iter()
                .map(|(n, what)| (format!("{n} {what}"), what.clone()))
                .collect::<BTreeSet<_>>()
        };
        let threads = |s: &Snapshot| {
            s.threads
                .iter()
                .map(|(n, t)| {
                    (
                        format!("{n} {} SigBlk {:x}", t.name, t.blocked),
                        t.name.clone(),
                    )
                })
                .collect()
        };
        let process = |s: &Snapshot| {
            [
                ("SigCgt", s.caught),
                ("SigIgn", s.ignored),
                ("TracerPid", s.tracer as u64),
            ]
            .map(|(name, value)| (format!("{name} {value:x}"), name.to_owned()))
            .into_iter()
            .collect::<BTreeSet<_>>()
        };
        let mut sets =
            |what: What, before: BTreeSet<(String, String)>, after: BTreeSet<(String, String)>| {
                lines.extend(
                    before
                        .difference(&after)
                        .map(|(text, name)| Change::new(what, false, text.clone(), name)),
                );
                lines.extend(
                    after
                        .difference(&before)
                        .map(|(text, name)| Change::new(what, true, text.clone(), name)),
                );
            };
        sets(What::Fd, fds(self), fds(later));
        sets(What::Thread, threads(self), threads(later));
        sets(What::Process, process(self), process(later));
        Diff { changes: lines }
    }

    /// Returns the threads of this name.
    pub fn named(&self, name: &str) -> impl Iterator<Item = i32> {
        self.threads
            .iter()
            .filter(move |(_, thread)| thread.name == name)
            .map(|(tid, _)| *tid)
    }
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A mapping.
    Map,
    /// A descriptor.
    Fd,
    /// A thread, or its signal mask.
    Thread,
    /// Handlers, ignored signals, or the tracer.
    Process,
}

/// One thing that only one of the two snapshots has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The kind of the thing.
    pub what: What,
    /// Whether the later snapshot has it, and not the earlier one.
    pub new: bool,
    /// A description of it.
    pub text: String,
    /// Path of the mapping or descriptor, name of the thread.
    pub name: String,
}

impl Change {
    fn new(what: What, new: bool, text: String, name: &str) -> Change {
        Change {
            what,
            new,
            text,
            name: name.to_owned(),
        }
    }
}

/// All changes. As text, each is one line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Diff {
    /// The changes.
    pub changes: Vec<Change>,
}

impl Diff {
    /// Returns the changes without the memory by which the application's own allocator and threads
    /// grow: the heap, stacks and anonymous writable memory. Anonymous memory with code is kept.
    #[must_use]
    pub fn without_heap(mut self) -> Diff {
        self.changes.retain(|change| {
            let data = !change
                .text
                .split(' ')
                .nth(1)
                .is_some_and(|perms| perms.contains('x'));
            let anonymous = change.name.is_empty()
                || change.name == "[heap]"
                || change.name.starts_with("[stack");
            !(change.what == What::Map && anonymous && data)
        });
        self
    }
    /// Returns the changes without those that the test expects.
    #[must_use]
    pub fn without(mut self, expected: impl Fn(&Change) -> bool) -> Diff {
        self.changes.retain(|change| !expected(change));
        self
    }
    /// Returns whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for change in &self.changes {
            writeln!(
                f,
                "{} {:?} {}",
                if change.new { '+' } else { '-' },
                change.what,
                change.text
            )?;
        }
        Ok(())
    }
}

/// Reads a process's memory.
///
/// # Errors
/// Fails when the memory may not be read or is not mapped.
pub fn memory(pid: impl Into<i32>, at: u64, bytes: usize) -> Result<Vec<u8>> {
    let pid = pid.into();
    let mut out = vec![0; bytes];
    let file = std::fs::File::open(format!("/proc/{pid}/mem"))?;
    file.read_exact_at(&mut out, at)
        .map_err(|error| format!("{bytes} bytes at {at:#x} of {pid}: {error}"))?;
    Ok(out)
}
