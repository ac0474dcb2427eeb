//! The threads of a process, their stacks, and what each waits for.

use crate::answer::{Lock, Runtime, Thread};
use crate::memory::Bytes;
use crate::schedule;
use midair_procinfo::module::Modules;
use midair_procinfo::stack::{StackPosition, Walk, Walker};
use midair_procinfo::syscall::{Activity, Blocking};
use midair_procinfo::{Pid, Tid, show, task};
use midair_ptrace::{Deadline, Seized, trace};
use midair_record::boot::{LOCAL_NAME, SOLE_NAME, THREAD_NAME};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The most threads that are looked at.
const MOST: usize = 1024;
/// The most frames that are reported for one thread.
const MOST_FRAMES: usize = 256;
/// The most bytes of names of functions and modules that are kept for all stacks.
const MOST_NAMES: usize = 16 << 20;
/// The longest time that all threads may take.
const LONGEST: Duration = Duration::from_secs(10);
/// The longest time that one thread may take to stop: it may have to wait for a processor.
const PATIENCE: Duration = Duration::from_secs(1);
/// The most walks of one stack. A stack that reaches a file which was not read yet is walked again.
const WALKS: usize = 256;

/// A frame of a native stack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frame {
    /// An address in the function.
    pub address: u64,
    /// The function; None where it has no symbol.
    pub function: Option<String>,
    /// The file name of the program or library.
    pub module: Option<String>,
    /// How far the address lies behind the start of that file's mappings.
    pub offset: u64,
}

/// Looks at all threads except midair's own.
pub(crate) fn look(pid: Pid, live: Tid, modules: &Modules, notes: &mut Vec<String>) -> Vec<Thread> {
    let deadline = Instant::now() + LONGEST;
    let mut tids = task::list(live).unwrap_or_default();
    let count = tids.len();
    tids.truncate(MOST);
    let own = own_ids(&tids);
    let mut walker = Walker::new(modules, modules.memory().clone());
    let (mut threads, mut refused, mut late) = (Vec::new(), None, 0);
    let mut room = MOST_NAMES;
    for tid in tids {
        let Some(mut thread) = bare(tid, &own) else {
            continue;
        };
        if Instant::now() > deadline {
            late += 1;
            threads.push(thread);
            continue;
        }
        let activity = task::activity(tid).unwrap_or(Activity::Running);
        // A thread in uninterruptible sleep would not stop either.
        let may_stop = thread.state != 'D';
        match stack(tid, activity, may_stop, &mut walker) {
            Ok(walk) => {
                told(&mut thread, &walk, &walker, modules);
                keep_names(&mut thread.frames, &mut room);
            }
            Err(why) => {
                refused.get_or_insert(format!(
                    "cannot unwind the stack of thread {tid} ({}): {why}",
                    thread.name
                ));
            }
        }
        if let Activity::Syscall(call) = activity {
            thread.lock = lock(&thread, &call, modules, &own);
        }
        // Read after the stop, because the stop itself makes the kernel give the thread a
        // processor.
        (thread.processor, thread.runs) = schedule(pid.get(), tid.get()).unwrap_or_default();
        threads.push(thread);
    }
    notes.extend(refused);
    if room == 0 {
        notes.push("some names are missing: their total length exceeds a limit".to_owned());
    }
    if late > 0 {
        notes.push(format!(
            "{late} threads were skipped: reading the others took too long"
        ));
    }
    if count > MOST {
        notes.push(format!(
            "process {pid} has {count} threads: midair inspected {MOST} of them"
        ));
    }
    threads
}

/// Lists the threads without their stacks, except midair's own.
pub(crate) fn list(live: Tid) -> Vec<Thread> {
    let mut tids = task::list(live).unwrap_or_default();
    tids.truncate(MOST);
    let own = own_ids(&tids);
    tids.iter().filter_map(|tid| bare(*tid, &own)).collect()
}

