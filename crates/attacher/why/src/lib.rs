//! What a process waits for that hangs or crawls, read from outside.
//!
//! Nothing is loaded into the process and nothing is written to it. Its queues are found in its
//! memory ([`queues`]), and their packets are read. Kernels get their names from the code objects
//! that the runtime lists for debuggers ([`objects`]). Threads are unwound with the tables of their
//! own files ([`threads`]), with Python's frames next to them ([`python`]). A sleeping thread is not
//! stopped for that. A thread that runs, or whose stack cannot be unwound otherwise, is stopped
//! while its stack is read. It goes on in any case, because the end of its tracer frees it.
//!
//! The process may be anybody's, so nothing in its memory is trusted. Every list that is followed
//! has a bound, every number is checked before it is used as an address or a length, and all of it
//! has a deadline. The caller has to provide the rights, and a thread that may be left behind.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod answer;
mod aql;
#[cfg(any(test, feature = "image"))]
pub mod image;
mod json;
mod memory;
mod objects;
mod python;
mod queues;
mod reasons;
mod scan;
mod text;
mod threads;
mod torch;
mod tree;

pub use answer::{
    Answer, Completer, Dispatch, Front, Lock, Queue, Reason, ReasonKind, Runtime, Thread, Wait,
};
pub use json::{SCHEMA, SCHEMA_TREE};
pub use python::Frame as PythonFrame;
pub use text::lines;
pub use threads::Frame;
pub use torch::TorchModules;
pub use tree::Ranks;

use midair_procinfo::module::Modules;
use midair_procinfo::{Pid, Tid, files};
use std::time::{Duration, Instant};

/// How to look.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The time between the first look at the queues and the second one.
    pub time: Duration,
}

/// Looks at a process. `live` is a thread of it that has not ended, and `modules` is what it has
/// mapped. This takes as long as the options say and, where there is much memory, some seconds
/// more.
pub fn look(pid: Pid, live: Tid, name: &str, modules: &Modules, options: Options) -> Answer {
    let memory = modules.memory();
    let began = Instant::now();
    let mut notes = Vec::new();
    let has_hsa = modules
        .list
        .iter()
        .any(|module| module.file_name().starts_with(b"libhsa-runtime64.so"));
    let places = match has_hsa {
        true => scan::queues(live, &modules.mappings, memory, &mut notes),
        false => Vec::new(),
    };
    let began_looking = Instant::now();
    let first = queues::read(memory, &places, &mut notes);
    let names = objects::Objects::of(live, modules);
    // The slow parts are done between the two looks at the queues.
    let mut threads = threads::look(pid, live, modules, &mut notes);
    python::add(modules, &mut threads, &mut notes);
    let rest = options.time.saturating_sub(began_looking.elapsed());
    std::thread::sleep(rest);
    let second = queues::read(memory, &places, &mut notes);
    let looked = began_looking.elapsed();
    threads::settle(pid, &mut threads, looked);
    let queues = queues::compare(&first, &second, looked, &names, modules);
    notes.extend(names.notes());
    if has_hsa && queues.is_empty() {
        notes.push(
            "no queue found, although the HSA runtime is loaded: it has none now, or midair does not know this runtime's layout"
                .to_owned(),
        );
    }
    let has_cuda = modules
        .list
        .iter()
        .any(|module| module.file_name().starts_with(b"libcuda.so"));
    if has_cuda {
        notes.push(
            "only host threads are shown: the state of an NVIDIA GPU cannot be read from outside the process"
                .to_owned(),
        );
    }
    let mut answer = Answer {
        pid: pid.get(),
        name: name.to_owned(),
        rank: rank(live),
        looked,
        took: began.elapsed(),
        reasons: Vec::new(),
        queues,
        threads,
        notes,
    };
    answer.reasons = reasons::of(&answer);
    answer
}

/// Returns the threads with their Python frames alone. That stops none of them: the interpreter's
/// lists are read while it runs, so a stack may be one of a moment before or after.
pub fn python_stacks(live: Tid, modules: &Modules) -> Vec<Thread> {
    let mut threads = threads::list(live);
    // The notes name interpreters that are not read. Their threads have no frames here.
    python::add(modules, &mut threads, &mut Vec::new());
    threads
}

/// Variables in which launchers tell a process its rank: the variables of PyTorch's launcher, then
/// of MPI and of batch systems. The first one that is set counts.
const RANKS: [&str; 7] = [
    "RANK",
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "MV2_COMM_WORLD_RANK",
    "SLURM_PROCID",
    "FLUX_TASK_RANK",
];

fn rank(live: Tid) -> Option<u32> {
    let environment = files::words(live, "environ");
    let told = |name: &&str| {
        let prefix = format!("{name}=");
        let word = environment
            .iter()
            .find_map(|entry| entry.strip_prefix(&prefix))?;
        word.trim().parse().ok()
    };
    RANKS.iter().find_map(told)
}

/// Returns a thread's processor time so far in seconds, and how often it was given a processor.
/// None when the thread has ended (source: proc_pid_schedstat(5)). The thread's `stat` is of no use
/// here: its times cover the whole process.
fn schedule(pid: u32, tid: u32) -> Option<(f64, u64)> {
    let text = files::kernel_words(format!("{pid}/task/{tid}/schedstat")).ok()?;
    let mut words = text.split_ascii_whitespace();
    let time = words.next()?.parse::<u64>().ok()? as f64 / 1e9;
    Some((time, words.nth(1)?.parse().ok()?))
}
