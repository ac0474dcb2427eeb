//! T3: a running thread is stopped briefly and repeatedly, until a stop happens to meet it where it
//! holds nothing.
//!
//! Nothing is put into the program for this. There is no breakpoint in its code, which other
//! threads execute too, and no hardware breakpoint, which would outlive us and kill the process. A
//! thread that is merely stopped runs on if we die.
//!
//! The borrowed thread calls `pthread_create`. So it must hold no lock of the allocator, the loader
//! or the C library, and must not be in the middle of changing what these keep for each thread. Two
//! situations prove that:
//! * It executes user code outside the C library, its stack is known down to its root, and none of
//!   the frames rules a parked thread out (`names`). An allocator in the middle of its work would
//!   be on the stack. Code of a file that brings its own allocator is excluded, since parts of the
//!   allocator may be inlined anywhere in that file.
//! * It has just returned from a system call that none of those makes under a lock
//!   ([`arch::plain_call`]), or it waits in a call that would do for a parked thread. Its stack is
//!   as above.
//!
//! Some situations are excluded although they may be safe: code without a file that is not in the
//! list of mappings, the vdso, a restartable sequence (moving the thread would break the kernel's
//! guarantee), and threads with a real-time policy.
//!
//! Decisions: ENG-004, ENG-005 (`docs/deviations/engine.md`).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use midair_procinfo::stack::StackPosition;
use midair_procinfo::syscall::Blocking;
use midair_procinfo::{Tid, show, task};
use midair_ptrace::{
    Deadline, Registers, RemoteAddr, Seized, StopKind, Stopped, Waited, sleep_beside,
};

use crate::arch::{self, Standing};
use crate::error::{During, EnterError, RejectedThread};
use crate::hold::{NotHeld, Proven};
use crate::names;
use crate::options::Options;
use crate::parked::{Candidate, Grade, Judge};

/// The number of stops of one thread in a row, before another thread has its turn.
const LOOKS_IN_A_ROW: u32 = 24;
/// The least time that a thread runs between two stops. It also runs for at least a multiple of the
/// time that the last stop took.
const LEAST_RUN: Duration = Duration::from_micros(100);
/// A thread runs for so many times the length of a stop before it is stopped again.
const RUN_PER_STOP: u32 = 4;
/// How long we wait for a thread to come to a system call before we stop it where it is.
const CALL_WAIT: Duration = Duration::from_millis(1);
/// How many system calls of other kinds the thread may make meanwhile.
const CALLS_PASSED: u32 = 4;

/// What the search may still spend on stopping threads, and what it has spent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    /// The number of stops that are left.
    looks: u32,
    /// The time for which threads may still be stopped to be examined.
    time: Duration,
    /// The number of stops that were made, and the time that they took.
    pub(crate) spent: (u32, Duration),
}

impl Budget {
    pub(crate) fn of(options: &Options) -> Budget {
        Budget {
            looks: options.looks,
            time: options.looked,
            spent: (0, Duration::ZERO),
        }
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.looks == 0 || self.time.is_zero()
    }

    fn take(&mut self, stood: Duration) {
        self.looks = self.looks.saturating_sub(1);
        self.time = self.time.saturating_sub(stood);
        self.spent.0 += 1;
        self.spent.1 += stood;
    }
}

/// A thread that reached a safe point and is stopped there.
pub(crate) struct Found {
    pub(crate) proven: Proven,
    pub(crate) candidate: Candidate,
    /// How long it had been stopped when this was made, measured from when we knew that it had
    /// stopped.
    pub(crate) stood: Duration,
}

/// Why a stop was not at a safe point.
enum RejectReason {
    /// Where the thread was stopped, as text.
    HoldsSomething(String),
    /// This file has to be read first, and the thread must not stay stopped for that.
    ModuleUnread(usize),
    /// Examining this thread again would not help.
    Never(String),
}

