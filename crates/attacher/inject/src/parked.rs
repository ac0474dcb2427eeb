//! Chooses the thread to borrow: only one that is proven to be parked.
//!
//! Decisions: ENG-006 (`docs/deviations/engine.md`).

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use midair_procinfo::module::Modules;
use midair_procinfo::stack::{Frame, StackPosition, Walk, Walker};
use midair_procinfo::syscall::{Activity, Blocking};
use midair_procinfo::{Tid, show, task};
use midair_ptrace::{FrameRegisters, Registers, copy_of_socket, kind_of_socket, pidfd_open_thread};
use midair_record::boot::{LOCAL_NAME, SOLE_NAME, THREAD_NAME};

use crate::arch::{self, Blocked, RestartAs};
use crate::error::RejectedThread;
use crate::handshake::is_other_file;
use crate::inspection::{Inspection, LISTENER_NAME};
use crate::names::{self, Wait};
use crate::options::{NEVER_BORROW, Options};
use crate::pure::Slots;

/// The number of innermost frames whose call instruction is read, to see which function was called
/// there: an allocator is never far from the innermost frame.
const CALLS_CHECKED: usize = 12;

/// How good a thread is to borrow, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// The listener of a register library, which was made for this.
    Listener,
    /// In a system call that restarts without the program noticing. Its stack is known to the root.
    Call,
    /// In a wait of the program's own (condition, semaphore, join). Its stack is known to the root.
    Condition,
    /// In a system call that restarts without the program noticing. Part of the stack is not known.
    CallUnknown,
    /// Waits for a lock of the program, and every function on its stack has a name.
    Lock,
    /// In a system call that our stop turns into EINTR.
    Disturbed,
    /// It was running, and our stop happened to meet it where it holds nothing.
    SafePoint,
}

impl Grade {
    /// Returns why a thread of this grade may be borrowed, for a message.
    pub fn words(self) -> &'static str {
        match self {
            Grade::Listener => "created for borrowing",
            Grade::Call => "a call that continues unnoticed, with a complete stack",
            Grade::Condition => "a wait of the program itself, with a complete stack",
            Grade::CallUnknown => {
                "a call that continues unnoticed, with only the inner stack known"
            }
            Grade::Lock => "a wait for a lock of the program, with all functions named",
            Grade::Disturbed => "a call that returns EINTR; no better thread exists",
            Grade::SafePoint => "it holds no lock there, with a complete stack",
        }
    }
}

/// A thread that seems to be parked, and what must still be true of it once it is stopped.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The thread.
    pub tid: Tid,
    /// Its name.
    pub name: String,
    /// How good it is.
    pub grade: Grade,
    /// The function or system call in which it waits, as text.
    pub doing: String,
    pub(crate) blocking: Blocking,
    /// The registers, where the stack could not be unwound without them.
    pub(crate) frame: Option<FrameRegisters>,
    /// The stack bytes on which the judgement rests.
    pub(crate) stack: Vec<u8>,
    /// The call returns EINTR once the thread was stopped.
    pub(crate) disturbed: bool,
    pub(crate) switches: u64,
}

/// The result of examining one thread.
pub(crate) enum Verdict {
    Parked(Candidate),
    /// Its stack depends on a register that can only be read when the thread is stopped.
    AskRegisters(Candidate),
    Rejected(RejectedThread),
}

impl Candidate {
    /// Returns the candidate as one that was not borrowed after all.
    pub(crate) fn rejected(&self, why: &str) -> RejectedThread {
        RejectedThread {
            tid: self.tid,
            name: self.name.clone(),
            doing: format!("{}, but {why}", self.doing),
        }
    }
}

