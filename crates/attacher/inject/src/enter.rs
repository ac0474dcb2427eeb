//! Enters a process by tracing it: from a parked thread to a worker thread that has its library.

use std::mem::offset_of;
use std::time::Instant;

use midair_procinfo::Tid;
use midair_procinfo::stack::{StackPosition, Walker};
use midair_ptrace::{Deadline, Registers, RemoteAddr};
use midair_record::boot::BootBlock;

use crate::arch::{self, number};
use crate::borrow::{Borrowed, borrow, unmap};
use crate::entered::{Entered, Times, Via};
use crate::error::{During, EnterError, Refusal};
use crate::handshake::{find_worker, meet};
use crate::hold::{Hold, Stub, StubEnd};
use crate::inherited;
use crate::inspection::Inspection;
use crate::mappings::{Draft, Mappings, WHOLE_LEN, library_fd, protection};
use crate::names::{self, Hazard};
use crate::options::{FaultPoint, Library, Options};
use crate::orphans;
use crate::payload::{Copying, read};
use crate::removal;
use crate::wake;
use crate::worker::Block;

/// Enters the process. It wakes the worker thread if one is parked there, and otherwise makes one
/// through a borrowed thread. Then it has the worker thread load `library`. When this returns, no
/// thread of the target is stopped or traced.
///
/// Tracing is done on threads of this process that end before this returns.
///
/// # Errors
/// [`EnterError`]. Unless its variant says otherwise, the target is as it was, except for what the
/// C library keeps of a thread that came and went.
pub fn enter(
    look: &Inspection,
    library: &Library,
    options: &Options,
) -> Result<Entered, EnterError> {
    let mut begun = false;
    enter_as_it_was(look, library, options, &mut begun).map_err(|error| {
        match look.image.explain(error) {
            EnterError::Replaced { during, .. } => EnterError::Replaced { during, begun },
            other => other,
        }
    })
}

/// Enters as [`enter`] does. Sets `begun` once anything was changed in the process.
fn enter_as_it_was(
    look: &Inspection,
    library: &Library,
    options: &Options,
    begun: &mut bool,
) -> Result<Entered, EnterError> {
    let library = read(library)?;
    if let Some(worker) = &look.worker {
        *begun = true;
        return wake::wake(look, worker, options);
    }
    let fd = library_fd(look);
    let entry = inherited::entry(look, library.as_ref())?;
    let draft = Draft::new(look, options, fd, entry);
    // A library that is there already is not sent again.
    let library = Copying::begin(library.filter(|_| entry.is_none()), fd);
    let (mappings, via, times) = make_thread(look, draft, options, begun)?;
    let block = Block {
        memory: look.memory(),
        at: mappings.data,
    };
    match meet(look, &block, options).and_then(|(channel, worker)| {
        library.send(&channel)?;
        FaultPoint::Sent.reached();
        Ok((channel, worker))
    }) {
        Ok((channel, worker_tid)) => Ok(Entered {
            channel,
            pid: look.pid,
            worker_tid,
            via,
            times,
            mappings: Some(mappings),
            image: look.image.clone(),
            block: Some(block),
        }),
        Err(error) => {
            // The worker thread gives up by itself when it has waited long enough, and its memory
            // is then unmapped. A worker thread that cannot be found but has stored its id has
            // ended already.
            let worker = find_worker(look, &block).or(block.own_tid());
            if let Some(worker_tid) = worker {
                let _undone =
                    removal::unmap_after(&look.image, worker_tid, block, mappings, None, options);
            }
            Err(error)
        }
    }
}

/// Borrows one parked thread and has it make the worker thread.
fn make_thread(
    look: &Inspection,
    draft: Draft,
    options: &Options,
    begun: &mut bool,
) -> Result<(Mappings, Via, Times), EnterError> {
    let mut draft = Some(draft);
    let began = Instant::now();
    let (orphans, hint) = (orphans::find(look), orphans::hint());
    let made = borrow(
        look,
        options,
        |Borrowed {
             look,
             candidate,
             rejected,
             mut hold,
             seized,
         }| {
            let Some(draft) = draft.take() else {
                return Err(EnterError::Silent { at: "a second try" });
            };
            FaultPoint::Framed.reached();
            if let Some(refusal) = hold.objection(look, candidate.tid)? {
                hold.release()?;
                return Err(refusal.into());
            }
            let stub_began = Instant::now();
            for orphan in &orphans {
                match unmap(&mut hold, orphan) {
                    // A mapping that could not be removed does no harm.
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
            // The list of mappings was read before this one was made, so the memory gets it.
            look.memory()
                .mapped(RemoteAddr::new(base), WHOLE_LEN as usize);
            let mappings = Mappings::at(RemoteAddr::new(base));
            let data = mappings.data;
            FaultPoint::Mapped.reached();
            // In another pid namespace, the thread has another id than the one that we know.
            let borrowed = match look.access.same_pid_namespace {
                true => Some(candidate.tid),
                false => None,
            };
            if let Err(error) = fill(look, draft, &mappings, &hold, borrowed) {
                let _undone = unmap(&mut hold, &mappings);
                return Err(error);
            }
            FaultPoint::Written.reached();
            let stub = Stub {
                code: mappings.code,
                code_len: mappings.code_len,
                stack: mappings.stub_stack(),
                block: data,
                result: data.plus(offset_of!(BootBlock, stub_result) as u64),
            };
            let end = hold.run_stub(stub, Deadline::after(options.stub), || {
                FaultPoint::Started.reached()
            })?;
            FaultPoint::Made.reached();
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
                FaultPoint::Released.reached();
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
                StubEnd::Dispatched => {
                    unmap(&mut hold, &mappings)?;
                    hold.release()?;
                    let pid = look.pid;
                    Err(EnterError::Refused(Refusal::Dispatches { pid }))
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
    );
    *begun = draft.is_none();
    made
}

fn fill(
    look: &Inspection,
    draft: Draft,
    mappings: &Mappings,
    hold: &Hold,
    borrowed: Option<Tid>,
) -> Result<(), EnterError> {
    const PHASE: &str = "writing the boot block";
    // This writes through /proc/TID/mem, since neither mapping is writable yet.
    look.memory()
        .write_through(
            mappings.code,
            &draft.finish(mappings, hold.context(), borrowed, hold.is_unfiltered()),
        )
        .during(PHASE)
}

/// Returns true when the stub waits for a lock in the allocator, which pthread_create has called.
/// The stub has taken no lock yet, so the thread can be taken back. It may never get that lock, if
/// the borrowed thread itself holds it.
fn waits_for_allocator(look: &Inspection, regs: &Registers) -> bool {
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
    let walk = Walker::new(&look.modules, look.memory()).walk(StackPosition {
        pc: regs.pc(),
        sp: regs.sp(),
        frame: Some(regs.frame()),
    });
    let grounds: Vec<Hazard> = walk
        .frames
        .iter()
        .flat_map(|frame| &frame.names)
        .filter_map(|name| names::function_hazard(name))
        .collect();
    grounds.first() == Some(&Hazard::Allocator) && grounds.contains(&Hazard::ThreadCreation)
}
