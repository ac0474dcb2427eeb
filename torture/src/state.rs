//! What a target tells of itself, in the file that `c/state.h` lays out. Reading this file demands
//! nothing of the target.

use midair_tests::Result;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const MAGIC: u32 = 0x746f_7274;
const HEADER: usize = 64;
const SLOT: usize = 64;
const STOP_AT: u64 = 4;
const EPOCH_AT: u64 = 8;

/// What one thread of a target says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// Its thread id as the target knows it. It is 0 when the thread is not watched, or not any
    /// more.
    pub tid: i32,
    /// What it does.
    pub kind: String,
    /// How many rounds of its own work it has done.
    pub rounds: u64,
    /// How many of its own checks have failed.
    pub wrong: u64,
    /// How many calls ended early although no process sent it a signal.
    pub eintr: u64,
    /// The longest time between two rounds since the last [`StateFile::begin_gaps`], in ns. It is
    /// `None` when the thread has done no round since.
    pub gap: Option<u64>,
    /// How many signals its handlers saw.
    pub signals: u64,
}

impl Slot {
    /// Returns whether the thread works without ever waiting for long, so that its gap has a
    /// meaning.
    pub fn is_busy(&self) -> bool {
        matches!(
            self.kind.as_str(),
            "malloc" | "spin" | "registers" | "maps" | "phdr" | "dlopen"
        )
    }
}

/// The state of a target at one moment.
#[derive(Debug, Clone)]
pub struct State {
    /// How many probe libraries were loaded.
    pub mark: u32,
    /// Its pid as it knows itself.
    pub pid: i32,
    /// The line in its sources of the first check that failed.
    pub line: i32,
    /// Its threads.
    pub slots: Vec<Slot>,
}

impl State {
    /// Returns the failed checks of all threads.
    pub fn wrong(&self) -> u64 {
        self.slots.iter().map(|slot| slot.wrong).sum()
    }
    /// Returns the calls that ended early, by thread.
    pub fn eintr(&self) -> BTreeMap<i32, (String, u64)> {
        let hit = self.slots.iter().filter(|slot| slot.eintr > 0);
        hit.map(|slot| (slot.tid, (slot.kind.clone(), slot.eintr)))
            .collect()
    }
    /// Returns the longest gap of its busy threads.
    pub fn gap(&self) -> Option<u64> {
        let busy = self.slots.iter().filter(|slot| slot.is_busy());
        busy.filter_map(|slot| slot.gap).max()
    }
    /// Returns whether each busy thread has done a round since gaps started.
    pub fn all_busy_seen(&self) -> bool {
        let mut busy = self.slots.iter().filter(|slot| slot.is_busy());
        busy.all(|slot| slot.gap.is_some())
    }
}

/// The state file of a target.
#[derive(Debug, Clone)]
pub struct StateFile {
    path: PathBuf,
}

impl StateFile {
    /// Makes a state file at a path. The file need not exist yet.
    pub fn at(path: &Path) -> StateFile {
        StateFile {
            path: path.to_owned(),
        }
    }

    /// Returns whether the target has started all its work.
    pub fn is_ready(&self) -> bool {
        let mut head = [0; HEADER];
        let read = File::open(&self.path).and_then(|file| file.read_exact_at(&mut head, 0));
        read.is_ok() && number32(&head, 0) == MAGIC && number32(&head, 16) == 1
    }

    /// Reads the state.
    ///
    /// # Errors
    /// Fails when the file does not exist or is not complete.
    pub fn read(&self) -> Result<State> {
        let file = File::open(&self.path)?;
        let mut head = [0; HEADER];
        file.read_exact_at(&mut head, 0)?;
        let used = number32(&head, 20) as usize;
        let mut bytes = vec![0; used * SLOT];
        file.read_exact_at(&mut bytes, HEADER as u64)?;
        let epoch = number32(&head, EPOCH_AT as usize);
        let slots = bytes.chunks_exact(SLOT).map(|slot| slot_of(slot, epoch));
        Ok(State {
            mark: number32(&head, 12),
            pid: number32(&head, 28).cast_signed(),
            line: number32(&head, 24).cast_signed(),
            slots: slots.filter(|slot| slot.tid != 0).collect(),
        })
    }

    /// Tells the target to end.
    ///
    /// # Errors
    /// Fails when the file cannot be written.
    pub fn stop(&self) -> Result<()> {
        self.write(STOP_AT, 1)
    }

    /// Restarts the gaps.
    ///
    /// # Errors
    /// Fails when the file cannot be written.
    pub fn begin_gaps(&self, epoch: u32) -> Result<()> {
        self.write(EPOCH_AT, epoch)
    }

    fn write(&self, at: u64, value: u32) -> Result<()> {
        let file = File::options().write(true).open(&self.path)?;
        Ok(file.write_all_at(&value.to_ne_bytes(), at)?)
    }
}

fn slot_of(bytes: &[u8], epoch: u32) -> Slot {
    let name = &bytes[4..20];
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(16);
    Slot {
        tid: number32(bytes, 0).cast_signed(),
        kind: String::from_utf8_lossy(&name[..end]).into_owned(),
        rounds: number64(bytes, 24),
        wrong: number64(bytes, 32),
        eintr: number64(bytes, 40),
        gap: (number32(bytes, 20) == epoch).then(|| number64(bytes, 48)),
        signals: number64(bytes, 56),
    }
}

fn number32(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].try_into().map_or(0, u32::from_ne_bytes)
}

fn number64(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].try_into().map_or(0, u64::from_ne_bytes)
}
