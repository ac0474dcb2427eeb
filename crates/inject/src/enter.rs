//! The phases of entering a process.

use std::collections::HashMap;
use std::ffi::CString;
use std::mem::offset_of;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use midair_procinfo::stack::{Place, Walker};
use midair_procinfo::{Tid, task};
use midair_ptrace::{
    Awake, Boost, Deadline, Pace, Registers, RemoteAddr, Urgent, fault, keep_off, memfd_with,
    on_own_thread, pidfd_getfd, pidfd_open_thread, send_bytes, send_with_descriptor,
};
use midair_record::boot::{BootBlock, mailbox};

use crate::agent::{Block, mailbox_words};
use crate::arch::{self, number};
use crate::entered::{Entered, Times, Via};
use crate::error::{During, EnterError, Seen};
use crate::hold::{self, Hold, Miss, Stub, StubEnd};
use crate::look::Look;
use crate::mappings::{Draft, Mappings, WHOLE_LEN, library_fd, memfd_name, protection};
use crate::names::{self, Ground};
use crate::options::{FaultPoint, Library, Options};
use crate::orphans;
use crate::parked::{Candidate, Judge, Verdict};
use crate::safe_point::{self, Budget};

/// Enters the process: wakes our thread if one is parked there, else makes one through a borrowed thread; then has it load
/// `library`. When this returns, no thread of the target is stopped or traced.
///
/// Tracing is done on threads of this process that end before this returns.
///
/// # Errors
/// [`EnterError`]; unless its variant says otherwise, the target is as it was, less what the C library keeps of a thread that
/// came and went.
pub fn enter(look: &Look, library: &Library, options: &Options) -> Result<Entered, EnterError> {
    enter_as_it_was(look, library, options).map_err(|error| look.still.explain(error))
}

fn enter_as_it_was(
    look: &Look,
    library: &Library,
    options: &Options,
) -> Result<Entered, EnterError> {
    let library = read(library)?;
    if let Some(agent) = &look.agent {
        return crate::wake::wake(look, agent, options);
    }
    let fd = library_fd(look);
    let entry = crate::inherited::entry(look, library.as_ref())?;
    let draft = Draft::new(look, options, fd, entry);
    // What is there already is not sent again.
    let library = library.filter(|_| entry.is_none());
    let (mappings, via, times) = make_thread(look, draft, options)?;
    let block = Block {
        memory: look.memory(),
        at: mappings.data,
    };
    match meet(look, block, options).and_then(|(channel, agent)| {
        send(&channel, library.as_ref(), fd)?;
        options.reached(FaultPoint::Sent);
        Ok((channel, agent))
    }) {
        Ok((channel, agent_tid)) => Ok(Entered {
            channel,
            pid: look.pid,
            agent_tid,
            via,
            times,
            mappings: Some(mappings),
            still: look.still.clone(),
            block: Some(block),
        }),
        Err(error) => {
            // Our thread gives up by itself when its patience is over; its memory goes with it. One that cannot be found but has told
            // its number has ended already.
            let agent = find_agent(look, block).or(block.own_tid());
            if let Some(agent_tid) = agent {
                let _undone = crate::entered::unmap_after(
                    &look.still,
                    agent_tid,
                    block,
                    mappings,
                    None,
                    options,
                );
            }
            Err(error)
        }
    }
}

/// A library in memory.
pub(crate) struct Payload {
    pub(crate) bytes: Vec<u8>,
    /// See [`Library::Other`]; empty for the usual one.
    word: &'static str,
}

pub(crate) fn read(library: &Library) -> Result<Option<Payload>, EnterError> {
    let file = |path: &std::path::Path| std::fs::read(path).during("reading the library");
    let (bytes, word) = match library {
        Library::File(path) => (file(path)?, ""),
        Library::Other { file: path, word } => (file(path)?, *word),
        Library::Bytes(bytes) => (bytes.clone(), ""),
        Library::Nothing => return Ok(None),
    };
    Ok(Some(Payload { bytes, word }))
}

/// Sends the library, or word that there is none.
pub(crate) fn send(
    channel: &OwnedFd,
    library: Option<&Payload>,
    fd: i32,
) -> Result<(), EnterError> {
    const PHASE: &str = "sending the library";
    let Some(Payload { bytes, word }) = library else {
        return send_bytes(channel.as_fd(), b"none").during(PHASE);
    };
    let name = CString::new(memfd_name(word, fd)).unwrap_or_default();
    let file = memfd_with(&name, bytes).during(PHASE)?;
    send_with_descriptor(channel.as_fd(), b"library", file.as_fd()).during(PHASE)
}