/// Describes a thread without its stack. Returns None if it has ended, or is midair's own.
fn bare(tid: Tid, own: &BTreeMap<Tid, Tid>) -> Option<Thread> {
    let stat = task::stat(tid).ok()?;
    let ours = [THREAD_NAME, LOCAL_NAME, SOLE_NAME];
    let is_ours = ours.iter().any(|name| stat.comm == name.as_bytes());
    (!stat.is_dead() && !is_ours).then(|| Thread {
        tid: tid.get(),
        own_tid: own.get(&tid).map_or(tid.get(), |own| own.get()),
        name: show(&stat.comm),
        state: char::from(stat.state),
        ..Thread::default()
    })
}

/// Computes each thread's share of a processor from its time at the first look. Removes the waits
/// that have ended since.
pub(crate) fn settle(pid: Pid, threads: &mut [Thread], looked: Duration) {
    for thread in threads {
        let known = (thread.processor, thread.runs);
        let (now, runs) = schedule(pid.get(), thread.tid).unwrap_or(known);
        // A thread that has run since then has got the lock, if only for a moment.
        if runs != thread.runs {
            thread.lock = None;
        }
        thread.turns = runs.saturating_sub(thread.runs);
        let spent = (now - thread.processor).max(0.0);
        thread.processor = (spent / looked.as_secs_f64().max(1e-3)).min(1.0);
    }
}

/// Returns the ids that the threads have in the process's own pid namespace.
fn own_ids(tids: &[Tid]) -> BTreeMap<Tid, Tid> {
    let own = |tid: &Tid| Some((*tid, task::status(*tid).ok()?.own_tid()?));
    tids.iter().filter_map(own).collect()
}

/// Unwinds a thread. A sleeping thread is not stopped unless its stack can only be unwound with its
/// registers.
fn stack(
    tid: Tid,
    activity: Activity,
    may_stop: bool,
    walker: &mut Walker,
) -> Result<Walk, String> {
    let place = match activity {
        Activity::Running => None,
        Activity::Blocked { sp, pc } | Activity::Syscall(Blocking { sp, pc, .. }) => {
            Some(StackPosition {
                pc,
                sp,
                frame: None,
            })
        }
    };
    let unstopped = place.map(|place| walker.walk(place));
    if let Some(walk) = &unstopped
        && walk.rooted
        && !walk.needs_frame_pointer
    {
        return Ok(walk.clone());
    }
    let stopped = match may_stop {
        true => stack_stopped(tid, walker),
        false => Err("it is in uninterruptible sleep".to_owned()),
    };
    match stopped {
        Ok(walk) => Ok(walk),
        // The thread cannot be stopped because another process traces it. What can be read without
        // a stop is shown.
        Err(why) => unstopped
            .filter(|walk| !walk.needs_frame_pointer)
            .ok_or(why),
    }
}

/// Unwinds a thread that is stopped for this.
fn stack_stopped(tid: Tid, walker: &mut Walker) -> Result<Walk, String> {
    for _ in 0..WALKS {
        // The tracing thread ends after each try, which releases whatever it held.
        let walked = trace(tid, || walk_stopped(tid, walker))
            .map_err(|error| error.to_string())?
            .map_err(|error| error.to_string())?;
        match walked {
            Ok(walk) => return Ok(walk),
            // The file is read while the thread runs.
            Err(module) => walker.learn(module),
        }
    }
    Err("it lies in too many files".to_owned())
}

/// Unwinds a thread while it is stopped. The inner error names a module that has not been read yet.
fn walk_stopped(
    tid: Tid,
    walker: &mut Walker,
) -> Result<Result<Walk, usize>, midair_ptrace::Error> {
    let seized = Seized::seize(tid, false)?;
    seized.interrupt()?;
    let stopped = seized.wait_for_event(Deadline::after(PATIENCE))?;
    let registers = stopped.registers()?;
    let place = StackPosition {
        pc: registers.pc(),
        sp: registers.sp(),
        frame: Some(registers.frame()),
    };
    let walked = walker.walk_known(place);
    stopped.detach()?;
    Ok(walked)
}

