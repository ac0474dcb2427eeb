//! The cost of a kernel launch (`hipModuleLaunchKernel`) for the thread that makes it, with 1, 4
//! and 16 threads: in a process that was never attached to, with kernels traced, with a window of
//! counters around each, and on intercept queues of AMD's runtime, by which AMD's tool counts.
//!
//! All of these alternate, so that other work on the machine hits them alike. The figures to look
//! at are differences and ratios. Each launch is timed by itself, and the median of all is taken.
//! The first launches after a pause are kept apart, since the caches are cold then.

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
const ROUNDS: usize = 9;
/// Batches in a turn.
const BATCHES: usize = 60;
/// How many threads launch, and how many kernels each of them in a batch, which are together fewer
/// than there are windows ready (64).
const SHAPES: [(usize, usize); 3] = [(1, 16), (4, 12), (16, 3)];

fn start(command: LabCommand<'_>, log: &str) -> Result<Caller> {
    Caller::start(command.env("MODEL_KERNEL_NS", 500).log_name(log))
}

/// The medians of a launch, in ns.
#[derive(Debug, Clone, Copy)]
struct Launch {
    elapsed: f64,
    /// The processor time of the thread that launches, which other threads on the same processors
    /// do not lengthen.
    processor: f64,
    /// The elapsed time of the first launch after 1.5 ms without any: the caches are cold.
    first: f64,
}

/// Measures launches.
fn median(caller: &mut Caller, (threads, each): (usize, usize)) -> Result<Launch> {
    caller.send(&format!("batches {BATCHES} {each} {threads}"))?;
    let line = caller.expect("took ")?;
    caller.expect("batches")?;
    let word = |place| line.split(' ').nth(place).unwrap_or_default();
    Ok(Launch {
        elapsed: word(1).parse()?,
        processor: word(2).parse()?,
        first: word(3).parse()?,
    })
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
    for shape in SHAPES {
        let threads = shape.0;
        let mut columns: [Vec<Launch>; 4] = Default::default();
        let (mut windows, mut launches) = (0, 0);
        for turn in 0..=ROUNDS {
            let never = median(&mut bare, shape)?;
            let intercepted = median(&mut amds, shape)?;
            let traced = attached(
                &mut ours,
                settings(&["ROCPROF_KERNEL_TRACE"]),
                None,
                |ours| median(ours, shape),
            )?;
            let mut counts = settings(&["ROCPROF_KERNEL_TRACE"]);
            counts.set("ROCPROF_COUNTERS", "pmc: SQ_WAVES GRBM_COUNT");
            counts.set("MIDAIR_MAX_OVERHEAD", "100");
            let counted = attached(&mut ours, counts, Some(tool.clone()), |ours| {
                // These launches make the queues known, since only then they get windows.
                median(ours, shape)?;
                let before = commands(&ours.model_log()?);
                let counted = median(ours, shape)?;
                windows += (commands(&ours.model_log()?) - before) / 2;
                launches += BATCHES * shape.0 * shape.1;
                Ok(counted)
            })?;
            if turn > 0 {
                let all = [never, intercepted, traced, counted];
                for (column, ns) in columns.iter_mut().zip(all) {
                    column.push(ns);
                }
            }
        }
        let times = |time: fn(&Launch) -> f64| {
            columns
                .each_ref()
                .map(|column| column.iter().map(time).collect())
        };
        let [never, intercepted, traced, counted]: [Vec<f64>; 4] = times(|launch| launch.elapsed);
        let [_, _, traced_use, counted_use]: [Vec<f64>; 4] = times(|launch| launch.processor);
        let [_, _, traced_first, counted_first]: [Vec<f64>; 4] = times(|launch| launch.first);
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
        let used = less(&counted_use, &traced_use);
        table.per_call("  a window, in processor time", &used, "< 500");
        let first = less(&counted_first, &traced_first);
        table.per_call("  a window at the first launch after a pause", &first, "");
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