/// Borrows one parked thread and has it make ours.
fn make_thread(
    look: &Look,
    draft: Draft,
    options: &Options,
) -> Result<(Mappings, Via, Times), EnterError> {
    let mut judge = Judge::new(look);
    let mut draft = Some(draft);
    let began = Instant::now();
    let (orphans, hint) = (orphans::find(look), orphans::hint());
    borrow(
        look,
        &mut judge,
        options,
        |candidate, rejected, mut hold, seized| {
            let Some(draft) = draft.take() else {
                return Err(EnterError::Silent { at: "a second try" });
            };
            options.reached(FaultPoint::Framed);
            if let Some(refusal) = hold.objection(look, candidate.tid)? {
                hold.release()?;
                return Err(refusal.into());
            }
            let stub_began = Instant::now();
            for orphan in &orphans {
                match unmap(&mut hold, orphan) {
                    // It does no harm.
                    Ok(()) | Err(EnterError::SystemCall { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            let args = [
                hint,
                WHOLE_LEN,
                protection::READ_EXECUTE,
                protection::FLAGS,
                u64::MAX,
                0,
            ];
            let base = hold.system_call("mmap", number::MMAP, args)?;
            let mappings = Mappings::at(RemoteAddr::new(base));
            let data = mappings.data;
            options.reached(FaultPoint::Mapped);
            // Across pid namespaces its number is another one inside.
            let borrowed = match look.access.same_pid_namespace {
                true => Some(candidate.tid),
                false => None,
            };
            if let Err(error) = fill(look, draft, &mappings, &hold, borrowed) {
                let _undone = unmap(&mut hold, &mappings);
                return Err(error);
            }
            options.reached(FaultPoint::Written);
            let stub = Stub {
                code: mappings.code,
                code_len: mappings.code_len,
                stack: mappings.stub_stack(),
                block: data,
                result: data.plus(offset_of!(BootBlock, stub_result) as u64),
            };
            let end = hold.run_stub(stub, Deadline::after(options.stub), || {
                options.reached(FaultPoint::Started)
            })?;
            options.reached(FaultPoint::Made);
            let release_began = Instant::now();
            let done = |hold: Option<Hold>| {
                if let Some(hold) = hold {
                    hold.release()?;
                }
                let times = Times {
                    find: seized.began.saturating_duration_since(began),
                    seize: seized.took,
                    stub: release_began.saturating_duration_since(stub_began),
                    release: release_began.elapsed(),
                    looks: seized.looks.0,
                    looked: seized.looks.1,
                };
                options.reached(FaultPoint::Released);
                Ok((mappings, Via::of(candidate, rejected), times))
            };
            match end {
                StubEnd::Made => done(Some(hold)),
                StubEnd::Freed { made: true } => done(None),
                StubEnd::Refused => {
                    let failure = Block {
                        memory: look.memory(),
                        at: data,
                    }
                    .failure();
                    unmap(&mut hold, &mappings)?;
                    hold.release()?;
                    Err(failure.unwrap_or(EnterError::ThreadRefused { errno: 0 }))
                }
                StubEnd::Freed { made: false } => Err(Block {
                    memory: look.memory(),
                    at: data,
                }
                .failure()
                .unwrap_or(EnterError::ThreadRefused { errno: 0 })),
                StubEnd::Crashed { signal, at } => {
                    unmap(&mut hold, &mappings)?;
                    hold.release()?;
                    Err(EnterError::StubCrashed { signal, at })
                }
                StubEnd::Overdue => {
                    let regs = hold.registers()?;
                    if waits_for_allocator(look, &regs) {
                        hold.abandon_stub();
                        unmap(&mut hold, &mappings)?;
                        hold.release()?;
                        return Err(EnterError::StubBlocked { tid: candidate.tid });
                    }
                    hold.leave()?;
                    Err(EnterError::StubLeft { tid: candidate.tid })
                }
            }
        },
    )
}

fn fill(
    look: &Look,
    draft: Draft,
    mappings: &Mappings,
    hold: &Hold,
    borrowed: Option<Tid>,
) -> Result<(), EnterError> {
    const PHASE: &str = "writing the boot block";
    // Through /proc/TID/mem: neither part is writable yet.
    look.memory()
        .write_through(
            mappings.code,
            &draft.finish(mappings, hold.context(), borrowed, hold.is_unfiltered()),
        )
        .during(PHASE)
}

pub(crate) fn unmap(hold: &mut Hold, mappings: &Mappings) -> Result<(), EnterError> {
    let args = [
        mappings.code.get(),
        mappings.code_len + mappings.data_len,
        0,
        0,
        0,
        0,
    ];
    hold.system_call("munmap", number::MUNMAP, args)
        .map(|_zero| ())
}

/// True when the stub waits for a lock in the allocator, called by pthread_create: it has taken nothing yet, so the thread can
/// be taken back. It may never get that lock, if the borrowed thread itself holds it.
fn waits_for_allocator(look: &Look, regs: &Registers) -> bool {
    let instruction = |at| {
        let mut bytes = [0; arch::SYSCALL_INSTRUCTION.len()];
        let got = look.memory().read_vec(RemoteAddr::new(at), bytes.len());
        bytes.copy_from_slice(&got.ok()?);
        Some(bytes)
    };
    let blocked = arch::interrupted_call(regs, instruction)
        .and_then(|(number, args)| arch::blocked_in(number, &args));
    let Some((_, arch::Blocked::Futex)) = blocked else {
        return false;
    };
    let walk = Walker::new(&look.modules, look.memory()).walk(Place {
        pc: regs.pc(),
        sp: regs.sp(),
        frame: Some(regs.frame()),
    });
    let grounds: Vec<Ground> = walk
        .frames
        .iter()
        .flat_map(|frame| &frame.names)
        .filter_map(|name| names::function_ground(name))
        .collect();
    grounds.first() == Some(&Ground::Allocator) && grounds.contains(&Ground::ThreadCreation)
}

/// Has the calling thread, which ends soon, stay off the processor where `tid` was last. Returns that one if we are elsewhere then.
fn leave_processor_to(tid: Tid) -> Option<u64> {
    let processor = task::stat(tid).ok()?.processor;
    keep_off(processor).then_some(processor)
}

/// How long the stop of a thread took.
pub(crate) struct SeizeTime {
    pub(crate) began: Instant,
    pub(crate) took: Duration,
    /// Stops of running threads before, and how long they took.
    pub(crate) looks: (u32, Duration),
}

/// Looks at all threads that there are at least, before it is said that none will do.
const ROUNDS: u32 = 5;
/// How many times longer than wanted they may take.
const STARVED: u32 = 4;

/// Finds a parked thread, holds it and hands it to `then`, which must release it, with what spoke against the others that were
/// looked at. Looks again until the deadline.
///
/// Each try is made on a thread of its own, see [`on_own_thread`].
pub(crate) fn borrow<T: Send>(
    look: &Look,
    judge: &mut Judge<'_>,
    options: &Options,
    mut then: impl FnMut(&Candidate, &[Seen], Hold, &SeizeTime) -> Result<T, EnterError> + Send,
) -> Result<T, EnterError> {
    let began = Instant::now();
    let deadline = Deadline::after(options.find);
    // Where this process hardly gets a turn, one look takes longer than that: it gets a few all the same.
    let last = Deadline::after(options.find.saturating_mul(STARVED));
    let mut rounds = 0_u32;
    let suspend = look.status.seccomp != 0 && look.access.admin_capability;
    let mut budget = Budget::of(options);
    let mut looked_at: HashMap<Tid, Seen> = HashMap::new();
    let mut turn = 0_usize;
    loop {
        let (verdicts, mut seen) = judge.survey().map_err(|_| EnterError::Gone {
            during: "looking for a thread",
        })?;
        let mut none_yet = true;
        for verdict in verdicts {
            let candidate = match verdict {
                Verdict::Parked(candidate) => candidate,
                Verdict::AskRegisters(candidate) => {
                    let frame = hold::frame_registers(&candidate, options.stop);
                    match frame.and_then(|frame| judge.judge(candidate.tid, Some(frame))) {
                        Some(Verdict::Parked(candidate)) => candidate,
                        Some(Verdict::Not(thread)) => {
                            seen.push(thread);
                            continue;
                        }
                        _ => continue,
                    }
                }
                Verdict::Not(thread) => {
                    seen.push(thread);
                    continue;
                }
            };
            none_yet = false;
            options.reached(FaultPoint::Chosen);
            let tried = on_own_thread(|| {
                let elsewhere = leave_processor_to(candidate.tid);
                let _urgent = Urgent::begin();
                let awake = elsewhere.map(Awake::keep);
                let boost = Boost::lend(candidate.tid);
                let _awake = awake.filter(|_| boost.lends());
                let began = Instant::now();
                let deadline = Deadline::after(options.stop);
                let proven = hold::stop(&candidate, look.memory(), suspend, deadline)?;
                let time = SeizeTime {
                    began,
                    took: began.elapsed(),
                    looks: budget.spent,
                };
                use_it(look, options, &candidate, &seen, proven, &time, &mut then)
            })
            .during("making a thread to trace with")?;
            match tried {
                Ok(done) => return Ok(done),
                Err(Miss::Failed(error)) => return Err(error),
                Err(Miss::NotParked(why)) => {
                    seen.push(Seen {
                        tid: candidate.tid,
                        name: candidate.name,
                        doing: format!("{}, but {why}", candidate.doing),
                    });
                }
            }
        }
        // One thread at a time, each in turn; between two of them one may have parked.
        let moving = std::mem::take(&mut judge.moving);
        if began.elapsed() >= options.parked_only && !budget.is_spent() && !moving.is_empty() {
            let tid = moving[turn % moving.len()];
            turn = turn.wrapping_add(1);
            let tried = on_own_thread(|| {
                leave_processor_to(tid);
                let _urgent = Urgent::begin();
                let began = Instant::now();
                let found = match safe_point::seek(tid, judge, options, suspend, &mut budget)? {
                    Ok(found) => found,
                    Err(reasons) => return Ok(Err(reasons)),
                };
                let time = SeizeTime {
                    began,
                    took: found.stood,
                    looks: budget.spent,
                };
                use_it(
                    look,
                    options,
                    &found.candidate,
                    &seen,
                    found.proven,
                    &time,
                    &mut then,
                )
                .map(Ok)
            })
            .during("making a thread to trace with")?;
            match tried {
                Ok(Ok(done)) => return Ok(done),
                Ok(Err(reasons)) => {
                    looked_at.insert(tid, reasons);
                }
                Err(Miss::Failed(error)) => return Err(error),
                // It ended, or does not stop: others have their turn.
                Err(Miss::NotParked(_)) => {}
            }
            none_yet = false;
        }
        rounds = rounds.saturating_add(1);
        if deadline.passed() && (rounds >= ROUNDS || last.passed()) {
            for thread in &mut seen {
                if let Some(reasons) = looked_at.remove(&thread.tid) {
                    *thread = reasons;
                }
            }
            return Err(EnterError::NoneParked { threads: seen });
        }
        look.still.check("looking for a thread")?;
        // Nothing tells when a thread goes to sleep; a running process does so at any time.
        std::thread::sleep(if none_yet {
            Duration::from_millis(2)
        } else {
            Duration::from_micros(200)
        });
    }
}

/// Holds a thread that stands, and hands it to `then`.
fn use_it<T>(
    look: &Look,
    options: &Options,
    candidate: &Candidate,
    seen: &[Seen],
    proven: hold::Proven,
    time: &SeizeTime,
    then: &mut impl FnMut(&Candidate, &[Seen], Hold, &SeizeTime) -> Result<T, EnterError>,
) -> Result<T, Miss> {
    options.reached(FaultPoint::Proven);
    let hold = Hold::begin(
        proven,
        look.memory(),
        &look.modules,
        &look.code,
        options.held,
    )?;
    Ok(then(candidate, seen, hold, time)?)
}

/// How often a wait for our thread looks whether there still is a process that runs.
pub(crate) const DOUBT: Duration = Duration::from_millis(20);

/// Waits until our thread has opened its socket, and takes the far end.
pub(crate) fn meet(
    look: &Look,
    block: Block,
    options: &Options,
) -> Result<(OwnedFd, Tid), EnterError> {
    const PHASE: &str = "meeting our thread";
    let deadline = Deadline::after(options.boot);
    let mut pace = Pace::new();
    let mut doubt = Deadline::after(DOUBT);
    loop {
        match block.mailbox().during(PHASE)? {
            mailbox::OPEN => break,
            mailbox::FAILED | mailbox::ENDED => {
                return Err(block
                    .failure()
                    .unwrap_or(EnterError::Silent { at: "its socket" }));
            }
            other if deadline.passed() => {
                return Err(EnterError::Silent {
                    at: mailbox_words(other),
                });
            }
            _ if doubt.passed() => {
                look.still.check(PHASE)?;
                doubt = Deadline::after(DOUBT);
            }
            _ => pace.rest(),
        }
    }
    options.reached(FaultPoint::Opened);
    fault::step("our thread has opened its socket");
    let agent = find_agent(look, block).ok_or(EnterError::Gone { during: PHASE })?;
    let pidfd = pidfd_open_thread(agent, look.pid).during(PHASE)?;
    let far = block.signed(offset_of!(BootBlock, fd_far)).during(PHASE)?;
    let channel = pidfd_getfd(pidfd.as_fd(), agent, far).during(PHASE)?;
    options.reached(FaultPoint::Taken);
    Ok((channel, agent))
}

/// The thread that the block names, by the id that this process knows it by: the block has the target's own.
pub(crate) fn find_agent(look: &Look, block: Block) -> Option<Tid> {
    let inside = block.own_tid()?;
    let is_it = |&tid: &Tid| task::status(tid).is_ok_and(|status| status.own_tid() == Some(inside));
    // In one pid namespace both are the same: no search.
    if look.access.same_pid_namespace {
        return Some(inside).filter(is_it);
    }
    task::list(look.tid).ok()?.into_iter().find(is_it)
}
