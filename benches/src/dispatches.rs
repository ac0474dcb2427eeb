//! The cost of a kernel launch (`hipModuleLaunchKernel`), in a process that was never attached to
//! and in another one whose kernels are traced, and with HIP's rings in device memory.
//!
//! This machine has no such memory. The model counts how often a launch reads its ring, and each
//! read is taken to cost as much as one over the bus.

use crate::report::Table;
use crate::session::{attach, attach_with_tool, settings};
use midair_tests::Result;
use midair_tests::caller::Caller;
use midair_tests::lab::{Lab, LabCommand};
use midair_tests::modellog::{Event, ModelLog};
use midair_tests::stage::stage;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// How many turns there are.
const ROUNDS: usize = 15;
/// Launches in a turn, which are fewer than a ring holds.
const LAUNCHES: u32 = 4_000;
/// How many launches have their reads counted.
const COUNTED: u32 = 200;
/// The time of a read over PCI Express, in ns.
const READ: f64 = 1_000.0;

/// Returns the CPU time of a launch in ns, in which other work on the machine does not count.
fn ns_per_launch(caller: &mut Caller) -> Result<f64> {
    caller.send(&format!("launches {LAUNCHES}"))?;
    let line = caller.expect("took ")?;
    caller.expect("launches")?;
    let ns: f64 = line.rsplit(' ').next().unwrap_or_default().parse()?;
    Ok(ns / f64::from(LAUNCHES))
}

fn start(lab: &Lab, log: &str) -> Result<Caller> {
    Caller::start(command(lab)?.log_name(log))
}

fn command(lab: &Lab) -> Result<LabCommand<'_>> {
    Ok(Caller::command(lab)?.env("MODEL_KERNEL_NS", 500))
}

/// Runs `act` while kernels are traced.
fn traced<T>(caller: &mut Caller, act: impl FnOnce(&mut Caller) -> Result<T>) -> Result<T> {
    let mut session = attach(caller.pid(), settings(&["ROCPROF_KERNEL_TRACE"]))?;
    let result = act(caller)?;
    session.poll().map_err(|failure| failure.to_string())?;
    let collected = session.detach().map_err(|failure| failure.to_string())?;
    match collected.failure() {
        Some(failure) => Err(failure.to_string().into()),
        None => Ok(result),
    }
}

/// Returns the reads of rings in device memory up to the end of a log, which is the sum of each
/// ring's last count.
fn reads(log: &ModelLog) -> u64 {
    let mut by_ring = std::collections::BTreeMap::new();
    for record in &log.records {
        if let Event::Reads { ring, count, .. } = record.event {
            by_ring.insert(ring, count);
        }
    }
    by_ring.values().sum()
}

/// Returns the reads per launch. They are counted in a process of its own, because counting makes
/// it slow.
fn reads_per_launch(lab: &Lab) -> Result<[f64; 2]> {
    let mut caller = Caller::start(
        command(lab)?
            .log_name("device-ring")
            .env("MODEL_RING", "device"),
    )?;
    let launch = |caller: &mut Caller| caller.tell(&format!("launches {COUNTED}"));
    let per_launch = |before: u64, after: u64| (after - before) as f64 / f64::from(COUNTED);
    let first = reads(&caller.model_log()?);
    launch(&mut caller)?;
    let bare = reads(&caller.model_log()?);
    traced(&mut caller, launch)?;
    let with = reads(&caller.model_log()?);
    caller.quit()?;
    Ok([per_launch(first, bare), per_launch(bare, with)])
}

/// Launches in a batch while windows of counters are measured: as many as there are windows ready.
const BATCH: u32 = 16;
/// Batches in a turn.
const BATCHES: u32 = 50;

/// Returns the CPU time of a launch in ns, with a few launches at a time.
fn ns_in_batches(caller: &mut Caller) -> Result<f64> {
    let mut all = 0.0;
    for _ in 0..BATCHES {
        caller.send(&format!("launches {BATCH}"))?;
        let line = caller.expect("took ")?;
        caller.expect("launches")?;
        let ns: f64 = line.rsplit(' ').next().unwrap_or_default().parse()?;
        all += ns;
    }
    Ok(all / f64::from(BATCHES * BATCH))
}

