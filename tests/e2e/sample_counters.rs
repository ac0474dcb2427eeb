//! Sample clients that count (`tests/clients`). Every value is what the modelled GPU's rules give
//! for the dispatch, and there are as many values as dispatches in the log.

use crate::samples::{Client, quit};
use midair_tests::Result;
use midair_tests::caller::{Caller, Counts};
use midair_tests::lab::Lab;
use midair_tests::modellog::{Dispatch, Event, ModelLog};
use midair_tests::target::until;
use std::collections::BTreeMap;

/// Checks what a client learned about the counters themselves, which is the same in every process.
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

/// Returns the number of dispatches by the size of their grid.
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

/// A tool tries each counter that exists, with one dispatch for each. It makes its list of counters
/// while it is asked. Each counter has a value for each place where it is counted.
///
/// This is for a program that is started only. In a program that is attached to, a list that is
/// chosen for the first time has to be prepared before a window of it can be opened, and a window
/// that another dispatch shares has no values. So no single dispatch there can be promised its
/// values, and the client, which asks for each counter once, would miss most of them. What holds
/// there is in [`dispatches_of_a_program_that_was_there_before`].
#[test]
fn every_counter_one_after_the_other() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let client = Client::build(&lab, "counters_every")?;
    let all = lab.scratch().join("counters_every.log.all");
    let command = client.launched(Caller::command(&lab)?.log_name("launched"))?;
    let mut caller = Caller::start(command)?;
    until("a dispatch for each counter", || {
        caller.tell("calls 50")?;
        Ok(all.exists())
    })?;
    caller.quit()?;
    let told = client.counted()?;
    assert!(told["counters"] > 300, "{told:?}");
    // The remaining counters need more events of a block than the block can count at once.
    assert!(told["counted"] * 10 > told["counters"] * 9, "{told:?}");
    assert!(told["values"] > 10 * told["counted"], "{told:?}");
    Ok(())
}

/// Returns the wavefronts of all dispatches so far, by the model's rule.
pub(crate) fn waves(log: &ModelLog) -> u64 {
    let of = |dispatch: &Dispatch| {
        let group = u32::from(dispatch.workgroup[0]);
        u64::from(dispatch.grid[0].div_ceil(group) * group.div_ceil(64))
    };
    log.dispatches().map(of).sum()
}

#[test]
fn a_whole_device() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let client = Client::build(&lab, "counters_device")?;
    let now = lab.scratch().join("counters_device.log.now");
    // Returns a reading that started after this function was called.
    let read = || -> Result<u64> {
        for _ in 0..2 {
            let _ = std::fs::remove_file(&now);
            until("a reading", || Ok(now.exists()))?;
        }
        Ok(std::fs::read_to_string(&now)?.trim().parse()?)
    };
    let mut caller = Caller::start(Caller::command(&lab)?)?;
    for rounds in [3, 5] {
        let mut last = 0;
        let told = client.attached(caller.pid(), || {
            // A queue is enabled for counters only when the program has been seen checking for room
            // in its ring.
            while read()? == 0 {
                caller.tell("calls 1")?;
            }
            let (before, counted) = (waves(&caller.model_log()?), read()?);
            caller.tell(&format!("calls {rounds}"))?;
            last = read()?;
            assert_eq!(last - counted, waves(&caller.model_log()?) - before);
            Ok(())
        })?;
        assert_eq!((told["chosen"], told["waves"]), (1, last), "{told:?}");
    }
    caller.quit()?;

    // The client starts with the runtime. Queues are enabled for counters when they are made, or
    // soon after.
    let command = client.launched(Caller::command(&lab)?.log_name("launched"))?;
    let mut caller = Caller::start(command)?;
    caller.tell("calls 50")?;
    let all = waves(&caller.model_log()?);
    caller.quit()?;
    let told = client.counted()?;
    assert!(
        told["chosen"] == 1 && told["waves"] > 0 && told["waves"] <= all,
        "{told:?}"
    );
    Ok(())
}

/// Returns how many midair packets the log has.
fn commands(log: &ModelLog) -> usize {
    let is_ours = |record: &&midair_tests::modellog::Record| matches!(record.event, Event::Pm4(_));
    log.records.iter().filter(is_ours).count()
}

