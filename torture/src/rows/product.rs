//! Row 13: attaches and detaches of the whole product, thousands of them on one program. Also one
//! cell of row 15, where the product looks for room and not the engine.

use crate::cell::{Cell, slower};
use crate::kit::Kit as Own;
use crate::spec::Want;
use crate::tally::{Cycle, Entry, Tally, at};
use midair_failure::Kind;
use midair_inject::Options;
use midair_session::Pid;
use midair_session::{Install, Request, Session};
use midair_settings::Settings;
use midair_tests::Result;
use midair_tests::memory_group::MemoryGroup;
use midair_tests::snapshot::Snapshot;
use midair_tests::stage::stage;
use midair_tests::stand_in::Kit;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

/// Sessions before the first snapshot. After them the allocators and tables of both sides have the
/// size that they need.
const WARM: u64 = 20;
/// Growth of either side's memory that does not count as a leak, in KiB.
const GROWTH: u64 = 8 * 1024;
/// The time after which a session counts as a hang.
const LIMIT: Duration = Duration::from_secs(5);

/// Returns the cells.
pub fn cells() -> Vec<Cell> {
    let name = "the whole product: attach, record, detach, on a HIP program (stand-in runtimes)";
    vec![
        Cell::special(13, name, product).want(Want::In),
        Cell::special(
            15,
            "nothing left to its memory cgroup; the whole product, on a HIP program (stand-in runtimes)",
            at_its_limit,
        )
        .want(Want::InOr(&["NoHeadroom"])),
    ]
}

/// The quantities that must not grow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Size {
    maps: usize,
    fds: usize,
    threads: usize,
    kib: u64,
}

impl Size {
    /// Returns the present size of a process.
    pub(super) fn of(pid: i32) -> Result<Size> {
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

    /// Returns whether a later size is the same. Allocators may map a few more areas.
    pub(super) fn is_same(&self, later: &Size) -> bool {
        self.is_same_but(later, 0)
    }

    /// Does the same for a process whose memory grows by itself by `kib`.
    pub(super) fn is_same_but(&self, later: &Size, kib: u64) -> bool {
        self.fds == later.fds
            && self.threads == later.threads
            && later.maps <= self.maps + 16
            && later.kib <= self.kib + GROWTH + kib
    }

    /// Returns by how much the memory has grown since, in KiB.
    pub(super) fn growth(&self, later: &Size) -> u64 {
        later.kib.saturating_sub(self.kib)
    }
}

fn installed() -> Result<Install> {
    let lib = stage()?.join("lib");
    Ok(Install::at(
        lib.join("librocprofiler-sdk.so.1"),
        lib.join("rocprofiler-sdk/librocprofiler-sdk-tool.so.1"),
    ))
}

/// Checks that an attach is refused while the memory cgroup is full, and that the program goes on.
/// As soon as there is room, an attach works.
fn at_its_limit(own: &Own) -> Result<Tally> {
    let mut tally = Tally::default();
    let (install, group) = match (installed(), MemoryGroup::make("torture")) {
        (Ok(install), Ok(group)) => (install, group),
        (Err(error), _) => return Ok(Tally::left_out(error.to_string())),
        (_, Err(why)) => return Ok(Tally::left_out(why)),
    };
    let kit = Kit::new()?;
    let words = group.enter();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).arg(kit.program("two_gpus")?);
    let mut target = kit.start_command(command, "model.log", &[])?;
    target.expect("ready")?;
    target.send("work 1")?;
    target.expect("work")?;
    for _ in 0..own.amount.cycles {
        group.limit(group.usage()?.cast_signed())?;
        let cycle = session(target.pid(), &install);
        group.limit(-1)?;
        if matches!(cycle, Cycle::Entered(_)) {
            tally.failed += 1;
            tally.note("in, though nothing was left");
        }
        tally.count(&cycle);
        if !target.is_running()? {
            tally.crashed += 1;
            return Ok(tally);
        }
        target.send("work 1")?;
        target.expect("work")?;
    }
    tally.count(&session(target.pid(), &install));
    if tally.entered == 0 {
        tally.failed += 1;
        tally.note("refused, though there was room");
    }
    target.send("quit")?;
    let exit = target.target.wait(Duration::from_secs(60))?;
    if !exit.status.success() {
        tally.crashed += 1;
        tally.note(crate::cell::short(&exit.to_string()));
    }
    Ok(tally)
}

fn product(own: &Own) -> Result<Tally> {
    let mut tally = Tally::default();
    let install = match installed() {
        Ok(install) => install,
        Err(error) => return Ok(Tally::left_out(error.to_string())),
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
            before = [("target", Size::of(pid)?), ("attacher", Size::of(mine)?)].into();
        }
        tally.count(&session(pid, &install));
        if tally.hung + tally.failed > 10 || !target.is_running()? {
            break;
        }
    }
    let after = [("target", Size::of(pid)?), ("attacher", Size::of(mine)?)];
    for (who, after) in after {
        let Some(before) = before.get(who) else {
            continue;
        };
        tally.note(format!("{who}: {before:?}, then {after:?}"));
        if !before.is_same(&after) {
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

/// Runs one session, which records everything that the demo does. The records are dropped.
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
    let Ok(id) = Pid::try_from(pid) else {
        return Cycle::Failed(format!("{pid} is no process"));
    };
    let request = Request::new(id, settings);
    let session = match Session::attach_with(&request, install, &Options::default()) {
        Ok(session) => session,
        Err(failure) if failure.kind == Kind::NoHeadroom => {
            return Cycle::Refused("NoHeadroom".to_owned(), failure.to_string());
        }
        Err(failure) => return Cycle::Failed(failure.to_string()),
    };
    let attach = began.elapsed();
    let entry = session.entry();
    let entry = Entry {
        attach,
        stopped: Some(entry.seize + entry.stub + entry.release),
        tier: entry
            .via
            .split([' ', ':', ','])
            .take(2)
            .collect::<Vec<_>>()
            .join(" "),
        ..Entry::default()
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
    if began.elapsed() > slower(LIMIT) {
        return Cycle::Hung(format!("{attach:?} in, {out:?} out"));
    }
    Cycle::Entered(Entry { out, ..entry })
}
