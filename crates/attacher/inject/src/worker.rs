//! Finds the worker thread in a target and reads its boot block.

use std::mem::offset_of;

use midair_procinfo::syscall::Activity;
use midair_procinfo::{Tid, task};
use midair_ptrace::{Memory, RemoteAddr};
use midair_record::VERSION;
use midair_record::boot::{BootBlock, MAGIC, MAILBOX_OFFSET, mailbox, step};

use crate::arch::number;
use crate::error::EnterError;

/// A worker thread that was found in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worker {
    /// The thread.
    pub tid: Tid,
    /// Its boot block, if it is parked on one.
    pub block: Option<RemoteAddr>,
    /// Layout version of the block.
    pub version: u32,
    /// Its mailbox, see [`mailbox`]. It is [`mailbox::EMPTY`] when there is no block.
    pub mailbox: u32,
}

impl Worker {
    /// Returns true if it waits to be woken by this build.
    pub fn is_parked(&self) -> bool {
        self.block.is_some() && self.version == VERSION && self.mailbox == mailbox::PARKED
    }
    /// Returns why it is not woken: it is at work, or it was left there by a build with another layout.
    pub fn hindrance(&self) -> EnterError {
        if self.block.is_some() && self.version != VERSION {
            EnterError::OtherVersion {
                tid: self.tid,
                version: self.version,
            }
        } else {
            EnterError::Busy {
                tid: self.tid,
                state: self.state(),
            }
        }
    }
    /// Returns its state as text.
    pub fn state(&self) -> &'static str {
        if self.block.is_none() {
            "at work"
        } else {
            mailbox_words(self.mailbox)
        }
    }
}

/// Returns the first worker thread of `tids` that is parked, or else the first of them.
pub(crate) fn find(memory: &Memory, tids: impl Iterator<Item = Tid>) -> Option<Worker> {
    let mut any = None;
    for tid in tids {
        let worker = examine(memory, tid);
        if worker.is_parked() {
            return Some(worker);
        }
        any = any.or(Some(worker));
    }
    any
}

fn examine(memory: &Memory, tid: Tid) -> Worker {
    let busy = Worker {
        tid,
        block: None,
        version: 0,
        mailbox: mailbox::EMPTY,
    };
    let Ok(Activity::Syscall(call)) = task::activity(tid) else {
        return busy;
    };
    if call.number != number::FUTEX {
        return busy;
    }
    let block = Block {
        memory: memory.clone(),
        at: RemoteAddr::new(call.args[0]).minus(MAILBOX_OFFSET as u64),
    };
    match (
        block.word64(offset_of!(BootBlock, magic)),
        block.word(offset_of!(BootBlock, version)),
        block.mailbox(),
    ) {
        (Ok(MAGIC), Ok(version), Ok(mailbox)) => Worker {
            tid,
            block: Some(block.at),
            version,
            mailbox,
        },
        _ => busy,
    }
}

/// Returns what a boot block at this address says: its mailbox, and at what its thread failed. Both
/// come from the target and may be anything. This function exists to be fuzzed.
///
/// # Errors
/// When the block cannot be read.
#[doc(hidden)]
pub fn read_block(
    memory: Memory,
    at: RemoteAddr,
) -> midair_ptrace::Result<(&'static str, Option<EnterError>)> {
    let block = Block { memory, at };
    Ok((mailbox_words(block.mailbox()?), block.failure()))
}

/// A boot block in the target.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    pub(crate) memory: Memory,
    pub(crate) at: RemoteAddr,
}

impl Block {
    pub(crate) fn word(&self, offset: usize) -> midair_ptrace::Result<u32> {
        self.memory.read_u32(self.at.plus(offset as u64))
    }
    pub(crate) fn word64(&self, offset: usize) -> midair_ptrace::Result<u64> {
        self.memory.read_u64(self.at.plus(offset as u64))
    }
    pub(crate) fn mailbox(&self) -> midair_ptrace::Result<u32> {
        self.word(MAILBOX_OFFSET)
    }
    pub(crate) fn signed(&self, offset: usize) -> midair_ptrace::Result<i32> {
        self.word(offset).map(u32::cast_signed)
    }

    /// Returns the worker thread's id in its own pid namespace, once the thread has stored it.
    pub(crate) fn own_tid(&self) -> Option<Tid> {
        Tid::new(self.word(offset_of!(BootBlock, tid)).ok()?)
    }

    /// Returns the failure that the worker thread has stored, if it failed.
    pub(crate) fn failure(&self) -> Option<EnterError> {
        let code = self.word(offset_of!(BootBlock, error_step)).ok()?;
        if code == 0 {
            return None;
        }
        let errno = self.signed(offset_of!(BootBlock, error)).unwrap_or(0);
        if code == step::THREAD {
            return Some(EnterError::ThreadRefused { errno });
        }
        let text = match self.word64(offset_of!(BootBlock, error_text)) {
            Ok(at) if matches!(code, step::LOAD | step::PATH) && at != 0 => {
                self.text(RemoteAddr::new(at))
            }
            _ => String::new(),
        };
        Some(EnterError::at_step(code, errno, text))
    }

    fn text(&self, at: RemoteAddr) -> String {
        let mut bytes = [0; 512];
        let n = self.memory.read_some(at, &mut bytes).unwrap_or(0);
        let end = bytes[..n].iter().position(|&byte| byte == 0).unwrap_or(n);
        midair_procinfo::show(&bytes[..end])
    }
}

/// Returns a mailbox value as text.
pub(crate) fn mailbox_words(value: u32) -> &'static str {
    match value {
        mailbox::EMPTY => "not begun",
        mailbox::STARTED => "starting",
        mailbox::OPEN => "waiting for its attacher",
        mailbox::TALKING => "in a session",
        mailbox::PARKED => "parked",
        mailbox::KICK | mailbox::HANDED => "being woken",
        mailbox::FAILED => "failed",
        mailbox::ENDED => "ending",
        _ => "in an unknown state",
    }
}