/// Examines the threads of one process repeatedly. Files are read only once.
#[derive(Debug)]
pub(crate) struct Judge<'a> {
    pub(crate) look: &'a Inspection,
    options: &'a Options,
    pub(crate) modules: &'a Modules,
    pub(crate) walker: Walker<'a>,
    /// The voluntary context switches of each thread when it was last examined.
    switches: HashMap<Tid, u64>,
    /// The threads that the last survey found running, or in a call that a stop does not disturb.
    /// They may come to a safe point.
    pub(crate) moving: Vec<Tid>,
    /// Which modules bring an allocator of their own, for those that were looked up so far.
    allocators: RefCell<HashMap<usize, bool>>,
    /// The words through which modules call the functions of [`names::PURE`], for those that were
    /// looked up so far.
    pub(crate) pure: Slots,
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
            pure: Slots::new(),
        }
    }

    /// Returns all candidates and all rejected threads. The candidates come best first; within a
    /// grade, those with the fewest voluntary context switches come first. Each rejected thread has
    /// its reason.
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

    /// Judges one thread. `frame` has the registers that unwinding needs, if they are known.
    /// Returns None if the thread has ended.
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
            return not(format!("must not be borrowed ({NEVER_BORROW})"));
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
            Err(_) => return not("does not show its system call".into()),
        };
        let Some((call, blocked)) = arch::blocked_in(blocking.number, &blocking.args) else {
            return not(format!("is in system call {}", blocking.number));
        };
        // The kernel does not restart such a call on a socket that has a time limit of its own.
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
        // The thread was switched since the last look. So it is not parked but wakes and sleeps
        // again.
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
            // Without the frame pointer, the frames that ruled the thread out may themselves be
            // wrong.
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

    /// Judges a thread again that was found parked: many others may have been examined since, and
    /// stopping it for nothing costs it time. Returns None if it has ended or is not as good any
    /// more.
    pub(crate) fn again(&mut self, before: &Candidate) -> Option<Candidate> {
        let counted = self.moving.len();
        let verdict = self.judge(before.tid, before.frame);
        self.moving.truncate(counted);
        match verdict? {
            Verdict::Parked(now) if now.grade <= before.grade => Some(now),
            _ => None,
        }
    }

    /// Returns what on the stack rules the thread out, whatever it waits for.
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
            // A function that jumped to its helper has no frame of its own, but the call
            // instruction that led to it is there.
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

    /// Returns true for a file that brings its own allocator, which the C library then uses, too. A
    /// function of that file that has no name may be a part of the allocator. The C library's own
    /// allocator is known by its names.
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
                // A file that cannot be read counts as having an allocator: it is not known to be
                // harmless.
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
                    return Err(format!("is in {call}, outside the functions known to wait"));
                };
                if !walk.rooted {
                    return Err(format!(
                        "is in {call} ({name}), and its stack cannot be unwound completely"
                    ));
                }
                match wait {
                    Wait::Condition => Ok((Grade::Condition, waits(name))),
                    Wait::Call if blocked == Blocked::Restarted => Ok((Grade::Call, waits(name))),
                    // An allocator whose functions have no names may have locks of its own.
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

    /// Returns true if descriptor `fd` of thread `tid` is a socket with SO_RCVTIMEO or SO_SNDTIMEO.
    /// Returns false if the descriptor cannot be had.
    fn has_time_limit(&self, tid: Tid, fd: u64) -> bool {
        let Ok(fd) = i32::try_from(fd) else {
            return false;
        };
        if is_other_file(tid, fd) {
            return false;
        }
        let limited = |copy: OwnedFd| {
            if kind_of_socket(copy.as_fd()).is_none() {
                return Err(copy);
            }
            // `UnixStream` serves for any socket: these two options are the same for all of them.
            let socket = UnixStream::from(copy);
            Ok([socket.read_timeout(), socket.write_timeout()]
                .iter()
                .any(|limit| matches!(limit, Ok(Some(_)))))
        };
        let asked = pidfd_open_thread(tid, self.look.pid)
            .and_then(|thread| copy_of_socket(thread.as_fd(), tid, fd, limited));
        matches!(asked, Ok(Some(true)))
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
        // The C library's functions that start threads and programs have no names in a stripped
        // file.
        !frame.names.is_empty() || frame.module == Some(self.look.code.module)
    }

    /// Returns the innermost function of the C library that has a name and is no mere helper, if it
    /// is one that waits. Functions without a symbol are helpers: either of the next outer
    /// function, or of one that jumped to them. In the second case, the call instruction of the
    /// first frame outside the C library tells what was called.
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

/// Checks that a stopped thread is still in the state in which it was judged.
pub(crate) fn unchanged(
    candidate: &Candidate,
    regs: &Registers,
    stack: &[u8],
) -> Result<(), &'static str> {
    let Some(comes_back) = arch::stands_in(regs, &candidate.blocking) else {
        return Err("it continued in the meantime");
    };
    let same_frame = candidate.frame.is_none_or(|frame| frame == regs.frame());
    if !same_frame || !same_stack(stack, &candidate.stack, &candidate.blocking) {
        return Err("its stack changed in the meantime");
    }
    match comes_back {
        RestartAs::Again | RestartAs::Interrupted => Ok(()),
        // The stop itself turned the call's result into EINTR (-4). Any other result means that the
        // call has ended.
        RestartAs::Done if candidate.disturbed && regs.result() == -4 => Ok(()),
        RestartAs::Done => Err("its system call has ended"),
    }
}

