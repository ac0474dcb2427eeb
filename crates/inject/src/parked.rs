//! Choosing the thread to borrow: only one that is proven to be parked.
//!
//! Decisions: ENG-006 (`docs/deviations/engine.md`).

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use midair_procinfo::module::Modules;
use midair_procinfo::stack::{Frame, StackPosition, Walk, Walker};
use midair_procinfo::syscall::{Activity, Blocking};
use midair_procinfo::{Tid, show, task};
use midair_ptrace::{FrameRegisters, Registers, pidfd_getfd, pidfd_open_thread};
use midair_record::boot::{LOCAL_NAME, SOLE_NAME, THREAD_NAME};

use crate::arch::{self, Blocked, RestartAs};
use crate::error::RejectedThread;
use crate::inspection::{Inspection, LISTENER_NAME};
use crate::names::{self, Wait};
use crate::options::{NEVER_BORROW, Options};

/// Frames of which it is looked up which function was called in them: an allocator is never far
/// from the innermost.
const CALLS_CHECKED: usize = 12;

/// How good a thread is to borrow, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// The listener of a register library: made for this.
    Listener,
    /// In a system call that restarts unseen; its stack is known to the root.
    Call,
    /// In a wait of the program's own (condition, semaphore, join), known to the root.
    Condition,
    /// In a system call that restarts unseen; some of the stack is not known.
    CallUnknown,
    /// Waits for a lock of the program, by functions that all have names.
    Lock,
    /// In a system call that our stop turns into EINTR.
    Disturbed,
    /// It was running, and stopped by chance where it holds nothing.
    SafePoint,
}

impl Grade {
    /// Why a thread of this grade may be borrowed, for a message.
    pub fn words(self) -> &'static str {
        match self {
            Grade::Listener => "made to be borrowed",
            Grade::Call => "a call that goes on unseen, its stack known to its root",
            Grade::Condition => "a wait of the program's own, its stack known to its root",
            Grade::CallUnknown => {
                "a call that goes on unseen, its inner stack known and its outer one not"
            }
            Grade::Lock => "a wait for a lock of the program, all its functions by name",
            Grade::Disturbed => "a call that comes back with EINTR; no better thread was there",
            Grade::SafePoint => "it holds nothing there, its stack known to its root",
        }
    }
}

/// A thread that seems to be parked, and what has to be found again when it is stopped.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The thread.
    pub tid: Tid,
    /// Its name.
    pub name: String,
    /// How good it is.
    pub grade: Grade,
    /// What it is in, as text.
    pub doing: String,
    pub(crate) blocking: Blocking,
    /// The registers that the stack could not be unwound without.
    pub(crate) frame: Option<FrameRegisters>,
    /// Stack bytes that the judgement rests on.
    pub(crate) stack: Vec<u8>,
    /// The call returns EINTR once stopped.
    pub(crate) disturbed: bool,
    pub(crate) switches: u64,
}

/// What a look at one thread gave.
pub(crate) enum Verdict {
    Parked(Candidate),
    /// Its stack depends on a register that only a stop can tell.
    AskRegisters(Candidate),
    Rejected(RejectedThread),
}

/// Examines threads of one process repeatedly; files are read once.
#[derive(Debug)]
pub(crate) struct Judge<'a> {
    pub(crate) look: &'a Inspection,
    options: &'a Options,
    pub(crate) modules: &'a Modules,
    pub(crate) walker: Walker<'a>,
    /// Voluntary switches when last seen.
    switches: HashMap<Tid, u64>,
    /// Threads that the last survey found running, or in a call that a stop does not disturb: these
    /// may come to a safe point.
    pub(crate) moving: Vec<Tid>,
    /// Which modules bring an allocator, as far as it was asked.
    allocators: RefCell<HashMap<usize, bool>>,
}

impl<'a> Judge<'a> {
    pub(crate) fn new(look: &'a Inspection, options: &'a Options) -> Self {
        Judge {
            look,
            options,
            modules: &look.modules,
            walker: Walker::new(&look.modules, look.memory()),
            switches: HashMap::new(),
            moving: Vec::new(),
            allocators: RefCell::default(),
        }
    }

    /// All candidates, best first (of one grade, who slept longest), then why the others are none.
    pub(crate) fn survey(&mut self) -> std::io::Result<(Vec<Verdict>, Vec<RejectedThread>)> {
        let mut good = Vec::new();
        let mut seen = Vec::new();
        self.moving.clear();
        for tid in task::list(self.look.tid)? {
            match self.judge(tid, None) {
                Some(Verdict::Rejected(thread)) => seen.push(thread),
                Some(verdict) => good.push(verdict),
                // It ended meanwhile.
                None => {}
            }
        }
        good.sort_by_key(|verdict| match verdict {
            Verdict::Parked(candidate) => (0, candidate.grade, candidate.switches),
            Verdict::AskRegisters(candidate) => (1, candidate.grade, candidate.switches),
            Verdict::Rejected(_) => (2, Grade::Disturbed, 0),
        });
        Ok((good, seen))
    }

