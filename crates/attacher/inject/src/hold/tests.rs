//! A thread is proven again when it is stopped, and given back as it was.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what went wrong by panicking"
)]

use super::*;
use crate::options::Options;
use crate::parked::{Grade, Judge, Verdict};
use crate::test_target::{PATIENCE, TestTarget, parked};
use midair_procinfo::Pid;

fn stopped(candidate: &Candidate, memory: Memory) -> Result<Proven, &'static str> {
    match stop(candidate, memory, false, Deadline::after(PATIENCE)) {
        Ok(proven) => Ok(proven),
        Err(NotHeld::Unsuitable(why)) => Err(why),
        Err(NotHeld::Failed(error)) => panic!("{error}"),
    }
}

fn begin(proven: Proven, look: &Inspection) -> Result<Hold, &'static str> {
    let memory = (look.memory(), look.pid);
    let begun = Hold::begin(proven, memory, &look.modules, &look.code, PATIENCE);
    match begun {
        Ok(hold) => Ok(hold),
        Err(NotHeld::Unsuitable(why)) => Err(why),
        Err(NotHeld::Failed(error)) => panic!("{error}"),
    }
}

/// Holds the main thread of `cat`.
fn held(target: &TestTarget) -> (Inspection, Hold) {
    let look = target.look();
    let options = Options::default();
    let candidate = parked(&mut Judge::new(&look, &options));
    let proven = stopped(&candidate, look.memory()).unwrap();
    let hold = begin(proven, &look).unwrap();
    (look, hold)
}

#[test]
fn what_was_judged_is_compared_once_the_thread_stands() {
    let mut target = TestTarget::cat();
    let look = target.look();
    let options = Options::default();
    let candidate = parked(&mut Judge::new(&look, &options));
    assert!(!candidate.stack.is_empty());
    drop(stopped(&candidate, look.memory()).unwrap());
    for changed in [0, candidate.stack.len() - 1] {
        let mut other = candidate.clone();
        other.stack[changed] ^= 1;
        let why = stopped(&other, look.memory()).unwrap_err();
        assert_eq!(why, "its stack changed in the meantime");
    }
    let went_on: [fn(&mut Candidate); 3] = [
        |other| other.blocking.number += 1,
        |other| other.blocking.sp += 8,
        // It is behind another `syscall` of the same library.
        |other| other.blocking.pc = 0,
    ];
    for (change, why) in went_on.into_iter().zip([
        "it continued in the meantime",
        "it continued in the meantime",
        "it does not stand behind a system call",
    ]) {
        let mut other = candidate.clone();
        change(&mut other);
        assert_eq!(stopped(&other, look.memory()).unwrap_err(), why);
    }
    target.answers();
}

/// They are so whether the hold is released or dropped half way.
#[test]
fn the_bytes_under_the_frame_are_as_before() {
    for is_dropped in [false, true] {
        let mut target = TestTarget::cat();
        let look = target.look();
        let options = Options::default();
        let candidate = parked(&mut Judge::new(&look, &options));
        let below = RemoteAddr::new(candidate.blocking.sp).minus(16384);
        let bytes = || look.memory().read_vec(below, 16384).unwrap();
        let before = bytes();
        let proven = stopped(&candidate, look.memory()).unwrap();
        let hold = begin(proven, &look).unwrap();
        assert_ne!(bytes(), before, "a frame is there");
        if is_dropped {
            drop(hold);
        } else {
            hold.release().unwrap();
        }
        assert!(bytes() == before);
        target.answers();
    }
}

#[test]
fn a_stack_without_room_is_not_written_to() {
    let mut target = TestTarget::cat();
    let look = target.look();
    let options = Options::default();
    // Two stack pointers have no room below them. One is at the start of a mapping that
    // directly follows a readable one. The other is in memory that is not writable.
    let all = &look.modules.mappings;
    let tight = all.windows(2).find_map(|pair| {
        let [below, at] = pair else { return None };
        (below.read && below.end == at.start && at.write).then_some(at.start + 64)
    });
    let constant = all
        .iter()
        .find(|at| at.read && !at.write)
        .map(|at| at.end - 64);
    for sp in [tight.unwrap(), constant.unwrap()] {
        // A thread that was let go needs a moment until it is parked in its call again.
        let candidate = parked(&mut Judge::new(&look, &options));
        let mut proven = stopped(&candidate, look.memory()).unwrap();
        proven.regs.0.rsp = sp;
        assert_eq!(begin(proven, &look).unwrap_err(), "its stack has no room");
    }
    target.answers();
}

