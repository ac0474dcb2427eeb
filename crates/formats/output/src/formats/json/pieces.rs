//! Parts of the document by themselves, which rocpd has in its columns of JSON.

use super::emit::Emit;
use super::{agents, metadata, symbols};
use crate::job::Job;
use midair_agents::Agent;
use midair_trace::index::{Object, Symbol};
use serde_json::{Value, json};
use std::io;

/// Returns what a piece of the document writes, as text.
fn text(piece: impl FnOnce(&mut Emit<&mut Vec<u8>>) -> io::Result<()>) -> io::Result<String> {
    let mut bytes = Vec::new();
    let mut out = Emit::new(&mut bytes);
    piece(&mut out)?;
    out.flush()?;
    drop(out);
    String::from_utf8(bytes).map_err(io::Error::other)
}

/// Returns the value of the one key that a piece writes.
fn value(piece: impl FnOnce(&mut Emit<&mut Vec<u8>>) -> io::Result<()>) -> io::Result<Value> {
    let text = text(|out| {
        out.open_object()?;
        piece(out)?;
        out.close_object()
    })?;
    let mut all: serde_json::Map<String, Value> = serde_json::from_str(&text)?;
    let first = all.keys().next().cloned().unwrap_or_default();
    Ok(all.remove(&first).unwrap_or_default())
}

/// Returns an agent with everything that is known of it.
pub(crate) fn agent(agent: &Agent) -> io::Result<String> {
    text(|out| agents::one(out, agent))
}

/// Returns a code object.
pub(crate) fn code_object(job: &Job<'_>, id: u64, object: &Object) -> io::Result<String> {
    text(|out| symbols::code_object(out, job, id, Some(object)))
}

/// Returns a kernel symbol.
pub(crate) fn kernel_symbol(job: &Job<'_>, id: u64, symbol: &Symbol) -> io::Result<String> {
    text(|out| symbols::kernel_symbol(out, job, id, Some(symbol)))
}

/// Returns the settings.
pub(crate) fn config(job: &Job<'_>) -> io::Result<String> {
    Ok(value(|out| metadata::config(out, job))?.to_string())
}

/// Returns the file with the settings, and with what ran if that is asked for. AMD's tool also puts the
/// environment into it, which is in none of our files.
pub(crate) fn config_file(job: &Job<'_>) -> io::Result<String> {
    let process = &job.trace.process;
    let mut metadata = json!({
        "pid": process.pid,
        "init_time": process.init_time,
        "fini_time": process.fini_time,
        "config": value(|out| metadata::config(out, job))?,
        "command": process.command,
        "environment": {},
    });
    if job.plan.profile {
        metadata["profile"] = crate::profile::of(job);
    }
    Ok(json!({ "rocprofiler-sdk-tool": [{ "metadata": metadata }] }).to_string())
}

/// Returns the contents of `metadata.midair`: keys, and values as text or JSON.
pub(crate) fn midair(job: &Job<'_>) -> io::Result<Vec<(String, String)>> {
    let Value::Object(all) = value(|out| metadata::midair(out, job))? else {
        return Ok(Vec::new());
    };
    let plain = |value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    Ok(all
        .into_iter()
        .map(|(key, value)| (key, plain(value)))
        .collect())
}
