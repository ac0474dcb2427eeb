//! The cost of a HIP call (`hipGetLastError`, one of the cheapest): in a process that was never
//! attached to, and in another one while it is attached for something else, while it is traced, and
//! after the detach. The states alternate, so that all see the same machine.

use crate::report::Table;
use crate::session::{attach, settings};
use midair_tests::Result;
use midair_tests::caller::Caller;
use midair_tests::lab::Lab;

/// How many turns there are.
const ROUNDS: usize = 15;
/// Calls in a turn.
const CALLS: u32 = 100_000;

/// Returns the CPU time of a call in ns, in which other work on the machine does not count.
fn ns_per_call(caller: &mut Caller) -> Result<f64> {
    caller.send(&format!("tight {CALLS}"))?;
    let line = caller.expect("took ")?;
    caller.expect("tight")?;
    let ns: f64 = line.rsplit(' ').next().unwrap_or_default().parse()?;
    Ok(ns / f64::from(CALLS))
}

/// Measures on AMD's HIP.
pub fn run(table: &mut Table) -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut caller = Caller::start(Caller::command(&lab)?)?;
    let mut untouched = Caller::start(Caller::command(&lab)?.log_name("untouched"))?;
    let mut columns: [Vec<f64>; 4] = Default::default();
    // The first round is not counted. In it pages are faulted in, and the worker thread is started,
    // which stays.
    for turn in 0..=ROUNDS {
        let bare = ns_per_call(&mut untouched)?;
        let other = attached(&mut caller, "ROCPROF_HSA_CORE_API_TRACE")?;
        let traced = attached(&mut caller, "ROCPROF_HIP_RUNTIME_API_TRACE")?;
        let after = ns_per_call(&mut caller)?;
        if turn > 0 {
            for (column, ns) in columns.iter_mut().zip([bare, other, traced, after]) {
                column.push(ns);
            }
        }
    }
    let [bare, other, traced, after] = columns;
    let over = |with: &[f64]| -> Vec<f64> {
        with.iter()
            .zip(&bare)
            .map(|(with, bare)| with - bare)
            .collect()
    };
    table.per_call("HIP call: never attached", &bare, "");
    table.per_call("HIP call: traced", &traced, "");
    table.per_call(
        "  over never attached, same turn",
        &over(&traced),
        "< 60 ns",
    );
    table.per_call("HIP call: attached for HSA only", &other, "");
    table.per_call("  over never attached, same turn", &over(&other), "<= 2 ns");
    table.per_call("HIP call: after detach", &after, "");
    table.per_call("  over never attached, same turn", &over(&after), "0");
    caller.quit()?;
    untouched.quit()
}

/// Returns the time of a call in ns while a session with this setting is on.
fn attached(caller: &mut Caller, setting: &str) -> Result<f64> {
    let mut session = attach(caller.pid(), settings(&[setting]))?;
    let ns = ns_per_call(caller)?;
    session.poll().map_err(|failure| failure.to_string())?;
    let collected = session.detach().map_err(|failure| failure.to_string())?;
    match collected.failure() {
        Some(failure) => Err(failure.to_string().into()),
        None => Ok(ns),
    }
}