/// Stops and examines `tid` up to [`LOOKS_IN_A_ROW`] times. Call it on a thread of its own.
pub(crate) fn seek(
    tid: Tid,
    judge: &mut Judge<'_>,
    options: &Options,
    suspend_seccomp: bool,
    budget: &mut Budget,
) -> Result<Result<Found, RejectedThread>, NotHeld> {
    const PHASE: &str = "looking for a safe point";
    let name = task::comm(tid).map_or_else(|_| String::new(), |name| show(&name));
    let mut reasons = Reasons::default();
    let seen = |reasons: &Reasons| RejectedThread {
        tid,
        name: name.clone(),
        doing: reasons.words(),
    };
    if task::status(tid).is_ok_and(|status| status.shadow_stack) {
        reasons.add("has a shadow stack".into());
        return Ok(Err(seen(&reasons)));
    }
    let mut running = match Seized::seize(tid, suspend_seccomp) {
        Ok(seized) => seized,
        Err(error) if error.is_gone() => return Err(NotHeld::Unsuitable("it ended meanwhile")),
        Err(error) => {
            return Err(NotHeld::Failed(EnterError::Engine {
                during: PHASE,
                source: error,
            }));
        }
    };
    let gone = |error: midair_ptrace::Error| match error {
        midair_ptrace::Error::TimedOut { .. } => NotHeld::Unsuitable("it did not stop in time"),
        error if error.is_gone() => NotHeld::Unsuitable("it ended meanwhile"),
        source => NotHeld::Failed(EnterError::Engine {
            during: PHASE,
            source,
        }),
    };
    let mut looks = 0;
    let mut to_a_call = false;
    loop {
        let (stopped, began) = if to_a_call {
            at_a_call(running, options.stop).map_err(gone)?
        } else {
            running.interrupt().map_err(gone)?;
            let deadline = Deadline::after(options.stop);
            let stopped = running.wait_for_event(deadline).map_err(gone)?;
            (stopped, Instant::now())
        };
        if stopped.kind() != StopKind::Event {
            return Err(NotHeld::Unsuitable("it is stopped by job control"));
        }
        let regs = stopped.registers().during(PHASE)?;
        let no = match judge.safe(tid, &name, &stopped, &regs) {
            Ok(candidate) => {
                let stood = began.elapsed();
                let waiting = matches!(arch::standing(&regs), Standing::Waiting(..));
                let call = waiting.then_some(candidate.blocking);
                return Ok(Ok(Found {
                    proven: Proven::at_safe_point(stopped, regs, call),
                    candidate,
                    stood,
                }));
            }
            Err(no) => no,
        };
        looks += 1;
        let last =
            looks >= LOOKS_IN_A_ROW || matches!(no, RejectReason::Never(_)) || budget.looks <= 1;
        // Two stops wherever the thread is are followed by one behind its next system call.
        to_a_call = looks % 3 == 2;
        let go_on = |stopped: Stopped| match (last, to_a_call) {
            (true, _) => stopped.detach_with(0).map(|()| None),
            (false, true) => stopped.resume_to_syscall().map(Some),
            (false, false) => stopped.resume(0).map(Some),
        };
        let next = go_on(stopped).map_err(gone)?;
        let stood = began.elapsed();
        budget.take(stood);
        match no {
            // This says nothing about the thread: it may well be safe there.
            RejectReason::ModuleUnread(module) => judge.learn(module),
            RejectReason::HoldsSomething(why) | RejectReason::Never(why) => reasons.add(why),
        }
        match next {
            Some(seized) if !budget.is_spent() => running = seized,
            _ => return Ok(Err(seen(&reasons))),
        }
        if !to_a_call {
            // The odd time keeps us out of step with anything that the thread does at regular
            // intervals.
            let odd = Duration::from_micros(u64::from(looks * 37 % 101));
            sleep_beside((stood * RUN_PER_STOP).max(LEAST_RUN) + odd);
        }
    }
}

