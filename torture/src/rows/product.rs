//! Row 13: attaches and detaches of the whole product, thousands of them on one program.

use crate::cell::Cell;
use crate::kit::Kit as Own;
use crate::spec::Want;
use crate::tally::{Cycle, Tally, Way, at};
use midair_inject::Options;
use midair_session::{Install, Request, Session};
use midair_settings::Settings;
use midair_tests::Result;
use midair_tests::snapshot::Snapshot;
use midair_tests::stage::stage;
use midair_tests::stand_in::Kit;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Sessions before the first look: allocators and tables of both sides have grown to what they need.
const WARM: u64 = 20;
/// Growth of either side's memory that is no leak, in KiB.
const GROWTH: u64 = 8 * 1024;
/// A session that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(5);

/// The cell.
pub fn cells() -> Vec<Cell> {
    let name = "the whole product: attach, record, detach, on a HIP program (stand-in runtimes)";
    vec![Cell::special(13, name, product).want(Want::In)]
}

/// What must not grow.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Size {
    maps: usize,
    fds: usize,
    threads: usize,
    kib: u64,
}

fn size_of(pid: i32) -> Result<Size> {
    let seen = Snapshot::take(pid)?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let word = line.and_then(|line| line.split_ascii_whitespace().next());
    Ok(Size {
        maps: seen.maps.len(),
        fds: seen.fds.len(),
        threads: seen.threads.len(),
        kib: word.and_then(|word| word.parse().ok()).unwrap_or(0),
    })
}

fn product(own: &Own) -> Result<Tally> {
    let mut tally = Tally::default();
    let lib = match stage() {
        Ok(stage) => stage.join("lib"),
        Err(error) => return Ok(Tally::left_out(error.to_string())),
    };
    let install = Install {
        sdk: lib.join("librocprofiler-sdk.so.1"),
        tool: lib.join("rocprofiler-sdk/librocprofiler-sdk-tool.so.1"),
    };
    let kit = Kit::new()?;
    let mut target = kit.start("two_gpus", "model.log", &[("MODEL_KERNEL_NS", "20000")])?;
    target.expect("ready")?;
    target.send("start")?;
    target.expect("start")?;
    let pid = target.pid();
    let mut before: BTreeMap<&str, Size> = BTreeMap::new();
    let mine = std::process::id().cast_signed();
    for number in 0..own.amount.many {
        if number == WARM.min(own.amount.many / 2) {
            before = [("target", size_of(pid)?), ("attacher", size_of(mine)?)].into();
        }
        tally.count(&session(pid, &install));
        if tally.hung + tally.failed > 10 || !target.is_running()? {
            break;
        }
    }
    let after = [("target", size_of(pid)?), ("attacher", size_of(mine)?)];
    for (who, after) in after {
        let Some(before) = before.get(who) else {
            continue;
        };
        tally.note(format!("{who}: {before:?}, then {after:?}"));
        let same = before.fds == after.fds
            && before.threads == after.threads
            // The allocators of both sides may take a few areas more.
            && after.maps <= before.maps + 16
            && after.kib <= before.kib + GROWTH;
        if !same {
            tally.residue += 1;
        }
    }
    let tenth = tally.attach.len() / 10;
    if tenth > 0 {
        let (first, last) = (
            &tally.attach[..tenth],
            &tally.attach[tally.attach.len() - tenth..],
        );
        let (first, last) = (at(first, 0.5), at(last, 0.5));
        tally.note(format!(
            "p50 of attach, first tenth {first:?}, last tenth {last:?}"
        ));
    }
    target.send("stop")?;
    let stopped = target.expect("stop");
    target.send("quit")?;
    let exit = target.target.wait(Duration::from_secs(60))?;
    if stopped.is_err() || !exit.status.success() {
        tally.crashed += 1;
        tally.note(crate::cell::short(&exit.to_string()));
    }
    Ok(tally)
}

/// One session: everything that the demo records, then detached; what was recorded is dropped.
fn session(pid: i32, install: &Install) -> Cycle {
    let mut settings = Settings::new();
    for name in [
        "ROCPROF_HIP_RUNTIME_API_TRACE",
        "ROCPROF_KERNEL_TRACE",
        "ROCPROF_MEMORY_COPY_TRACE",
    ] {
        settings.set(name.to_owned(), "1".to_owned());
    }
    let began = Instant::now();
    let request = Request::new(pid.cast_unsigned(), settings);
    let session = match Session::attach_with(&request, install, &Options::default()) {
        Ok(session) => session,
        Err(failure) => return Cycle::Failed(failure.to_string()),
    };
    let attach = began.elapsed();
    let entry = session.entry();
    let way = Way {
        attach,
        stopped: Some(entry.seize + entry.stub + entry.release),
        tier: entry
            .via
            .split([' ', ':', ','])
            .take(2)
            .collect::<Vec<_>>()
            .join(" "),
        ..Way::default()
    };
    match session.detach() {
        Ok(collected) => {
            if let Some(failure) = collected.failure() {
                return Cycle::Failed(failure.to_string());
            }
        }
        Err(failure) => return Cycle::Failed(failure.to_string()),
    }
    let out = began.elapsed() - attach;
    if began.elapsed() > LIMIT {
        return Cycle::Hung(format!("{attach:?} in, {out:?} out"));
    }
    Cycle::In(Way { out, ..way })
}
