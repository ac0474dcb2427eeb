//! T3: a running thread is stopped briefly and repeatedly, until a stop happens to meet it where it
//! holds nothing.
//!
//! Nothing is put into the program for this. There is no breakpoint in its code, which other
//! threads execute too, and no hardware breakpoint, which would outlive us and kill the process. A
//! thread that is merely stopped runs on if we die.
//!
//! The borrowed thread calls `pthread_create`. So it must hold no lock of the allocator, the loader
//! or the C library, and must not be in the middle of changing what these keep for each thread. Three
//! situations prove that:
//! * It executes user code outside the C library, its stack is known down to its root, and none of
//!   the frames rules a parked thread out (`names`). An allocator in the middle of its work would
//!   be on the stack. Code of a file that brings its own allocator is excluded, since parts of the
//!   allocator may be inlined anywhere in that file.
//! * It executes a function of the C library that works on the bytes that it is given and on
//!   nothing else, called by such code ([`pure`](crate::pure)).
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
use midair_ptrace::{Deadline, Registers, RemoteAddr, Seized, StopKind, Stopped, sleep_beside};

use crate::arch::{self, Standing};
use crate::error::{During, EnterError, RejectedThread};
use crate::hold::{NotHeld, Proven};
use crate::names;
use crate::options::Options;
use crate::parked::{Candidate, Grade, Judge};
use crate::turn::{Turn, at_a_call};

