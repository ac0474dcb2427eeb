//! What describes the session: machine, process, settings, and what is missing.

use super::emit::Emit;
use super::{counters, memory};
use crate::job::Job;
use crate::options::{Console, Format, SummaryTo};
use std::io;

pub(super) fn write<W: io::Write>(out: &mut Emit<W>, job: &Job<'_>) -> io::Result<()> {
    let process = &job.trace.process;
    let node = &process.node;
    out.key("metadata")?;
    out.open_object()?;
    out.key("node")?;
    out.open_object()?;
    out.number("id", node.id())?;
    out.number("hash", node.hash())?;
    out.text("machine_id", &node.machine_id)?;
    out.text("system_name", &node.system_name)?;
    out.text("hostname", &node.hostname)?;
    out.text("release", &node.release)?;
    out.text("version", &node.version)?;
    out.text("hardware_name", &node.hardware_name)?;
    out.text("domain_name", &node.domain_name)?;
    out.close_object()?;
    out.number("pid", process.pid)?;
    out.number("init_time", process.init_time)?;
    out.number("fini_time", process.fini_time)?;
    out.texts("command", &process.command)?;
    config(out, job)?;
    midair(out, job)?;
    out.close_object()
}

/// Writes the settings. AMD's tool writes all of its own here; those without a meaning in ours have
/// AMD's defaults.
pub(super) fn config<W: io::Write>(out: &mut Emit<W>, job: &Job<'_>) -> io::Result<()> {
    let plan = job.plan;
    let directory = plan.directory.to_string_lossy();
    let asks_for = |format: Format| plan.formats.contains(&format);
    out.key("config")?;
    out.open_object()?;
    out.text("output_path", &directory)?;
    out.text("output_file", &plan.prefix)?;
    out.text("tmp_directory", &directory)?;
    out.text("raw_output_path", &plan.raw_directory)?;
    out.text("raw_output_file", &plan.raw_prefix)?;
    out.text("raw_tmp_directory", &plan.raw_directory)?;
    let buffers = &plan.perfetto;
    out.number("perfetto_shmem_size_hint", buffers.shmem_size_hint)?;
    out.number("perfetto_buffer_size", buffers.buffer_size)?;
    out.text("perfetto_buffer_fill_policy", &buffers.fill_policy)?;
    out.text("perfetto_backend", "inprocess")?;
    out.boolean("summary", plan.summary)?;
    out.boolean("summary_per_domain", plan.summary_per_domain)?;
    out.texts("summary_groups", &plan.summary_groups)?;
    out.text("summary_unit", plan.summary_unit.text())?;
    let summary_file = match &plan.summary_to {
        SummaryTo::Console(Console::Stdout) => "stdout",
        SummaryTo::Console(Console::Stderr) => "stderr",
        SummaryTo::File(name) => name,
    };
    out.text("summary_file", summary_file)?;
    out.boolean("csv_output", asks_for(Format::Csv))?;
    out.boolean("json_output", asks_for(Format::Json))?;
    out.boolean("pftrace_output", asks_for(Format::Pftrace))?;
    out.boolean("otf2_output", asks_for(Format::Otf2))?;
    out.boolean("summary_output", plan.has_summary())?;
    out.boolean("rocpd_output", asks_for(Format::Rocpd))?;
    out.boolean("kernel_rename", plan.rename_kernels)?;
    out.boolean("group_by_queue", plan.group_by_queue)?;
    out.close_object()
}

/// Writes what a reader has to know to trust the rest: what is missing, and why.
pub(super) fn midair<W: io::Write>(out: &mut Emit<W>, job: &Job<'_>) -> io::Result<()> {
    let index = job.index;
    out.key("midair")?;
    out.open_object()?;
    out.text("outcome", &job.trace.outcome.text)?;
    out.key("lost")?;
    out.open_object()?;
    for (what, count) in &job.trace.lost {
        out.any_key(what)?;
        out.value(*count)?;
    }
    out.close_object()?;
    out.key("untimed")?;
    out.open_object()?;
    for (reason, count) in &index.untimed {
        out.number(reason, *count)?;
    }
    out.close_object()?;
    out.number("open_at_detach", index.open_at_detach)?;
    out.number("without_traced_caller", index.orphans)?;
    out.number("malformed_bytes", job.trace.records.malformed_bytes())?;
    if let Some(stacks) = index.stacks.summary() {
        out.key("stacks")?;
        out.open_object()?;
        for (name, number) in stacks.numbers() {
            out.number(name, number)?;
        }
        out.close_object()?;
    }
    out.texts("notes", &job.notes())?;
    counters::windows(out, job)?;
    memory::runtimes(out, job)?;
    out.close_object()
}