/// Compares the stack with what it was when its thread was judged. The kernel itself writes the time
/// that is left of some calls when our stop interrupts them, and the program may keep it on its
/// stack. No frame rests on these bytes: the program gave them to the kernel to be written.
fn same_stack(now: &[u8], before: &[u8], call: &Blocking) -> bool {
    let times = arch::time_left_at(call.number, &call.args);
    let is_time = |at: usize| {
        let address = call.sp.wrapping_add(at as u64);
        times
            .iter()
            .any(|&time| time != 0 && address.wrapping_sub(time) < arch::TIME_BYTES)
    };
    let mut pairs = now.iter().zip(before).enumerate();
    now.len() == before.len() && pairs.all(|(at, (now, before))| now == before || is_time(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_time_that_is_left_may_change_on_a_stack() {
        let (sp, at) = (0x7f00, 32_usize);
        let time = sp + at as u64;
        // A ppoll whose time limit is on the stack, and a read whose buffer is there.
        #[cfg(target_arch = "x86_64")]
        let (ppoll, read, restart) = (271, 0, 219);
        #[cfg(target_arch = "aarch64")]
        let (ppoll, read, restart) = (73, 63, 128);
        let call = |number, args| Blocking {
            number,
            args,
            sp,
            pc: 0x4000,
        };
        let limited = call(ppoll, [1, 1, time, 0, 0, 0]);
        let before = [7_u8; 64];
        for changed in 0..before.len() {
            let mut now = before;
            now[changed] ^= 1;
            let inside = (at..at + 16).contains(&changed);
            let same = |call: &Blocking| same_stack(&now, &before, call);
            assert_eq!(same(&limited), inside, "{changed}");
            let far = 1 << 40;
            // The rest of clock_nanosleep, and of nanosleep.
            assert_eq!(same(&call(restart, [1, 0, far, time, 0, 0])), inside);
            assert_eq!(same(&call(restart, [far, time, 0, 0, 0, 0])), inside);
            // The rest of nanosleep without a place, of a futex wait, of a poll, and of a poll of
            // nothing. The fourth register has what the program left there.
            assert!(!same(&call(restart, [far, 0, far, time, 0, 0])));
            assert!(!same(&call(restart, [far, 137, 1, time, 0, 0])));
            assert!(!same(&call(restart, [far, 1, 3000, time, 0, 0])));
            assert!(!same(&call(restart, [0, 0, 3000, time, 0, 0])));
            assert!(!same(&call(ppoll, [1, 1, 0, time, 0, 0])));
            assert!(!same(&call(read, [1, time, time, 0, 0, 0])));
            // A time of which only the end is in these bytes, and one at the end of all addresses.
            assert_eq!(same(&call(ppoll, [1, 1, sp - 12, 0, 0, 0])), changed < 4);
            assert!(!same(&call(ppoll, [1, 1, u64::MAX - 3, 0, 0, 0])));
        }
        assert!(same_stack(&before, &before, &limited));
        assert!(!same_stack(&before[1..], &before, &limited));
    }
}
