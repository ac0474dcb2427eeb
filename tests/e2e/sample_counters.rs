//! Sample clients that count (`tests/clients`): every value is what the modelled GPU's rules make of
//! the dispatch, and their number is the one in its log.

use crate::samples::{Client, quit};
use midair_tests::Result;
use midair_tests::caller::{Caller, Counts};
use midair_tests::lab::Lab;
use std::collections::BTreeMap;

/// What is known of counters: the same in every process.
fn known(told: &Counts) {
    assert_eq!(told["constants"], 29, "{told:?}");
    assert!(
        told["basic"] > 200 && told["derived"] > 100 && told.len() == 6,
        "{told:?}"
    );
    assert_eq!(told["values of GRBM_COUNT"], 1, "{told:?}");
    assert_eq!(told["values of SAMPLE_LOADED"], 1, "{told:?}");
    // The lab's GPU has eight shader engines.
    assert_eq!(told["values of SQ_WAVES"], 8, "{told:?}");
}

#[test]
fn what_there_is_to_count() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let client = Client::build(&lab, "counter_info")?;
    let mut caller = Caller::start(Caller::command(&lab)?)?;
    known(&client.attached(caller.pid(), || caller.tell("calls 1"))?);
    caller.quit()?;

    let command = client.launched(Caller::command(&lab)?.log_name("launched"))?;
    let mut caller = Caller::start(command)?;
    caller.tell("calls 2")?;
    caller.quit()?;
    known(&client.counted()?);
    Ok(())
}

/// Dispatches by the size of their grid.
fn grids(of: &BTreeMap<[u32; 3], usize>, what: &str) -> Counts {
    of.iter()
        .map(|(grid, count)| (format!("{what} {}", grid[0]), *count as u64))
        .collect()
}

#[test]
fn chosen_dispatches_to_a_function() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let client = Client::build(&lab, "counters_callback")?;
    let command = client.launched(Caller::command(&lab)?.log_name("launched"))?;
    let mut target = command.spawn()?;
    target.expect("ready")?;
    target.send("calls 20")?;
    target.expect("calls")?;
    let log = quit(target)?.grids();
    let mut wanted = grids(&log, "asked");
    wanted.insert("counted 320".to_owned(), log[&[320, 1, 1]] as u64);
    assert_eq!(client.counted()?, wanted);
    Ok(())
}

#[test]
fn every_dispatch_into_a_buffer() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let client = Client::build(&lab, "counters_buffered")?;
    let command = client.launched(Caller::command(&lab)?.log_name("launched"))?;
    let mut target = command.spawn()?;
    target.expect("ready")?;
    target.send("calls 20")?;
    target.expect("calls")?;
    let log = quit(target)?.grids();
    assert_eq!(client.counted()?, grids(&log, "counted"));
    Ok(())
}