/// The number of stops of one thread in a row, before another thread has its turn.
const LOOKS_IN_A_ROW: u32 = 24;
/// The least time that a thread runs between two stops. It also runs for at least a multiple of the
/// time that the last stop took.
const LEAST_RUN: Duration = Duration::from_micros(100);
/// A thread runs for so many times the length of a stop before it is stopped again.
const RUN_PER_STOP: u32 = 4;
/// For how long one thread is examined before the others are looked at again.
const ROW_LIMIT: Duration = Duration::from_millis(150);

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

    /// Whether threads may be stopped after so much of the search. Half of the stops may be made
    /// at once. The others are spread over the search, so that a program which takes long to come
    /// to a safe point is still looked at then.
    pub(crate) fn allows(&self, passed: Duration, options: &Options) -> bool {
        let rest = 1.0 - passed.div_duration_f64(options.find).min(1.0);
        let reserved = f64::from(options.looks / 2) * rest;
        !self.is_spent() && f64::from(self.looks) > reserved
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
    /// The same for the functions of the C library that this file calls.
    CallsUnread(usize),
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
    let row = Deadline::after(ROW_LIMIT);
    let mut turn = Turn::of(tid);
    loop {
        let (stopped, began) = if to_a_call {
            at_a_call(running, options.stop, &turn).map_err(gone)?
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
        let last = looks >= LOOKS_IN_A_ROW
            || matches!(no, RejectReason::Never(_))
            || budget.looks <= 1
            || row.passed();
        // Two stops wherever the thread is are followed by one behind its next system call.
        to_a_call = looks % 3 == 2;
        let go_on = |stopped: Stopped| match (last, to_a_call) {
            (true, _) => stopped.detach_with(0).map(|()| None),
            (false, true) => stopped.resume_to_syscall().map(Some),
            (false, false) => stopped.resume(0).map(Some),
        };
        turn = Turn::of(tid);
        let next = go_on(stopped).map_err(gone)?;
        let stood = began.elapsed();
        budget.take(stood);
        match no {
            // This says nothing about the thread: it may well be safe there.
            RejectReason::ModuleUnread(module) => judge.learn(module),
            RejectReason::CallsUnread(module) => judge.learn_pure(module),
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
            turn.wait();
            sleep_beside((stood * RUN_PER_STOP).max(LEAST_RUN) + odd);
        }
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
                    "its registers do not show its position".into(),
                ));
            }
        };
        match module {
            _ if call.is_some() => {}
            // The stack tells in which function.
            Some(index) if index == libc => {}
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
            return Err(there(
                "at a place where its stack cannot be unwound completely",
            ));
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
                let mut frames = walk.frames.as_slice();
                let mut pure = None;
                if module == Some(libc) {
                    pure = self
                        .pure_function(frames)
                        .map_err(RejectReason::CallsUnread)?;
                    if pure.is_none() {
                        return Err(there("inside the C library"));
                    }
                    frames = frames.get(1..).unwrap_or_default();
                }
                let within = frames.first();
                if within.is_none_or(|frame| self.is_own_allocator(frame.module)) {
                    return Err(there("in a program that has an allocator of its own"));
                }
                if self.leaves_the_c_library_unnamed(frames) {
                    return Err(there("called by an unnamed part of the C library"));
                }
                let names = within
                    .map(|frame| frame.names.as_slice())
                    .unwrap_or_default();
                let module = within.and_then(|frame| self.modules.list.get(frame.module?));
                let code = match (names.first(), module) {
                    (Some(function), _) => function.clone(),
                    (None, Some(module)) => format!("code of {}", show(module.file_name())),
                    (None, None) => "code generated at run time".to_owned(),
                };
                match pure {
                    Some(function) => format!("in {function}, called by {code}"),
                    None => format!("in {code}"),
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

    /// Returns true if the program called a function of the C library that has no name, which called
    /// the program back. The C library may call back (`qsort`), and only the name of the function
    /// that the program called tells what it was doing. What that function called inside the C
    /// library is a part of it, with or without a name (`pthread_once`). The functions that start
    /// threads and programs have no names in a stripped file, either, but these are the outermost.
    fn leaves_the_c_library_unnamed(&self, frames: &[midair_procinfo::stack::Frame]) -> bool {
        let libc = Some(self.look.code.module);
        // The outermost frame of the main thread is the program's first instructions, which call
        // the C library.
        let inner = frames.split_last().map_or(frames, |(_root, inner)| inner);
        let start = inner
            .iter()
            .rposition(|frame| frame.module != libc)
            .unwrap_or(0);
        let pairs = frames.iter().zip(frames.iter().skip(1)).take(start);
        pairs
            .filter(|(frame, caller)| frame.module == libc && caller.module != libc)
            .any(|(frame, caller)| frame.names.is_empty() && !self.calls_what_is_known(caller))
    }

    /// Whether the call instruction of this frame led to a function of the C library that has a name
    /// and does not rule the thread out. That function may have jumped to a part of itself that has
    /// none, and then has no frame of its own (`pthread_once`).
    fn calls_what_is_known(&self, caller: &midair_procinfo::stack::Frame) -> bool {
        let called = self.walker.called(caller.address);
        let Some(called) = called.filter(|&at| self.modules.at(at) == Some(self.look.code.module))
        else {
            return false;
        };
        let names = self.walker.names_at(called);
        let harmless = |name: &String| names::function_hazard(name).is_none();
        !names.is_empty() && names.iter().all(harmless)
    }

    /// Refuses a thread that is inside a restartable sequence. If its instruction pointer were
    /// moved out of the sequence and back, it would go on in it although the kernel no longer
    /// watches over it.
    fn in_no_restartable_sequence(&self, stopped: &Stopped, pc: u64) -> Result<(), RejectReason> {
        /// Offset of `rseq_cs` in `struct rseq` (linux/rseq.h).
        const SEQUENCE: u64 = 8;
        let area = stopped.restartable_sequences().map_err(|_| {
            RejectReason::Never("the kernel does not show its restartable sequences".into())
        })?;
        let Some((area, ..)) = area else {
            return Ok(());
        };
        let memory = self.look.memory();
        let unreadable =
            |_| RejectReason::HoldsSomething("cannot read its restartable sequence".into());
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
            return "is running; there was no time to inspect it".to_owned();
        }
        let told: Vec<String> = all
            .iter()
            .take(3)
            .map(|(why, count)| format!("{count} times {why}"))
            .collect();
        let more = if all.len() > 3 { ", and elsewhere" } else { "" };
        format!(
            "is running; inspected {looks} times: {}{more}",
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
            "is running; inspected 7 times: 3 times b, 2 times c, 1 times a, and elsewhere"
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

    #[test]
    fn half_of_the_stops_are_spread_over_the_search() {
        let options = Options {
            looks: 10,
            looked: Duration::from_secs(1),
            find: Duration::from_secs(4),
            ..Options::default()
        };
        let mut budget = Budget::of(&options);
        let mut made = 0;
        let mut until = |seconds: f64| {
            while budget.allows(Duration::from_secs_f64(seconds), &options) {
                budget.take(Duration::ZERO);
                made += 1;
            }
            made
        };
        assert_eq!([0.0, 0.1, 2.0, 4.0, 9.0].map(&mut until), [5, 6, 8, 10, 10]);
    }

    use crate::test_target::{PATIENCE, TestTarget};
    use midair_procinfo::stack::Frame;

    fn text(reason: RejectReason) -> String {
        match reason {
            RejectReason::HoldsSomething(why) | RejectReason::Never(why) => why,
            RejectReason::ModuleUnread(module) | RejectReason::CallsUnread(module) => {
                format!("module {module} is not read")
            }
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
            } else if let Err(RejectReason::CallsUnread(module)) = judged {
                judge.learn_pure(module);
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
            let unknown = "at a place where its stack cannot be unwound completely";
            assert_eq!(again(&lost).map(|_| ()), Err(unknown.to_owned()));
            Some(())
        })
        .unwrap();
    }

    /// `qsort` calls back from a function that has no name in a stripped C library. The name of
    /// `qsort` itself tells what is going on.
    #[test]
    fn a_callback_of_the_c_library_is_known_by_the_function_that_was_called() {
        let target = TestTarget::busy("sort");
        let look = target.look();
        let options = Options::default();
        let mut judge = Judge::new(&look, &options);
        let libc = Some(look.code.module);
        let met = stop_until(&target, &mut judge, |judge, stopped, judged| {
            judged.ok()?;
            let regs = stopped.registers().unwrap();
            if !matches!(arch::standing(&regs), Standing::User) {
                return None;
            }
            let walk = judge.walker.walk(StackPosition {
                pc: regs.pc(),
                sp: regs.sp(),
                frame: Some(regs.frame()),
            });
            // What starts the program has no name. Besides, the C library may be left by a function
            // without a name only where the program called one with a name.
            let inner: Vec<&Frame> = walk
                .frames
                .iter()
                .take_while(|frame| !frame.names.iter().any(|name| name == "main"))
                .collect();
            let within = usize::from(inner.first()?.module == libc);
            let called = inner.windows(2);
            let called = called.filter(|pair| pair[0].module == libc && pair[1].module != libc);
            let mut sorts = false;
            for pair in called.skip(within) {
                let by_its_call = judge.walker.called(pair[1].address);
                let by_its_call = by_its_call.map(|at| judge.walker.names_at(at));
                let names = [pair[0].names.clone(), by_its_call.unwrap_or_default()].concat();
                assert!(!names.is_empty(), "{:?}", walk.frames);
                sorts |= names.iter().any(|name| name.starts_with("qsort"));
            }
            sorts.then_some(())
        });
        assert!(met.is_some());
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
        assert!(!unnamed(&[
            program(),
            frame(libc, None),
            frame(libc, Some("pthread_once")),
            program(),
            start()
        ]));
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