    /// Judges one thread, `frame` being the registers that unwinding needs, if they are known.
    pub(crate) fn judge(&mut self, tid: Tid, frame: Option<FrameRegisters>) -> Option<Verdict> {
        let stat = task::stat(tid).ok()?;
        let not = |doing: String| {
            Some(Verdict::Rejected(RejectedThread {
                tid,
                name: show(&stat.comm),
                doing,
            }))
        };
        if stat.is_dead() {
            return None;
        }
        let excluded = |name: &String| stat.comm.starts_with(name.as_bytes());
        if self.options.never_borrow.iter().any(excluded) {
            return not(format!("is not to be borrowed ({NEVER_BORROW})"));
        }
        let ours = [THREAD_NAME, LOCAL_NAME, SOLE_NAME];
        if ours.iter().any(|name| stat.comm == name.as_bytes()) {
            return not("is ours".into());
        }
        match stat.state {
            b'S' => {}
            b'R' => {
                if !stat.is_real_time() {
                    self.moving.push(tid);
                }
                return not("is running".into());
            }
            b'D' => return not("is in an uninterruptible wait".into()),
            b'T' | b't' => return not("is stopped".into()),
            _ => return not(format!("is in state {}", char::from(stat.state))),
        }
        let blocking = match task::activity(tid) {
            Ok(Activity::Syscall(blocking)) => blocking,
            Ok(Activity::Running) => {
                if !stat.is_real_time() {
                    self.moving.push(tid);
                }
                return not("is running".into());
            }
            Ok(Activity::Blocked { .. }) => return not("is blocked outside system calls".into()),
            Err(_) => return not("does not tell what it does".into()),
        };
        let Some((call, blocked)) = arch::blocked_in(blocking.number, &blocking.args) else {
            return not(format!("is in system call {}", blocking.number));
        };
        // A socket with a time limit of its own: the kernel does not take such a call up again.
        let blocked = match (call, blocked) {
            (
                "recvfrom" | "recvmsg" | "sendto" | "sendmsg" | "accept" | "accept4" | "read"
                | "write",
                Blocked::Restarts,
            ) if self.has_time_limit(tid, blocking.args[0]) => Blocked::Disturbed,
            _ => blocked,
        };
        let status = task::status(tid).ok()?;
        if status.shadow_stack {
            return not(format!("is in {call}, with a shadow stack"));
        }
        if blocked != Blocked::Disturbed && !stat.is_real_time() {
            self.moving.push(tid);
        }
        // A switch since the last look: it is not parked, it comes and goes.
        let moved = self
            .switches
            .insert(tid, status.voluntary_switches)
            .is_some_and(|before| before != status.voluntary_switches);
        let place = StackPosition {
            pc: blocking.pc,
            sp: blocking.sp,
            frame,
        };
        let walk = self.walker.walk(place);
        let (grade, what) = match self.grade(&walk, call, blocked) {
            Ok(found) => found,
            // The frames that spoke against it may be wrong ones.
            Err(why) if !walk.needs_frame_pointer => return not(why),
            Err(why) => (Grade::Disturbed, why),
        };
        let grade = if stat.comm == LISTENER_NAME.as_bytes() {
            Grade::Listener
        } else {
            grade
        };
        let penalty = if moved { 1 << 40 } else { 0 };
        let candidate = Candidate {
            tid,
            name: show(&stat.comm),
            grade,
            doing: what,
            blocking,
            frame,
            stack: walk.bytes,
            disturbed: blocked == Blocked::Disturbed,
            switches: status.voluntary_switches.saturating_add(penalty),
        };
        Some(if walk.needs_frame_pointer {
            Verdict::AskRegisters(candidate)
        } else {
            Verdict::Parked(candidate)
        })
    }

    /// What on the stack speaks against the thread, whatever it waits for.
    pub(crate) fn objection(&self, walk: &Walk) -> Option<String> {
        let in_words =
            |(what, ground): (String, names::Hazard)| format!("{} ({what})", ground.words());
        walk.frames.iter().enumerate().find_map(|(depth, frame)| {
            if self.look.code.is_signal_return(frame.address) {
                return Some("in a signal handler".to_owned());
            }
            if let Some(found) = self.ground(frame) {
                return Some(in_words(found));
            }
            if frame.names.is_empty() && self.is_own_allocator(frame.module) {
                return Some("perhaps inside the program's own allocator".to_owned());
            }
            // A function that jumped to its helper has no frame, but the call to it is there.
            let outside = frame.module != Some(self.look.code.module);
            let called = (outside && (1..CALLS_CHECKED).contains(&depth))
                .then(|| self.walker.called(frame.address))??;
            let names = self.walker.names_at(called);
            names
                .iter()
                .find_map(|name| Some((name.clone(), names::function_hazard(name)?)))
                .map(in_words)
        })
    }

    /// True for a file that brings the allocator which the C library then uses, too: a function of
    /// it that has no name may be a part of that. The C library's own is known by its names.
    pub(crate) fn is_own_allocator(&self, module: Option<usize>) -> bool {
        let Some(index) = module.filter(|&index| index != self.look.code.module) else {
            return false;
        };
        *self
            .allocators
            .borrow_mut()
            .entry(index)
            .or_insert_with(|| {
                let exported = self
                    .modules
                    .load(index)
                    .and_then(|loaded| loaded.elf.exported(["malloc", "calloc", "free"]));
                // A file that cannot be read is not known to be harmless.
                exported.map_or(true, |found| found.iter().any(Option::is_some))
            })
    }