/// Waits until the thread returns from its next plain system call, and stops it there. If none
/// comes soon, or the thread waits inside one, it is stopped where it is. It must have been resumed
/// in such a way that it stops at system calls.
fn at_a_call(running: Seized, patience: Duration) -> midair_ptrace::Result<(Stopped, Instant)> {
    let soon = Deadline::after(CALL_WAIT);
    let tid = running.tid();
    let mut running = running;
    let mut inside = false;
    let mut calls = 0;
    loop {
        running = match running.wait(soon)? {
            Waited::Gone(death) => {
                return Err(midair_ptrace::Error::Gone {
                    operation: "PTRACE_SYSCALL",
                    tid,
                    death,
                });
            }
            Waited::TimedOut(image) => {
                image.interrupt()?;
                let stopped = image.wait_for_event(Deadline::after(patience))?;
                return Ok((stopped, Instant::now()));
            }
            Waited::Stopped(stopped) => match stopped.kind() {
                StopKind::Group(_) => return Ok((stopped, Instant::now())),
                StopKind::Event => stopped.resume_to_syscall()?,
                StopKind::Signal(signal) => stopped.resume_to_syscall_with(signal)?,
                StopKind::Syscall => {
                    let began = Instant::now();
                    let plain = match arch::standing(&stopped.registers()?) {
                        Standing::Back(number) => arch::plain_call(number).is_some(),
                        _ => false,
                    };
                    calls += u32::from(inside);
                    if inside && (plain || calls >= CALLS_PASSED) {
                        // Registers are only set at a stop for signals, and such a stop follows
                        // immediately.
                        stopped.interrupt_again()?;
                        let running = stopped.resume(0)?;
                        return Ok((running.wait_for_event(Deadline::after(patience))?, began));
                    }
                    inside = !inside;
                    stopped.resume_to_syscall()?
                }
            },
        };
    }
}