/// SIGTRAP is not blocked while the thread runs our code. If one comes, it is meant for the
/// program.
#[test]
fn a_sigtrap_during_a_system_call_is_delivered() {
    let target = TestTarget::cat();
    let (_look, mut hold) = held(&target);
    target.signal(libc::SIGTRAP);
    let result = hold.system_call("getpid", libc::SYS_getpid as u64, [0; 6]);
    assert!(matches!(result, Err(EnterError::Gone { .. })), "{result:?}");
    drop(hold);
    assert!(target.ends());
}

/// Returns a stub that does not end by itself: a jump to itself takes its place. Any large library
/// has one somewhere.
fn endless(look: &Inspection, hold: &Hold) -> Stub {
    let libc = &look.modules.list[look.code.module];
    let part = libc.parts.iter().find(|part| part.execute).unwrap();
    let code = look
        .memory()
        .read_vec(
            RemoteAddr::new(part.start),
            (part.end - part.start) as usize,
        )
        .unwrap();
    let at = code.windows(2).position(|bytes| bytes == [0xeb, 0xfe]);
    let result = hold.layout.stack.minus(4096);
    look.memory().write(result, &[0; 8]).unwrap();
    Stub {
        code: RemoteAddr::new(part.start + at.unwrap() as u64),
        code_len: 2,
        stack: hold.layout.stack.minus(1024),
        block: result,
        result,
    }
}

#[test]
fn a_sigtrap_that_reaches_the_stub_is_delivered() {
    let target = TestTarget::cat();
    let (look, mut hold) = held(&target);
    let stub = endless(&look, &hold);
    let end = hold.run_stub(stub, Deadline::after(Duration::from_secs(5)), || {
        target.signal(libc::SIGTRAP);
    });
    assert!(matches!(end, Err(EnterError::Gone { .. })));
    drop(hold);
    assert!(target.ends());
}

/// Every other signal is blocked while our code runs. It is neither lost nor delivered there, but
/// when the thread is given back.
#[test]
fn another_signal_waits_until_the_stub_has_ended() {
    for signal in [libc::SIGUSR1, libc::SIGTERM, libc::SIGALRM] {
        let target = TestTarget::cat();
        let (look, mut hold) = held(&target);
        let stub = endless(&look, &hold);
        let end = hold.run_stub(stub, Deadline::after(PATIENCE), || {
            target.signal(signal);
            // The stub says that it is done, long after the signal has come.
            look.memory().write(stub.result, &[1, 0, 0, 0]).unwrap();
        });
        assert!(matches!(end, Ok(StubEnd::Made)), "{signal}");
        assert_eq!(task::stat(target.pid).unwrap().state, b't', "{signal}");
        hold.release().unwrap();
        assert!(target.ends(), "{signal}");
    }
}

/// If a thread that a signal has stopped is dropped, the signal is still delivered to it.
#[test]
fn a_signal_is_not_lost_with_a_stopped_thread() {
    let target = TestTarget::cat();
    let seized = Seized::seize(target.pid.leader(), false).unwrap();
    target.signal(libc::SIGUSR1);
    let Waited::Stopped(stopped) = seized.wait(Deadline::after(PATIENCE)).unwrap() else {
        panic!("it is stopped by the signal");
    };
    assert_eq!(stopped.kind(), StopKind::Signal(libc::SIGUSR1));
    drop(stopped);
    assert!(target.ends());
    // The same holds for a thread whose stop was not looked at yet.
    let target = TestTarget::cat();
    let seized = Seized::seize(target.pid.leader(), false).unwrap();
    target.signal(libc::SIGUSR1);
    drop(seized);
    assert!(target.ends());
}

/// It waits in a call in which any thread may be borrowed, but by its name it is a worker thread.
#[test]
fn our_own_parked_thread_is_not_borrowed() {
    let dir = tempfile::tempdir().unwrap();
    let judged = |name: &str| {
        let program = dir.path().join(name);
        let paths = std::env::var_os("PATH").unwrap();
        let cat = std::env::split_paths(&paths)
            .map(|dir| dir.join("cat"))
            .find(|path| path.exists());
        std::fs::copy(cat.unwrap(), &program).unwrap();
        let target = TestTarget::reader(&program);
        let pid: Pid = target.pid;
        let look = target.look();
        let options = Options::default();
        let mut judge = Judge::new(&look, &options);
        midair_tests::target::until("it waits", || Ok(task::stat(pid)?.state == b'S')).unwrap();
        match judge.judge(pid.leader(), None).unwrap() {
            Verdict::Parked(candidate) => Ok(candidate.grade),
            Verdict::Rejected(thread) => Err(thread.doing),
            Verdict::AskRegisters(_) => Err("registers".to_owned()),
        }
    };
    assert_eq!(judged("some-cat"), Ok(Grade::Call));
    assert_eq!(
        judged(midair_record::boot::THREAD_NAME),
        Err("is ours".into())
    );
}
