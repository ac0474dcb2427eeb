//! Hours of a server: turn after turn, with nothing left of each.

use super::http::Server;
use super::{named, sum};
use midair_tests::Result;
use midair_tests::target::{Target, until};

/// What a process has of the machine.
#[derive(Debug, Clone, Copy)]
struct Has {
    files: usize,
    threads: usize,
    /// MiB.
    memory: f64,
}

impl Has {
    fn of(process: &Target) -> Result<Has> {
        let directory = format!("/proc/{}", process.pid());
        let count = |of: &str| -> Result<usize> {
            Ok(std::fs::read_dir(format!("{directory}/{of}"))?.count())
        };
        let status = std::fs::read_to_string(format!("{directory}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        Ok(Has {
            files: count("fd")?,
            threads: count("task")?,
            memory: kib.ok_or("no size")?.trim().parse::<f64>()? / 1024.0,
        })
    }
}

/// Each turn attaches and detaches. With a pace of 100, 20 of them are the turns of several minutes of a server with many processes;
/// `MIDAIR_CYCLES=8640` makes a day's.
#[test]
fn turns_leave_nothing_behind() -> Result<()> {
    let turns = std::env::var("MIDAIR_CYCLES").ok();
    let turns: f64 = turns.map_or(Ok(20.0), |turns| turns.parse())?;
    let dir = tempfile::tempdir()?;
    let names = ["served-for-hours-a", "served-for-hours-b"];
    let started = names.map(|name| named(&dir.path().join(name), &dir.path().join("log")));
    let targets = started.into_iter().collect::<Result<Vec<_>>>()?;
    let words = ["--always", "20%", "--only-name", "served-for-hours"];
    let server = Server::start_with(&words, &[("MIDAIR_SERVE_PACE", "100")])?;
    let turned = || -> Result<f64> {
        let page = String::from_utf8(server.get("/metrics")?.bytes(200)?)?;
        Ok(sum(&page, "midair_attaches_total"))
    };
    let all = || -> Result<Vec<Has>> {
        let processes = [&server.process].into_iter().chain(&targets);
        processes.map(Has::of).collect()
    };
    // Memory goes up and down within turns: the least of several is what stays.
    let least = || -> Result<Vec<Has>> {
        let mut least = all()?;
        let from = turned()?;
        until("turns", || {
            for (least, now) in least.iter_mut().zip(all()?) {
                least.memory = least.memory.min(now.memory);
            }
            Ok(turned()? >= from + 6.0)
        })?;
        Ok(least)
    };
    // The first turns load libraries, and make what stays. It takes two hundred until the heap has its shape: 44 MiB then, and after 1,300.
    let first = if turns > 20.0 { 200.0 } else { 4.0 };
    let mut reached = 0.0;
    while reached < first {
        let from = reached;
        until("the first turns", || {
            reached = turned()?;
            Ok(reached >= first || reached >= from + 20.0)
        })?;
    }
    let before = least()?;
    let from = turned()?;
    let mut reached = 0.0;
    while reached < turns {
        until("more turns", || {
            let now = turned()? - from;
            Ok(now >= turns || now >= reached + 20.0)
        })?;
        reached = turned()? - from;
        if turns > 20.0 && reached % 500.0 < 20.0 {
            println!("{reached}: {:?}", all()?);
        }
    }
    // A turn that is under way has files and threads of its own.
    let mut after = least()?;
    let memory = after.clone();
    until("as few files and threads as before", || {
        after = all()?;
        let pairs = || before.iter().zip(&after);
        let fewer = |(one, other): (&Has, &Has)| {
            other.files <= one.files + 2 && other.threads <= one.threads + 2
        };
        Ok(pairs().all(fewer))
    })
    .map_err(|error| format!("{error}: {before:?}, {after:?}"))?;
    for (before, after) in before.iter().zip(&memory) {
        let grown = after.memory - before.memory;
        assert!(grown < 12.0, "{before:?}, {after:?}");
    }
    server.end()
}
