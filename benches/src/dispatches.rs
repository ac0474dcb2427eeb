//! What a kernel launch costs (`hipModuleLaunchKernel`), in a process that was never attached to and
//! in another one whose kernels are traced; and with HIP's rings in device memory.
//!
//! There is no such memory here. The model counts how often a launch reads its ring, and each read
//! is taken to cost as much as one over the bus does.

use crate::report::Table;
use crate::session::{attach, settings};
use midair_tests::Result;
use midair_tests::caller::Caller;
use midair_tests::lab::{Lab, LabCommand};
use midair_tests::modellog::{Event, ModelLog};

/// Turns.
const ROUNDS: usize = 15;
/// Launches per turn: fewer than a ring holds.
const LAUNCHES: u32 = 4_000;
/// Launches whose reads are counted.
const COUNTED: u32 = 200;
/// A read over PCI Express, in ns.
const READ: f64 = 1_000.0;

/// CPU time: other work on the machine does not count.
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

/// Does `act` while kernels are traced.
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

/// Reads of rings in device memory, up to the end of a log: queue by queue, the last count.
fn reads(log: &ModelLog) -> u64 {
    let mut by_ring = std::collections::BTreeMap::new();
    for record in &log.records {
        if let Event::Reads { ring, count, .. } = record.event {
            by_ring.insert(ring, count);
        }
    }
    by_ring.values().sum()
}

/// Reads per launch, in a process of its own: one that is watched so closely is slow.
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

/// On AMD's HIP.
pub fn run(table: &mut Table) -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (mut caller, mut untouched) = (start(&lab, "launches")?, start(&lab, "never")?);
    let mut columns: [Vec<f64>; 2] = Default::default();
    // The first round faults pages in, and starts the worker thread that stays.
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
    Ok(())
}
