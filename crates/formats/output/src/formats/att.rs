//! Thread traces, in the files that AMD's decoder takes: `AGENT_shader_engine_SE_DISPATCH.att` has what an
//! engine wrote, and `GFX_code_object_id_N.out` is a code object. They are written with any format.

use crate::files::{FileSet, OutputFile, WriteError};
use crate::job::Job;
use crate::model::Trace;
use midair_domain::KindSet;
use midair_record::event::{Record, TraceData, kind};
use std::collections::{BTreeMap, BTreeSet};

const TRACES: KindSet = KindSet::of(&[kind::THREAD_TRACE]);

/// Writes the traces of sessions, and the code objects of the GPUs that have traces.
pub(crate) fn write(jobs: &[Job<'_>], files: &mut FileSet) -> Result<(), WriteError> {
    for job in jobs.iter().filter(|job| job.index.has(TRACES)) {
        let nodes = traces(job.trace, files)?;
        code_objects(job.trace, &nodes, files)?;
    }
    Ok(())
}

/// Writes the traces. Returns the nodes of their GPUs.
fn traces(trace: &Trace, files: &mut FileSet) -> Result<BTreeSet<u32>, WriteError> {
    let mut open: BTreeMap<(u64, u32), OutputFile> = BTreeMap::new();
    let mut nodes = BTreeSet::new();
    trace.records.walk_all(
        |kind| TRACES.contains(kind),
        |record| {
            let Record::TraceData(part, bytes) = record else {
                return Ok(());
            };
            nodes.insert(part.node);
            let key = (part.trace, part.engine);
            if part.first == 0 {
                open.insert(key, files.create(&name(part))?);
            }
            let Some(file) = open.get_mut(&key) else {
                return Ok(());
            };
            file.put(bytes)?;
            match part.first + u64::from(part.bytes) >= part.total {
                true => open.remove(&key).map_or(Ok(()), |file| files.add(file)),
                false => Ok(()),
            }
        },
    )?;
    // A trace whose end found no room is still one.
    open.into_values().try_for_each(|file| files.add(file))?;
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
