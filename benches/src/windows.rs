//! The cost of a kernel launch (`hipModuleLaunchKernel`) for the thread that makes it, with 1, 4
//! and 16 threads: in a process that was never attached to, with kernels traced, with a window of
//! counters around each, and on intercept queues of AMD's runtime, by which AMD's tool counts.
//!
//! All of these take turns, so that other work on the machine hits them alike. The figures to look
//! at are differences and ratios. Each launch is timed by itself, and the median of all is taken.

use crate::dispatches::{commands, tool_for_counters};
use crate::report::Table;
use crate::session::{attach, attach_with_tool, settings};
use midair_settings::Settings;
use midair_tests::Result;
use midair_tests::caller::Caller;
use midair_tests::lab::{Lab, LabCommand};
use midair_tests::modellog::{Event, ModelLog};
use std::path::PathBuf;

/// How many turns there are, after one for warming up.
const ROUNDS: usize = 5;
/// Batches in a turn, and launches of all threads in a batch, which are fewer than there are
/// windows ready.
const BATCHES: usize = 60;
const LAUNCHES: usize = 16;
const THREADS: [usize; 3] = [1, 4, 16];

fn start(command: LabCommand<'_>, log: &str) -> Result<Caller> {
    Caller::start(command.env("MODEL_KERNEL_NS", 500).log_name(log))
}

/// Returns the median time of a launch, in ns.
fn median(caller: &mut Caller, threads: usize) -> Result<f64> {
    caller.send(&format!(
        "batches {BATCHES} {} {threads}",
        LAUNCHES / threads
    ))?;
    let line = caller.expect("took ")?;
    caller.expect("batches")?;
    let median = line.split(' ').nth(1).unwrap_or_default();
    Ok(median.parse()?)
}

/// Runs `act` during a session in the process.
fn attached<T>(
    caller: &mut Caller,
    settings: Settings,
    tool: Option<PathBuf>,
    act: impl FnOnce(&mut Caller) -> Result<T>,
) -> Result<T> {
    let mut session = match tool {
        Some(tool) => attach_with_tool(caller.pid(), settings, tool)?,
        None => attach(caller.pid(), settings)?,
    };
    let result = act(caller)?;
    session.poll().map_err(|failure| failure.to_string())?;
    drop(session.detach().map_err(|failure| failure.to_string())?);
    Ok(result)
}

/// Returns how many packets the GPU got for each kernel, which is one if nothing was intercepted.
fn packets_per_dispatch(log: &ModelLog) -> f64 {
    let (mut dispatches, mut barriers) = (0_u32, 0_u32);
    for record in &log.records {
        match record.event {
            Event::Dispatch(_) => dispatches += 1,
            Event::Barrier { .. } => barriers += 1,
            _ => {}
        }
    }
    f64::from(dispatches + barriers) / f64::from(dispatches)
}

/// Measures on AMD's HIP.
pub fn run(table: &mut Table) -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let program = lab.program("launch_times")?;
    let command = || -> Result<LabCommand<'_>> { Ok(lab.run(&program).arg(lab.kernels()?)) };
    let library = lab.library("intercept_queues", "libintercept.so")?;
    let preload = format!("{library}/libintercept.so");
    let tool = tool_for_counters(&lab)?;
    let (mut bare, mut ours) = (start(command()?, "bare")?, start(command()?, "ours")?);
    let mut amds = start(command()?.preload(&preload), "amds")?;
    for threads in THREADS {
        let mut columns: [Vec<f64>; 4] = Default::default();
        let (mut windows, mut launches) = (0, 0);
        for turn in 0..=ROUNDS {
            let never = median(&mut bare, threads)?;
            let intercepted = median(&mut amds, threads)?;
            let traced = attached(
                &mut ours,
                settings(&["ROCPROF_KERNEL_TRACE"]),
                None,
                |ours| median(ours, threads),
            )?;
            let mut counts = settings(&["ROCPROF_KERNEL_TRACE"]);
            counts.set("ROCPROF_COUNTERS", "pmc: SQ_WAVES GRBM_COUNT");
            counts.set("MIDAIR_MAX_OVERHEAD", "100");
            let counted = attached(&mut ours, counts, Some(tool.clone()), |ours| {
                // These launches make the queues known, since only then they get windows.
                median(ours, threads)?;
                let before = commands(&ours.model_log()?);
                let counted = median(ours, threads)?;
                windows += (commands(&ours.model_log()?) - before) / 2;
                launches += BATCHES * LAUNCHES;
                Ok(counted)
            })?;
            if turn > 0 {
                let all = [never, intercepted, traced, counted];
                for (column, ns) in columns.iter_mut().zip(all) {
                    column.push(ns);
                }
            }
        }
        let [never, intercepted, traced, counted] = columns;
        let less = |one: &[f64], other: &[f64]| -> Vec<f64> {
            one.iter()
                .zip(other)
                .map(|(one, other)| one - other)
                .collect()
        };
        let (ours, amds) = (less(&counted, &never), less(&intercepted, &never));
        let ratio: Vec<f64> = ours
            .iter()
            .zip(&amds)
            .map(|(ours, amds)| ours / amds)
            .collect();
        let row = |what: &str| format!("launch, {threads} threads: {what}");
        table.per_call(&row("never attached"), &never, "");
        table.per_call(&row("AMD's intercept queue"), &intercepted, "");
        table.per_call(&row("traced"), &traced, "");
        table.per_call(&row("traced and counted"), &counted, "");
        table.plain(
            "  share that had a window",
            &[windows as f64 / launches as f64],
            "",
        );
        table.per_call("  a window", &less(&counted, &traced), "< 500");
        table.per_call("  an intercept queue", &amds, "");
        table.plain("  tracing and counting by an intercept queue", &ratio, "");
    }
    table.plain(
        "packets for a dispatch on AMD's intercept queues",
        &[packets_per_dispatch(&amds.model_log()?)],
        "",
    );
    for caller in [bare, ours, amds] {
        caller.quit()?;
    }
    Ok(())
}
