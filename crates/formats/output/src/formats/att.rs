//! Thread traces, in the files that AMD's decoder takes: `AGENT_shader_engine_SE_DISPATCH.att` has what an
//! engine wrote, and `GFX_code_object_id_N.out` is a code object. They are written with any format.

use crate::files::{FileSet, OutputFile, WriteError};
use crate::job::Job;
use crate::model::Trace;
use midair_domain::KindSet;
use midair_record::event::{Record, TraceData, kind};
use midair_trace::thread_traces::file_of;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::collections::{BTreeMap, BTreeSet};

const TRACES: KindSet = KindSet::of(&[kind::THREAD_TRACE]);

/// Descriptors that this process may need for other things.
const SPARE: u64 = 128;

/// Writes the traces of sessions, and the code objects of the GPUs that have traces.
pub(crate) fn write(jobs: &[Job<'_>], files: &mut FileSet) -> Result<(), WriteError> {
    let jobs = || jobs.iter().filter(|job| job.index.has(TRACES));
    let each = |job: &Job<'_>| job.index.thread_traces.files() + job.trace.attach.code.len();
    allow_descriptors(jobs().map(each).sum::<usize>() as u64);
    for job in jobs() {
        let nodes = traces(job.trace, files)?;
        code_objects(job.trace, &nodes, files)?;
    }
    Ok(())
}

/// Raises this process's own limit where so many files need it: each keeps its descriptor until all have
/// their names. Where that is not allowed, writing fails by name.
fn allow_descriptors(files: u64) {
    let needed = files.saturating_add(SPARE);
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && files > 0
        && soft < hard.min(needed)
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard.min(needed), hard);
    }
}

/// Writes the traces. Returns the nodes of their GPUs.
fn traces(trace: &Trace, files: &mut FileSet) -> Result<BTreeSet<u32>, WriteError> {
    let index = trace.records.index();
    // The files that are not whole yet, with how many bytes they have.
    let mut open: BTreeMap<(u32, u32, u64), (OutputFile, u64)> = BTreeMap::new();
    let (mut nodes, mut done) = (BTreeSet::new(), BTreeSet::new());
    trace.records.walk_all(
        |kind| TRACES.contains(kind),
        |record| {
            let Record::TraceData(part, bytes) = record else {
                return Ok(());
            };
            nodes.insert(part.node);
            let key = file_of(part);
            let whole = index.thread_traces.bytes(key);
            if part.first == 0 && whole > 0 && done.insert(key) {
                open.insert(key, (files.create(&name(part))?, 0));
            }
            let Some((file, written)) = open.get_mut(&key) else {
                return Ok(());
            };
            // Data behind a gap would be read as if it came before it.
            if *written != part.first {
                return Ok(());
            }
            file.put(bytes)?;
            *written += u64::from(part.bytes);
            match *written >= whole {
                true => open
                    .remove(&key)
                    .map_or(Ok(()), |(file, _)| files.add(file)),
                false => Ok(()),
            }
        },
    )?;
    open.into_values()
        .try_for_each(|(file, _)| files.add(file))?;
    Ok(nodes)
}

fn name(part: &TraceData) -> String {
    let TraceData {
        node,
        engine,
        dispatch_id,
        ..
    } = part;
    format!("{node}_shader_engine_{engine}_{dispatch_id}.att")
}

fn code_objects(
    trace: &Trace,
    nodes: &BTreeSet<u32>,
    files: &mut FileSet,
) -> Result<(), WriteError> {
    for (number, image) in &trace.attach.code {
        let Some(object) = trace.records.index().code_objects.get(number) else {
            continue;
        };
        let node = object.record.node;
        let mut agents = trace.agents.iter();
        let agent = agents.find(|agent| agent.node_id == node);
        let Some(agent) = agent.filter(|_| nodes.contains(&node)) else {
            continue;
        };
        let mut file = files.create(&format!("{}_code_object_id_{number}.out", agent.name))?;
        file.put(image)?;
        files.add(file)?;
    }
    Ok(())
}