    pub(crate) fn grade(
        &self,
        walk: &Walk,
        call: &str,
        blocked: Blocked,
    ) -> Result<(Grade, String), String> {
        if let Some(objection) = self.objection(walk) {
            return Err(format!("is in {call}, {objection}"));
        }
        let wait = self.innermost(walk);
        let waits = |name: &str| format!("in {name}");
        let wait = wait.as_ref().map(|(name, wait)| (name.as_str(), *wait));
        match blocked {
            Blocked::Futex | Blocked::Restarted => {
                let Some((name, wait)) = wait else {
                    return Err(format!(
                        "is in {call}, in no function that is known to wait"
                    ));
                };
                if !walk.rooted {
                    return Err(format!(
                        "is in {call} ({name}), its stack cannot be followed to its root"
                    ));
                }
                match wait {
                    Wait::Condition => Ok((Grade::Condition, waits(name))),
                    Wait::Call if blocked == Blocked::Restarted => Ok((Grade::Call, waits(name))),
                    // An allocator without names may have its own locks.
                    Wait::Lock if walk.frames.iter().all(|frame| self.is_named(frame)) => {
                        Ok((Grade::Lock, waits(name)))
                    }
                    _ => Err(format!(
                        "is in {call} ({name}), which may be a lock of an allocator"
                    )),
                }
            }
            Blocked::Restarts if walk.rooted => Ok((Grade::Call, waits(call))),
            Blocked::Restarts => Ok((Grade::CallUnknown, waits(call))),
            Blocked::Disturbed => Ok((Grade::Disturbed, waits(call))),
        }
    }

    /// Whether descriptor `fd` of thread `tid` is a socket with SO_RCVTIMEO or SO_SNDTIMEO. False
    /// where it cannot be had.
    fn has_time_limit(&self, tid: Tid, fd: u64) -> bool {
        let Ok(fd) = i32::try_from(fd) else {
            return false;
        };
        let copy = pidfd_open_thread(tid, self.look.pid)
            .and_then(|thread| pidfd_getfd(thread.as_fd(), tid, fd));
        // Of what is no socket there are no limits to ask for, of any socket these two are asked
        // alike.
        copy.is_ok_and(|copy| {
            let socket = UnixStream::from(copy);
            [socket.read_timeout(), socket.write_timeout()]
                .iter()
                .any(|limit| matches!(limit, Ok(Some(_))))
        })
    }

    pub(crate) fn ground(&self, frame: &Frame) -> Option<(String, names::Hazard)> {
        for name in &frame.names {
            if let Some(ground) = names::function_hazard(name) {
                return Some((name.clone(), ground));
            }
        }
        let module = self.modules.list.get(frame.module?)?;
        names::file_hazard(module.file_name()).map(|ground| (show(module.file_name()), ground))
    }

    fn is_named(&self, frame: &Frame) -> bool {
        // The C library's start of threads and programs has no name in a stripped file.
        !frame.names.is_empty() || frame.module == Some(self.look.code.module)
    }

    /// The innermost function of the C library that has a name and is no mere helper, if it is one
    /// that waits. Functions that have no symbol are helpers of the next outer one, or of one that
    /// jumped to them: then the call instruction of the first frame outside tells what was called.
    fn innermost(&self, walk: &Walk) -> Option<(String, Wait)> {
        let pick = |names: Vec<&String>| {
            names
                .into_iter()
                .find_map(|name| Some((name.clone(), names::wait_in(name)?)))
        };
        for (depth, frame) in walk.frames.iter().enumerate() {
            if frame.module != Some(self.look.code.module) {
                if depth == 0 {
                    return None;
                }
                let called = self.walker.called(frame.address)?;
                let names = self.walker.names_at(called);
                return pick(names.iter().collect());
            }
            let telling: Vec<&String> = frame
                .names
                .iter()
                .filter(|name| !names::is_helper(name))
                .collect();
            if !telling.is_empty() {
                return pick(telling);
            }
        }
        None
    }
}

/// What a stopped thread must still be, to be the one that was judged.
pub(crate) fn unchanged(
    candidate: &Candidate,
    regs: &Registers,
    stack: &[u8],
) -> Result<(), &'static str> {
    let Some(comes_back) = arch::stands_in(regs, &candidate.blocking) else {
        return Err("it went on meanwhile");
    };
    if candidate.frame.is_some_and(|frame| frame != regs.frame()) || stack != candidate.stack {
        return Err("its stack changed meanwhile");
    }
    match comes_back {
        RestartAs::Again | RestartAs::Interrupted => Ok(()),
        // EINTR is what the stop made of it; any other result is the end of the call.
        RestartAs::Done if candidate.disturbed && regs.result() == -4 => Ok(()),
        RestartAs::Done => Err("its system call has ended"),
    }
}