impl Judge<'_> {
    /// Reads what unwinding through a module needs.
    fn learn(&mut self, module: usize) {
        self.walker.learn(module);
        let _known = self.is_own_allocator(Some(module));
    }

    /// Judges a stopped thread by the place where it was stopped.
    fn safe(
        &mut self,
        tid: Tid,
        name: &str,
        stopped: &Stopped,
        regs: &Registers,
    ) -> Result<Candidate, RejectReason> {
        let there = |why: &str| RejectReason::HoldsSomething(why.to_owned());
        let place = StackPosition {
            pc: regs.pc(),
            sp: regs.sp(),
            frame: Some(regs.frame()),
        };
        let libc = self.look.code.module;
        let module = self.modules.at(place.pc);
        // The plain call from which it has just returned, or the call in which it waits.
        let call = match arch::standing(regs) {
            Standing::User => None,
            Standing::Back(number) => arch::plain_call(number).map(|call| (call, None)),
            Standing::Waiting(number, args) => Some(
                arch::blocked_in(number, &args)
                    .map(|(call, blocked)| (call, Some(blocked)))
                    .ok_or_else(|| {
                        RejectReason::HoldsSomething(format!("in system call {number}"))
                    })?,
            ),
            Standing::Unknown => {
                return Err(RejectReason::Never(
                    "its registers do not tell where it stands".into(),
                ));
            }
        };
        match module {
            _ if call.is_some() => {}
            Some(index) if index == libc => return Err(there("inside the C library")),
            Some(index) => {
                if self
                    .modules
                    .list
                    .get(index)
                    .is_some_and(|module| names::file_hazard(module.file_name()).is_some())
                {
                    return Err(there("inside the loader or an allocator"));
                }
            }
            // Code that was generated at run time lies in executable memory without a file.
            None => {
                let mapping = self.modules.mapping_at(place.pc);
                if !mapping.is_some_and(|mapping| mapping.execute && mapping.path.is_empty()) {
                    return Err(there("in code of no known file"));
                }
            }
        }
        if call.is_none() {
            self.in_no_restartable_sequence(stopped, place.pc)?;
        }
        let walk = self
            .walker
            .walk_known(place)
            .map_err(RejectReason::ModuleUnread)?;
        if let Some(objection) = self.objection(&walk) {
            return Err(RejectReason::HoldsSomething(objection));
        }
        if !walk.rooted {
            return Err(there("where its stack cannot be followed to its root"));
        }
        let doing = match call {
            Some((call, None)) => format!("just back from {call}"),
            Some((call, Some(blocked))) => {
                let (grade, what) = self
                    .grade(&walk, call, blocked)
                    .map_err(RejectReason::HoldsSomething)?;
                if !matches!(grade, Grade::Call | Grade::Condition) {
                    return Err(RejectReason::HoldsSomething(what));
                }
                what
            }
            None => {
                let within = walk.frames.first();
                if within.is_none_or(|frame| self.is_own_allocator(frame.module)) {
                    return Err(there("in a program that has an allocator of its own"));
                }
                if self.leaves_the_c_library_unnamed(&walk.frames) {
                    return Err(there("called by a part of the C library that has no name"));
                }
                let names = within
                    .map(|frame| frame.names.as_slice())
                    .unwrap_or_default();
                match (
                    names.first(),
                    module.and_then(|index| self.modules.list.get(index)),
                ) {
                    (Some(function), _) => format!("in {function}"),
                    (None, Some(module)) => format!("in code of {}", show(module.file_name())),
                    (None, None) => "in code made at run time".to_owned(),
                }
            }
        };
        let (number, args) = match arch::standing(regs) {
            Standing::Waiting(number, args) => (number, args),
            _ => (0, [0; 6]),
        };
        Ok(Candidate {
            tid,
            name: name.to_owned(),
            grade: Grade::SafePoint,
            doing,
            blocking: Blocking {
                number,
                args,
                sp: place.sp,
                pc: place.pc,
            },
            frame: place.frame,
            stack: Vec::new(),
            disturbed: false,
            switches: 0,
        })
    }

    /// Returns true if the C library called the program back from a function without a name. The C
    /// library may call back (`qsort`), and only the function's name tells what it was doing. The
    /// functions that start threads and programs have no names in a stripped file, either, but
    /// these are the outermost.
    fn leaves_the_c_library_unnamed(&self, frames: &[midair_procinfo::stack::Frame]) -> bool {
        let libc = Some(self.look.code.module);
        // The outermost frame of the main thread is the program's first instructions, which call
        // the C library.
        let inner = frames.split_last().map_or(frames, |(_root, inner)| inner);
        let start = inner
            .iter()
            .rposition(|frame| frame.module != libc)
            .unwrap_or(0);
        frames
            .iter()
            .take(start)
            .any(|frame| frame.module == libc && frame.names.is_empty())
    }

    /// Refuses a thread that is inside a restartable sequence. If its instruction pointer were
    /// moved out of the sequence and back, it would go on in it although the kernel no longer
    /// watches over it.
    fn in_no_restartable_sequence(&self, stopped: &Stopped, pc: u64) -> Result<(), RejectReason> {
        /// Offset of `rseq_cs` in `struct rseq` (linux/rseq.h).
        const SEQUENCE: u64 = 8;
        let area = stopped.restartable_sequences().map_err(|_| {
            RejectReason::Never("the kernel does not tell of its restartable sequences".into())
        })?;
        let Some((area, ..)) = area else {
            return Ok(());
        };
        let memory = self.look.memory();
        let unreadable =
            |_| RejectReason::HoldsSomething("its restartable sequence cannot be read".into());
        let sequence = memory.read_u64(area.plus(SEQUENCE)).map_err(unreadable)?;
        if sequence == 0 {
            return Ok(());
        }
        // struct rseq_cs: version, flags, start, length, and the address to go on at after an
        // interruption.
        let at = RemoteAddr::new(sequence);
        let start = memory.read_u64(at.plus(8)).map_err(unreadable)?;
        let len = memory.read_u64(at.plus(16)).map_err(unreadable)?;
        if pc.wrapping_sub(start) < len {
            return Err(RejectReason::HoldsSomething(
                "in a restartable sequence".into(),
            ));
        }
        Ok(())
    }
}

