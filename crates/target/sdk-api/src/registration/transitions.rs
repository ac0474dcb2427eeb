//! Attaches, detaches and ends tools.

use super::client::{Client, Hooks, Phase};
use super::{contexts_of, out, running, with_client};
use crate::buffer;
use crate::code_object;
use crate::context;
use crate::state::{self, STATE};
use crate::status::Status;
use midair_tool_call::call;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// A client that is being attached or detached: the data that is used while no lock is held.
struct Transition {
    handle: u32,
    hooks: Hooks,
    was_attached: bool,
    contexts: Vec<u64>,
    resume: Vec<u64>,
}

/// Moves every client that is in phase `from` and passes `fits` to the phase `to`, and returns
/// them. From then on only the caller works on them.
fn begin_transitions(from: Phase, to: Phase, fits: impl Fn(&Client) -> bool) -> Vec<Transition> {
    let mut transitions: Vec<Transition> = {
        let mut state = state::lock();
        let clients = state
            .clients
            .iter_mut()
            .filter(|client| client.phase == from && fits(client));
        clients
            .map(|client| {
                client.phase = to;
                Transition {
                    handle: client.handle,
                    hooks: client.hooks,
                    was_attached: client.was_attached,
                    contexts: Vec::new(),
                    resume: std::mem::take(&mut client.resume),
                }
            })
            .collect()
    };
    for transition in &mut transitions {
        transition.contexts = contexts_of(transition.handle);
    }
    transitions
}

/// Attaches every named tool by calling its `tool_attach`, which starts contexts. For a tool
/// without that function, this starts the contexts that were running when it was last detached, or,
/// the first time, those that it started when it was initialised.
///
/// # Errors
/// [`Status::NOT_AVAILABLE`] when there is no tool, [`Status::ERROR`] when a tool refuses. The
/// contexts of that tool are stopped again, and its `tool_detach` is called; the others are
/// attached.
pub fn attach() -> Result<(), Status> {
    state::lock().named_used = true;
    let transitions = begin_transitions(Phase::Initialized, Phase::Attached, |client| client.named);
    let mut outcome = if transitions.is_empty() {
        Err(Status::NOT_AVAILABLE)
    } else {
        Ok(())
    };
    for mut transition in transitions {
        with_client(transition.handle, |client| client.was_attached = true);
        for context in &transition.resume {
            let _ = context::start(*context);
        }
        let answer = match transition.hooks {
            Hooks::None => Ok(0),
            Hooks::Experimental { reattach, data, .. } => {
                let reattach = reattach.filter(|_| transition.was_attached);
                reattach.map_or(Ok(0), |reattach| {
                    // SAFETY: this calls the tool's function with its own data.
                    call(&[], || unsafe { reattach(data) }).map(|()| 0)
                })
            }
            Hooks::Attach { attach, data, .. } => attach.map_or(Ok(0), |attach| {
                let list = transition.contexts.as_mut_slice();
                let lent = [(list.as_ptr().cast(), size_of_val(list))];
                let (list, count) = (list.as_mut_ptr(), list.len() as u64);
                // SAFETY: this calls the tool's function with its own data and a list that lives
                // during the call. There is no detach function, as with AMD's library.
                call(&lent, || unsafe { attach(None, list, count, data) })
            }),
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(thrown) => {
                out::expel(transition.handle, "tool_attach", &thrown);
                out::keep(format!("in its tool_attach {thrown}"));
                outcome = Err(Status::ERROR);
                continue;
            }
        };
        if answer != 0 {
            with_client(transition.handle, |client| {
                client.phase = Phase::Detaching;
                client.was_attached = transition.was_attached;
                client.resume.clone_from(&transition.resume);
            });
            detach_one(&transition);
            out::keep(format!("its tool_attach returned {answer}"));
            outcome = Err(Status::ERROR);
        }
    }
    outcome
}