/// Stores what a stack says about the thread.
fn told(thread: &mut Thread, walk: &Walk, walker: &Walker, modules: &Modules) {
    let module = |index: Option<usize>| {
        let module = modules.list.get(index?)?;
        Some(show(module.file_name()))
    };
    let frame = |frame: &midair_procinfo::stack::Frame| Frame {
        address: frame.address,
        function: frame.names.first().cloned(),
        module: module(frame.module),
        offset: frame
            .module
            .and_then(|index| modules.list.get(index))
            .map_or(0, |module| frame.address.saturating_sub(module.base)),
    };
    thread.frames = walk.frames.iter().take(MOST_FRAMES).map(frame).collect();
    thread.rooted = walk.rooted;
    let outermost = walk.frames.iter().rev().map(frame);
    // A runtime's function may have jumped to another function and so have no frame. What counts is
    // the function that the caller called.
    let called = |caller: u64| {
        let target = walker.called(caller)?;
        runtime(&module(modules.at(target))?)?;
        walker.names_at(target).into_iter().next()
    };
    classify(thread, outermost, called);
}

/// Takes the names of frames away where there is no more room for them. Then there is none for later
/// ones either.
fn keep_names(frames: &mut [Frame], room: &mut usize) {
    for frame in frames {
        let len = |name: &Option<String>| name.as_ref().map_or(0, String::len);
        let both = len(&frame.function) + len(&frame.module);
        match room.checked_sub(both) {
            Some(left) if *room > 0 => *room = left,
            _ => {
                *room = 0;
                (frame.function, frame.module) = (None, None);
            }
        }
    }
}

/// Finds the call that a thread is in: the function that its outermost frame outside of a runtime
/// called there. A thread whose stack starts in a runtime belongs to that runtime.
fn classify(
    thread: &mut Thread,
    outermost: impl Iterator<Item = Frame>,
    called: impl Fn(u64) -> Option<String>,
) {
    let mut caller = None;
    for frame in outermost {
        let Some(module) = &frame.module else {
            continue;
        };
        match (runtime(module), caller) {
            (Some(of), None) => {
                thread.is_runtimes = Some(of);
                return;
            }
            (Some(of), Some(caller)) => {
                let function = called(caller).or(frame.function);
                let function = function.unwrap_or_else(|| "a function".to_owned());
                thread.call = Some((of, function));
                return;
            }
            // Every thread starts in these libraries.
            (None, _) if begins_threads(module) => {}
            (None, _) => caller = Some(frame.address),
        }
    }
}

fn begins_threads(module: &str) -> bool {
    ["libc.so", "libc-", "libpthread", "libstdc++"]
        .iter()
        .any(|name| module.starts_with(name))
}

fn runtime(module: &str) -> Option<Runtime> {
    let known = [
        ("libamdhip64", Runtime::Hip),
        ("libhsa-runtime64", Runtime::Hsa),
        ("libcudart", Runtime::Cuda),
        ("libcuda", Runtime::Cuda),
        ("librccl", Runtime::Rccl),
        ("libnccl", Runtime::Nccl),
        ("libmpi", Runtime::Mpi),
    ];
    let is = |name: &str| {
        let rest = module.strip_prefix(name)?;
        // This accepts `libcuda.so.1`, and not `libcudadebugger.so.1`.
        (rest.starts_with(".so") || rest.starts_with('-')).then_some(())
    };
    known
        .iter()
        .find(|(name, _)| is(name).is_some())
        .map(|(_, runtime)| *runtime)
}