/// The places where a thread was stopped, and how often it was stopped at each.
#[derive(Debug, Default)]
struct Reasons(BTreeMap<String, u32>);

impl Reasons {
    fn add(&mut self, why: String) {
        *self.0.entry(why).or_default() += 1;
    }

    /// Returns the most frequent places as text.
    fn words(&self) -> String {
        let looks: u32 = self.0.values().sum();
        let mut all: Vec<(&String, &u32)> = self.0.iter().collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        if looks == 0 {
            return "is running; there was no time to look where".to_owned();
        }
        let told: Vec<String> = all
            .iter()
            .take(3)
            .map(|(why, count)| format!("{count} times {why}"))
            .collect();
        let more = if all.len() > 3 { ", and elsewhere" } else { "" };
        format!(
            "is running; looked at {looks} times: {}{more}",
            told.join(", ")
        )
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
#[allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test says what went wrong by panicking"
)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_told_by_their_number() {
        let mut reasons = Reasons::default();
        for why in ["a", "b", "b", "c", "d", "b", "c"] {
            reasons.add(why.into());
        }
        assert_eq!(
            reasons.words(),
            "is running; looked at 7 times: 3 times b, 2 times c, 1 times a, and elsewhere"
        );
    }

    #[test]
    fn a_budget_ends_by_number_and_by_time() {
        let options = Options {
            looks: 2,
            looked: Duration::from_micros(10),
            ..Options::default()
        };
        let mut budget = Budget::of(&options);
        budget.take(Duration::from_micros(4));
        assert!(!budget.is_spent());
        budget.take(Duration::from_micros(4));
        assert!(budget.is_spent());
        let mut budget = Budget::of(&options);
        budget.take(Duration::from_micros(10));
        assert!(budget.is_spent());
        assert_eq!(budget.spent, (1, Duration::from_micros(10)));
    }

    use crate::test_target::{PATIENCE, TestTarget};
    use midair_procinfo::stack::Frame;

    fn text(reason: RejectReason) -> String {
        match reason {
            RejectReason::HoldsSomething(why) | RejectReason::Never(why) => why,
            RejectReason::ModuleUnread(module) => format!("module {module} is not read"),
        }
    }