/// Detaches every attached tool.
///
/// # Errors
/// [`Status::NOT_AVAILABLE`] when none was attached.
pub fn detach() -> Result<(), Status> {
    let transitions = begin_transitions(Phase::Attached, Phase::Detaching, |_| true);
    if transitions.is_empty() {
        return Err(Status::NOT_AVAILABLE);
    }
    for transition in transitions
        .iter()
        .filter(|transition| !transition.hooks.starts())
    {
        let ran = running(&transition.contexts);
        with_client(transition.handle, |client| client.resume = ran);
    }
    // All contexts are stopped at the same time, so that the collecting side stops and drains once.
    let all: Vec<u64> = transitions
        .iter()
        .flat_map(|transition| transition.contexts.iter().copied())
        .collect();
    context::stop_all(&all);
    transitions.iter().for_each(detach_one);
    Ok(())
}

fn detach_one(transition: &Transition) {
    context::stop_all(&transition.contexts);
    buffer::flush_contexts(&transition.contexts);
    let notice = match transition.hooks {
        Hooks::None => None,
        Hooks::Attach { detach, data, .. } | Hooks::Experimental { detach, data, .. } => {
            detach.map(|detach| (detach, data))
        }
    };
    if let Some((tool_detach, data)) = notice {
        // SAFETY: this calls the tool's function with its own data.
        if let Err(thrown) = call(&[], || unsafe { tool_detach(data) }) {
            out::expel(transition.handle, "tool_detach", &thrown);
        }
    }
    // A tool may have ended itself in the meantime.
    with_client(transition.handle, |client| {
        if client.phase == Phase::Detaching {
            client.phase = Phase::Initialized;
        }
    });
}

/// Ends everything, once: detaches, stops and flushes what is still running, then calls every
/// tool's `finalize`. Called at the end of the process.
pub fn finalize() {
    let _ = detach();
    wait_for_detaches();
    if std::mem::replace(&mut state::lock().finalized, true) {
        return;
    }
    let handles: Vec<u32> = {
        let state = state::lock();
        let living = state
            .clients
            .iter()
            .filter(|client| client.phase != Phase::Ended);
        living.map(|client| client.handle).collect()
    };
    let all: Vec<u64> = handles
        .iter()
        .flat_map(|handle| contexts_of(*handle))
        .collect();
    // As in AMD's library, everything that is loaded is reported as unloaded before the tools end.
    code_object::unload_all();
    context::stop_all(&all);
    buffer::flush_contexts(&all);
    for handle in handles {
        let mut end = None;
        with_client(handle, |client| {
            if client.phase != Phase::Ended {
                // A tool whose `initialize` has not returned has nothing to finalize.
                let begun = client.phase != Phase::Configured;
                client.phase = Phase::Ended;
                end = client
                    .result
                    .finalize
                    .filter(|_| begun)
                    .map(|finalize| (finalize, client.result.tool_data));
            }
        });
        if let Some((finalize, data)) = end {
            // The process ends, so an exception is not reported.
            // SAFETY: this calls the tool's function with its own data.
            let _ = call(&[], || unsafe { finalize(data) });
        }
    }
    state::lock().ended = true;
}

/// Waits, for at most two seconds, until no tool is being detached: the worker thread may be in the
/// middle of a detach and still have tools to call.
fn wait_for_detaches() {
    let end = Instant::now() + Duration::from_secs(2);
    let detaching = || {
        state::lock()
            .clients
            .iter()
            .any(|client| client.phase == Phase::Detaching)
    };
    while detaching() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Makes [`finalize`] run when this process exits; once. Anything that stops the collection at the
/// exit must be registered later, since the exit calls the last registered function first.
pub fn end_at_exit() {
    extern "C" fn at_exit() {
        // SAFETY: getpid takes no arguments and cannot fail.
        if unsafe { libc::getpid() } == STATE.exit_process.load(SeqCst) {
            midair_capi_build::edge((), finalize);
        }
    }
    // SAFETY: as above; `at_exit` is a function of a library that is never unloaded.
    unsafe {
        let me = libc::getpid();
        if STATE.exit_process.swap(me, SeqCst) != me {
            libc::atexit(at_exit);
        }
    }
}