/// Returns the lock that a thread waits for, if it waits for one. It does if it sleeps on a futex
/// in a function of the C library that takes a lock. A mutex names its owner (source: glibc,
/// `pthread_mutex_t`, whose first word is the futex).
fn lock(
    thread: &Thread,
    call: &Blocking,
    modules: &Modules,
    own: &BTreeMap<Tid, Tid>,
) -> Option<Lock> {
    #[cfg(target_arch = "x86_64")]
    const FUTEX: u64 = 202;
    #[cfg(target_arch = "aarch64")]
    const FUTEX: u64 = 98;
    /// How many frames are searched for the function.
    const TOP: usize = 4;
    /// The offset of the owner in a mutex.
    const OWNER: u64 = 8;
    if call.number != FUTEX {
        return None;
    }
    let functions = thread.frames.iter().take(TOP);
    let mut names = functions.filter_map(|frame| frame.function.as_deref());
    let which = names.find(|name| {
        [
            "mutex_lock",
            "mutex_timedlock",
            "mutex_clocklock",
            "rwlock_wrlock",
            "rwlock_rdlock",
        ]
        .iter()
        .any(|takes| name.ends_with(takes))
    })?;
    let address = call.args[0];
    let owner = || {
        let word = modules.memory().half(address.checked_add(OWNER)?)?;
        let (tid, _) = own.iter().find(|(_, own)| own.get() == word)?;
        Some(tid.get())
    };
    Some(Lock {
        address,
        holder: if which.contains("rwlock") {
            None
        } else {
            owner()
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(of: &[(&str, &str)]) -> Vec<Frame> {
        let frame = |(function, module): &(&str, &str)| Frame {
            address: 0,
            function: Some((*function).to_owned()),
            module: Some((*module).to_owned()),
            offset: 0,
        };
        of.iter().map(frame).collect()
    }

    #[test]
    fn names_are_kept_as_long_as_there_is_room() {
        let long = "x".repeat(40);
        let mut stack = frames(&[(&long, "a.so"), (&long, "a.so"), ("short", "b.so")]);
        let mut room = 60;
        keep_names(&mut stack, &mut room);
        assert_eq!(room, 0);
        let kept: Vec<bool> = stack.iter().map(|it| it.function.is_some()).collect();
        assert_eq!(kept, [true, false, false]);
    }

    #[test]
    fn the_outermost_frame_in_a_runtime_is_the_call() {
        let mut thread = Thread::default();
        let stack = frames(&[
            ("clone3", "libc.so.6"),
            ("work", "train"),
            ("hipStreamSynchronize", "libamdhip64.so.7"),
            ("hsa_signal_wait_scacquire", "libhsa-runtime64.so.1"),
            ("ioctl", "libc.so.6"),
        ]);
        classify(&mut thread, stack.clone().into_iter(), |_| None);
        let call = |name: &str| Some((Runtime::Hip, name.to_owned()));
        assert_eq!(thread.call, call("hipStreamSynchronize"));
        // The called function jumped to another one.
        let called = |_| Some("hipStreamQuery".to_owned());
        classify(&mut thread, stack.into_iter(), called);
        assert_eq!(thread.call, call("hipStreamQuery"));
    }

    #[test]
    fn a_thread_that_begins_in_a_runtime_is_its_own() {
        let mut thread = Thread::default();
        let stack = frames(&[
            ("clone3", "libc.so.6"),
            ("start", "libstdc++.so.6"),
            ("run", "libhsa-runtime64.so.1.18.0"),
        ]);
        classify(&mut thread, stack.into_iter(), |_| None);
        assert_eq!(
            (thread.call, thread.is_runtimes),
            (None, Some(Runtime::Hsa))
        );
        assert_eq!(runtime("libcuda.so.580.1"), Some(Runtime::Cuda));
        assert_eq!(runtime("libcudadebugger.so.1"), None);
        assert_eq!(runtime("libnccl.so.2"), Some(Runtime::Nccl));
    }

    #[test]
    fn a_thread_that_sleeps_and_one_that_runs_are_unwound_and_go_on() {
        for (program, argument, function) in [("sleep", "600", "nanosleep"), ("yes", "", "main")] {
            let child = std::process::Command::new(program)
                .arg(argument)
                .stdout(std::process::Stdio::null())
                .spawn();
            let mut child = child.unwrap();
            let pid = Pid::of_child(&child);
            let mut last = Vec::new();
            let mut notes = Vec::new();
            // The thread has only just started.
            let is_found = (0..2000).any(|_| {
                let Ok(modules) = Modules::of(pid) else {
                    return false;
                };
                notes.clear();
                last = look(pid, pid.leader(), &modules, &mut notes);
                last.iter().any(|thread| {
                    let mut names = thread.frames.iter().filter_map(|it| it.function.as_deref());
                    let is_whole = thread.frames.len() > 2 && thread.rooted;
                    // The distribution's programs have no symbols of their own.
                    is_whole && (program == "yes" || names.any(|name| name.contains(function)))
                })
            });
            let traced = task::status(pid.leader()).unwrap().tracer;
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(is_found, "{program}: {last:?}: {notes:?}");
            assert_eq!(traced, None, "{program}");
        }
    }
}