    /// Stops the thread again and again until `done` returns a value, and returns that value.
    fn stop_until<T>(
        target: &TestTarget,
        judge: &mut Judge<'_>,
        mut done: impl FnMut(&mut Judge<'_>, &Stopped, Result<Candidate, RejectReason>) -> Option<T>,
    ) -> Option<T> {
        let tid = target.pid.leader();
        let mut running = Seized::seize(tid, false).unwrap();
        let limit = Instant::now() + PATIENCE;
        while Instant::now() < limit {
            running.interrupt().unwrap();
            let stopped = running.wait_for_event(Deadline::after(PATIENCE)).unwrap();
            let regs = stopped.registers().unwrap();
            let judged = judge.safe(tid, "busy", &stopped, &regs);
            if let Err(RejectReason::ModuleUnread(module)) = judged {
                judge.learn(module);
            } else if let Some(done) = done(judge, &stopped, judged) {
                return Some(done);
            }
            running = stopped.resume(0).unwrap();
            sleep_beside(LEAST_RUN);
        }
        None
    }

    #[test]
    fn a_safe_point_is_in_no_restartable_sequence_and_on_a_known_stack() {
        if !midair_tests::kernel::has_safe_points().unwrap() {
            return;
        }
        let target = TestTarget::busy("compute");
        let look = target.look();
        let options = Options::default();
        let mut judge = Judge::new(&look, &options);
        let tid = target.pid.leader();
        let memory = look.memory();
        stop_until(&target, &mut judge, |judge, stopped, judged| {
            let candidate = judged.ok()?;
            let regs = stopped.registers().unwrap();
            if !matches!(arch::standing(&regs), Standing::User) {
                return None;
            }
            assert!(candidate.doing.starts_with("in "), "{}", candidate.doing);
            let mut again = |regs: &Registers| judge.safe(tid, "busy", stopped, regs).map_err(text);
            assert!(again(&regs).is_ok());
            // The thread is in the middle of a sequence, at its end, behind it, and before it.
            if let Ok(Some((area, ..))) = stopped.restartable_sequences() {
                let sequence = RemoteAddr::new(regs.sp()).minus(16384);
                let mut with = |start: u64| {
                    let words = [0, start, 16, 0].map(u64::to_le_bytes).concat();
                    memory.write(sequence, &words).unwrap();
                    memory
                        .write(area.plus(8), &sequence.get().to_le_bytes())
                        .unwrap();
                    let judged = again(&regs);
                    memory.write(area.plus(8), &[0; 8]).unwrap();
                    judged.map(|_| ())
                };
                let inside = Err("in a restartable sequence".to_owned());
                assert_eq!(with(regs.pc()), inside);
                assert_eq!(with(regs.pc() - 15), inside);
                assert_eq!(with(regs.pc() - 16), Ok(()));
                assert_eq!(with(regs.pc() + 1), Ok(()));
            } else {
                midair_tests::leave_out("no restartable sequences").unwrap();
            }
            // Its stack pointer leads into zeros.
            let empty = RemoteAddr::new(regs.sp()).minus(65536);
            memory.write(empty, &[0; 4096]).unwrap();
            let mut lost = regs;
            lost.0.rsp = empty.get() + 1024;
            let unknown = "where its stack cannot be followed to its root";
            assert_eq!(again(&lost).map(|_| ()), Err(unknown.to_owned()));
            Some(())
        })
        .unwrap();
    }

    /// `qsort` calls back from a function that has no name in a stripped C library.
    #[test]
    fn a_callback_of_the_c_library_is_known_by_name_or_left_alone() {
        let target = TestTarget::busy("sort");
        let look = target.look();
        let options = Options::default();
        let mut judge = Judge::new(&look, &options);
        let libc = Some(look.code.module);
        let unnamed = "called by a part of the C library that has no name";
        let met = stop_until(&target, &mut judge, |judge, stopped, judged| {
            let Err(reason) = judged else {
                let regs = stopped.registers().unwrap();
                let walk = judge.walker.walk(StackPosition {
                    pc: regs.pc(),
                    sp: regs.sp(),
                    frame: Some(regs.frame()),
                });
                let inner = walk
                    .frames
                    .iter()
                    .take_while(|frame| !frame.names.iter().any(|name| name == "main"));
                let mut inner = inner.filter(|frame| frame.module == libc);
                let started = |frame: &Frame| !frame.names.is_empty();
                // Every function of the C library inside `main` must have a name. (The function
                // that starts a thread other than the first has none.)
                assert!(inner.all(started), "{:?}", walk.frames);
                return None;
            };
            (text(reason) == unnamed).then_some(())
        });
        if met.is_none() {
            midair_tests::leave_out("this C library has a name for each function").unwrap();
        }
    }

    #[test]
    fn parts_of_the_c_library_without_a_name_are_noticed() {
        let target = TestTarget::cat();
        let look = target.look();
        let options = Options::default();
        let judge = Judge::new(&look, &options);
        let libc = look.code.module;
        let frame = |module: usize, name: Option<&str>| Frame {
            address: 0,
            module: Some(module),
            names: name.map(str::to_owned).into_iter().collect(),
        };
        let program = || frame(libc + 1, Some("compare"));
        let start = || frame(libc, None);
        let unnamed = |frames: &[Frame]| judge.leaves_the_c_library_unnamed(frames);
        // The start of a program may have none.
        assert!(!unnamed(&[program(), start(), frame(libc + 1, None)]));
        assert!(!unnamed(&[
            program(),
            frame(libc, Some("qsort")),
            program(),
            start()
        ]));
        assert!(unnamed(&[program(), frame(libc, None), program(), start()]));
        let deep = [
            program(),
            frame(libc, Some("qsort")),
            frame(libc, None),
            program(),
            start(),
        ];
        assert!(unnamed(&deep));
    }
}