/// Returns the stage's tool, with a helper alongside it that runs in the lab, where AMD's packet
/// library is.
pub fn tool_for_counters(lab: &Lab) -> Result<PathBuf> {
    let ours = stage()?.join("lib/rocprofiler-sdk");
    let helper = lab.install(&ours.join("midair-aqlprofile"))?;
    let tool = lab.scratch().join("librocprofiler-sdk-tool.so.1");
    std::fs::copy(ours.join("librocprofiler-sdk-tool.so.1"), &tool)?;
    let script = lab.scratch().join("midair-aqlprofile");
    let text = format!(
        "#!/bin/sh\nexec chroot {} {helper} \"$@\"\n",
        lab.root().display()
    );
    std::fs::write(&script, text)?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
    Ok(tool)
}

/// Measures kernels with a window of counters around each, and traced kernels for comparison.
fn counted(lab: &Lab, table: &mut Table) -> Result<()> {
    let tool = tool_for_counters(lab)?;
    let mut caller = start(lab, "counted")?;
    let mut columns: [Vec<f64>; 2] = Default::default();
    let mut windows = 0;
    for turn in 0..=ROUNDS {
        let traced = traced(&mut caller, ns_in_batches)?;
        let mut settings = settings(&["ROCPROF_KERNEL_TRACE"]);
        settings.set("ROCPROF_COUNTERS", "pmc: SQ_WAVES GRBM_COUNT");
        settings.set("MIDAIR_MAX_OVERHEAD", "100");
        let mut session = attach_with_tool(caller.pid(), settings, tool.clone())?;
        // These launches make the queue known, since only then it gets windows.
        ns_in_batches(&mut caller)?;
        let before = commands(&caller.model_log()?);
        let with = ns_in_batches(&mut caller)?;
        windows += (commands(&caller.model_log()?) - before) / 2;
        session.poll().map_err(|failure| failure.to_string())?;
        drop(session.detach().map_err(|failure| failure.to_string())?);
        if turn > 0 {
            columns[0].push(traced);
            columns[1].push(with);
        }
    }
    caller.quit()?;
    let [bare, with] = columns;
    let share = windows as f64 / (f64::from(BATCH * BATCHES) * (ROUNDS + 1) as f64);
    let cost: Vec<f64> = bare
        .iter()
        .zip(&with)
        .map(|(bare, with)| (with - bare) / share)
        .collect();
    table.per_call("kernel launch, few at a time: traced", &bare, "");
    table.per_call("kernel launch, few at a time: counted", &with, "");
    table.plain("  share of launches that had a window", &[share], "");
    table.per_call("  a window of counters", &cost, "< 500");
    Ok(())
}

/// Returns how many packets with commands the model has carried out.
pub fn commands(log: &ModelLog) -> usize {
    let is_commands = |event: &Event| matches!(event, Event::Pm4(_));
    log.records
        .iter()
        .filter(|record| is_commands(&record.event))
        .count()
}

/// Measures on AMD's HIP.
pub fn run(table: &mut Table) -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (mut caller, mut untouched) = (start(&lab, "launches")?, start(&lab, "never")?);
    let mut columns: [Vec<f64>; 2] = Default::default();
    // The first round is not counted. In it pages are faulted in, and the worker thread is started,
    // which stays.
    for turn in 0..=ROUNDS {
        let bare = ns_per_launch(&mut untouched)?;
        let with = traced(&mut caller, ns_per_launch)?;
        if turn > 0 {
            for (column, ns) in columns.iter_mut().zip([bare, with]) {
                column.push(ns);
            }
        }
    }
    caller.quit()?;
    untouched.quit()?;
    let [bare, with] = columns;
    let [bare_reads, traced_reads] = reads_per_launch(&lab)?;
    let ratio = |reads: [f64; 2]| -> Vec<f64> {
        let [bare_reads, traced_reads] = reads.map(|count| count * READ);
        bare.iter()
            .zip(&with)
            .map(|(bare, with)| (with + traced_reads) / (bare + bare_reads))
            .collect()
    };
    table.per_call("kernel launch: never attached", &bare, "");
    table.per_call("kernel launch: traced", &with, "");
    table.plain("  by never attached, same turn", &ratio([0.0; 2]), "");
    table.plain("ring in device memory: reads per launch", &[bare_reads], "");
    table.plain("  traced", &[traced_reads], "1");
    table.plain(
        "  launch by never attached, a read 1 us",
        &ratio([bare_reads, traced_reads]),
        "<= 1.5",
    );
    counted(&lab, table)
}
