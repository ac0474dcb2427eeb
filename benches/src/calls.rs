//! What a HIP call costs (`hipGetLastError`, one of the cheapest) in one and the same process: before any attach, attached for
//! something else, traced, and after the detach. The states take turns, so that all see the same machine.

use crate::report::Table;
use crate::session::{attach, settings};
use midair_tests::Result;
use midair_tests::caller::Caller;
use midair_tests::lab::Lab;

/// Turns.
const ROUNDS: usize = 15;
/// Calls per turn.
const CALLS: u32 = 100_000;

fn ns_per_call(caller: &mut Caller) -> Result<f64> {
    caller.send(&format!("tight {CALLS}"))?;
    let line = caller.expect("took ")?;
    caller.expect("tight")?;
    let ns: f64 = line.rsplit(' ').next().unwrap_or_default().parse()?;
    Ok(ns / f64::from(CALLS))
}

/// On AMD's HIP.
pub fn run(table: &mut Table) -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut caller = Caller::start(Caller::command(&lab)?)?;
    // The first turn of all faults pages in.
    ns_per_call(&mut caller)?;
    let bare = (0..ROUNDS)
        .map(|_| ns_per_call(&mut caller))
        .collect::<Result<Vec<_>>>()?;
    let (mut other, mut traced, mut after) = (Vec::new(), Vec::new(), Vec::new());
    let (mut over_bare, mut left) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let session = attach(caller.pid(), settings(&["ROCPROF_HSA_CORE_API_TRACE"]))?;
        other.push(ns_per_call(&mut caller)?);
        drop(session.detach().map_err(|failure| failure.to_string())?);
        let mut session = attach(caller.pid(), settings(&["ROCPROF_HIP_RUNTIME_API_TRACE"]))?;
        traced.push(ns_per_call(&mut caller)?);
        session.poll().map_err(|failure| failure.to_string())?;
        drop(session.detach().map_err(|failure| failure.to_string())?);
        after.push(ns_per_call(&mut caller)?);
    }
    for (with, without) in traced.iter().zip(&after) {
        over_bare.push(with - without);
    }
    for (later, earlier) in after.iter().zip(&bare) {
        left.push(later - earlier);
    }
    table.per_call("HIP call: bare", &bare, "");
    table.per_call(
        "HIP call: attached for HSA only",
        &other,
        "<= 2 ns over bare",
    );
    table.per_call("HIP call: traced", &traced, "");
    table.per_call("HIP call: after detach", &after, "");
    table.per_call("  traced over bare, same turn", &over_bare, "< 60 ns");
    table.per_call("  after detach over before", &left, "0");
    caller.quit()
}
