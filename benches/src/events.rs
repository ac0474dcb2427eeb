//! The cost of recording a HIP event (`hipEventRecord`): in a process that was never attached to,
//! and in another one whose calls and kernels are traced, without `--hip-event-trace` and with it.
//! The states alternate, so that all see the same machine.

use crate::report::Table;
use crate::session::{attach, settings};
use midair_tests::Result;
use midair_tests::caller::Caller;
use midair_tests::lab::Lab;

/// How many turns there are.
const ROUNDS: usize = 15;
/// Records in a turn, whose barriers are fewer than a ring holds.
const RECORDS: u32 = 2_000;

const CALLS: [&str; 2] = ["ROCPROF_HIP_RUNTIME_API_TRACE", "ROCPROF_KERNEL_TRACE"];

/// Returns the CPU time of a call in ns, in which other work on the machine does not count.
fn ns_per_record(caller: &mut Caller) -> Result<f64> {
    caller.send(&format!("events {RECORDS}"))?;
    let line = caller.expect("took ")?;
    caller.expect("events")?;
    let ns: f64 = line.rsplit(' ').next().unwrap_or_default().parse()?;
    Ok(ns / f64::from(RECORDS))
}

/// Returns the time of a call in ns while a session with these settings is on.
fn attached(caller: &mut Caller, more: &[&str]) -> Result<f64> {
    let names = [&CALLS[..], more].concat();
    let mut session = attach(caller.pid(), settings(&names))?;
    let ns = ns_per_record(caller)?;
    session.poll().map_err(|failure| failure.to_string())?;
    let collected = session.detach().map_err(|failure| failure.to_string())?;
    match collected.failure() {
        Some(failure) => Err(failure.to_string().into()),
        None => Ok(ns),
    }
}

/// Measures on AMD's HIP.
pub fn run(table: &mut Table) -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let start = |log: &str| -> Result<Caller> {
        let command = Caller::command(&lab)?.log_name(log);
        Caller::start(command.env("MODEL_KERNEL_NS", 500))
    };
    let (mut caller, mut untouched) = (start("events")?, start("never")?);
    let mut columns: [Vec<f64>; 3] = Default::default();
    // The first round is not counted. In it pages are faulted in, and the worker thread is started,
    // which stays.
    for turn in 0..=ROUNDS {
        let bare = ns_per_record(&mut untouched)?;
        let calls = attached(&mut caller, &[])?;
        let events = attached(&mut caller, &["ROCPROF_HIP_EVENT_TRACE"])?;
        if turn > 0 {
            for (column, ns) in columns.iter_mut().zip([bare, calls, events]) {
                column.push(ns);
            }
        }
    }
    caller.quit()?;
    untouched.quit()?;
    let [bare, calls, events] = columns;
    let by = |from: &[f64], to: &[f64], join: fn(f64, f64) -> f64| -> Vec<f64> {
        from.iter()
            .zip(to)
            .map(|(from, to)| join(*from, *to))
            .collect()
    };
    table.per_call("record of a HIP event: never attached", &bare, "");
    table.per_call("record of a HIP event: calls and kernels", &calls, "");
    table.per_call("record of a HIP event: events, too", &events, "");
    let more = by(&calls, &events, |calls, events| events - calls);
    table.per_call("  over calls and kernels, same turn", &more, "");
    let ratio = by(&bare, &events, |bare, events| events / bare);
    table.plain("  by never attached, same turn", &ratio, "");
    Ok(())
}