/// The program runs before the tool comes. Only dispatches that had the device to themselves have
/// values, and each value is right. The tool is asked about all dispatches.
#[test]
fn dispatches_of_a_program_that_was_there_before() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    for name in ["counters_callback", "counters_buffered"] {
        let client = Client::build(&lab, name)?;
        let mut caller = Caller::start(Caller::command(&lab)?.log_name(name))?;
        caller.tell("calls 3")?;
        for _session in 0..2 {
            let before = caller.model_log()?.grids();
            let told = client.attached(caller.pid(), || {
                // Counters are prepared when they are chosen for the first time.
                let wanted = commands(&caller.model_log()?) + 200;
                until("windows", || {
                    caller.tell("calls 10")?;
                    Ok(commands(&caller.model_log()?) >= wanted)
                })
            })?;
            let after = caller.model_log()?.grids();
            let launched = |grid: u32| {
                let of = |log: &BTreeMap<[u32; 3], usize>| {
                    log.get(&[grid, 1, 1]).map_or(0, |n| *n as u64)
                };
                of(&after) - of(&before)
            };
            let mut counted = 0;
            for (name, count) in &told {
                let (what, grid) = name.split_once(' ').ok_or("a grid")?;
                let all = launched(grid.parse()?);
                match what {
                    "asked" => assert_eq!(*count, all, "{told:?}"),
                    _ => assert!(*count <= all, "{told:?}: {all}"),
                }
                counted += u64::from(what == "counted") * count;
            }
            assert!(counted >= 10, "{told:?}");
        }
        caller.quit()?;
    }
    Ok(())
}

/// With four streams at once, a shared window has no values. So each value that comes is right,
/// which the client checks against the dispatch.
#[test]
fn dispatches_beside_which_others_ran_have_no_values() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let client = Client::build(&lab, "counters_buffered")?;
    for threads in [1, 4] {
        let program = lab.run(&lab.program("streams")?);
        let mut target = program.arg(lab.kernels()?).arg(threads).spawn()?;
        target.expect("ready")?;
        let before = ModelLog::read(&target.log)?.dispatches().count() as u64;
        let told = client.attached(target.pid(), || {
            let log = target.log.clone();
            let wanted = commands(&ModelLog::read(&log)?) + 400;
            until("windows", || {
                target.send("rounds 20")?;
                target.expect("rounds")?;
                Ok(commands(&ModelLog::read(&log)?) >= wanted)
            })
        })?;
        let after = ModelLog::read(&target.log)?.dispatches().count() as u64;
        let counted: u64 = told.values().sum();
        assert!(
            counted > 0 && counted <= after - before,
            "{told:?}: {}",
            after - before
        );
        // With one thread, no window was shared.
        assert!(threads > 1 || counted >= 100, "{told:?}");
        quit(target)?.check()?;
    }
    Ok(())
}

#[test]
fn a_device_between_a_start_and_a_stop() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let client = Client::build(&lab, "counters_device_sync")?;
    let file = |end: &str| {
        lab.scratch()
            .join(format!("counters_device_sync.log.{end}"))
    };
    let (go, on, now) = (file("go"), file("on"), file("now"));
    let reading = |caller: &mut Caller, calls: u32| -> Result<(u64, u64)> {
        let _ = std::fs::remove_file(&now);
        std::fs::write(&go, "")?;
        until("counters that count", || Ok(on.exists()))?;
        let before = waves(&caller.model_log()?);
        caller.tell(&format!("calls {calls}"))?;
        let launched = waves(&caller.model_log()?) - before;
        std::fs::remove_file(&go)?;
        until("a reading", || Ok(now.exists()))?;
        Ok((std::fs::read_to_string(&now)?.trim().parse()?, launched))
    };
    let readings = |caller: &mut Caller| -> Result<()> {
        // A queue is enabled for counters only when the program has been seen checking for room in
        // its ring.
        let (counted, launched) = reading(caller, 2)?;
        assert!(counted <= launched, "{counted} of {launched}");
        for calls in [1, 3, 7] {
            let (counted, launched) = reading(caller, calls)?;
            assert!(
                counted > 0 && counted == launched,
                "{counted} of {launched}"
            );
            // These calls come between two readings, and no reading counts them.
            caller.tell("calls 2")?;
        }
        Ok(())
    };
    let mut caller = Caller::start(Caller::command(&lab)?)?;
    caller.tell("calls 2")?;
    let told = client.attached(caller.pid(), || readings(&mut caller))?;
    assert_eq!(told["readings"], 4, "{told:?}");
    caller.quit()?;

    let command = client.launched(Caller::command(&lab)?.log_name("launched"))?;
    let mut caller = Caller::start(command)?;
    readings(&mut caller)?;
    caller.quit()?;
    assert_eq!(client.counted()?["readings"], 4);
    Ok(())
}

/// Tests null pointers, unknown ids, too little room and wrong states.
#[test]
fn arguments_of_the_services_that_count() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let client = Client::build(&lab, "counters_arguments")?;
    let mut caller = Caller::start(Caller::command(&lab)?)?;
    caller.tell("calls 2")?;
    let told = client.attached(caller.pid(), || caller.tell("calls 2"))?;
    assert_eq!(told["statuses"], 35, "{told:?}");
    caller.quit()
}
