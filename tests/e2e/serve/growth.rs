//! Hours of a server: turn after turn, with nothing left of each.

use super::http::Server;
use super::{named, sum};
use midair_tests::Result;
use midair_tests::target::{Target, until};
use std::path::Path;

/// What a process has of the machine.
#[derive(Debug, Clone, Copy)]
struct Has {
    files: usize,
    threads: usize,
    mappings: usize,
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
            mappings: std::fs::read_to_string(format!("{directory}/maps"))?
                .lines()
                .count(),
            memory: kib.ok_or("no size")?.trim().parse::<f64>()? / 1024.0,
        })
    }
}

/// What of midair's lies in a directory.
fn left_in(directory: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for found in std::fs::read_dir(directory)? {
        let name = found?.file_name().to_string_lossy().into_owned();
        if name.contains("midair") || name.contains("rocp") {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Each turn attaches and detaches. With a pace of 100, 20 of them are the turns of several minutes of a server with many processes;
/// `MIDAIR_CYCLES` makes more. Meanwhile processes come and go, and requests of each kind.
#[test]
fn turns_leave_nothing_behind() -> Result<()> {
    let turns = std::env::var("MIDAIR_CYCLES").ok();
    let turns: f64 = turns.map_or(Ok(20.0), |turns| turns.parse())?;
    let dir = tempfile::tempdir()?;
    let (log, temporary) = (dir.path().join("log"), dir.path().join("tmp"));
    std::fs::create_dir(&temporary)?;
    let names = ["served-for-hours-a", "served-for-hours-b"];
    let started = names.map(|name| named(&dir.path().join(name), &log));
    let targets = started.into_iter().collect::<Result<Vec<_>>>()?;
    let words = ["--always", "20%", "--only-name", "served-for-hours"];
    let tmpdir = temporary.to_str().ok_or("a path is text")?;
    let server = Server::start_with(&words, &[("MIDAIR_SERVE_PACE", "100"), ("TMPDIR", tmpdir)])?;
    let shared = left_in(Path::new("/dev/shm"))?;
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
                least.mappings = least.mappings.min(now.mappings);
            }
            Ok(turned()? >= from + 6.0)
        })?;
        Ok(least)
    };
    let pid = |at: usize| targets[at].pid();
    // A process comes, has a turn, and goes; and each kind of request is answered.
    let others = |count: usize| -> Result<()> {
        let visitor = named(&dir.path().join("served-for-hours-c"), &log)?;
        let of = format!("midair_recorded_seconds_total{{pid=\"{}\"", visitor.pid());
        until("a turn of the visitor", || {
            let page = String::from_utf8(server.get("/metrics")?.bytes(200)?)?;
            Ok(sum(&page, &of) > 0.0)
        })?;
        // It may end in the middle of a turn.
        drop(visitor);
        std::fs::remove_file(dir.path().join("served-for-hours-c"))?;
        for path in [
            format!("/debug/pprof/gpu?pid={}&seconds=0.3", pid(0)),
            format!("/top/{}?stream=1&interval=0.25&seconds=0.3", pid(1)),
            format!("/why/{}?seconds=0.1", pid(0)),
            "/processes".to_owned(),
        ] {
            // A process that a turn has is busy for a moment.
            until(&path, || Ok(server.get(&path)?.status == 200))?;
        }
        // This one goes away in the middle.
        drop(server.open(&format!("/record/{}?seconds=60", pid(count % 2)), &[])?);
        Ok(())
    };
    // The first turns load libraries, and make what stays. It takes five hundred until the heap has its shape: 51 MiB after 700, and after 1,500.
    let first = if turns > 20.0 { 500.0 } else { 4.0 };
    let mut reached = 0.0;
    others(0)?;
    while reached < first {
        let from = reached;
        until("the first turns", || {
            reached = turned()?;
            Ok(reached >= first || reached >= from + 20.0)
        })?;
    }
    let before = least()?;
    let from = turned()?;
    let (mut reached, mut visits) = (0.0, 0);
    while reached < turns {
        visits += 1;
        others(visits)?;
        until("more turns", || {
            let now = turned()? - from;
            Ok(now >= turns || now >= reached + 20.0)
        })?;
        reached = turned()? - from;
        if turns > 20.0 && visits % 25 == 0 {
            println!("{reached} turns, {visits} visitors: {:?}", all()?);
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
    println!("{reached} turns, {visits} visitors: {before:?}, then {memory:?}");
    for (before, after) in before.iter().zip(&memory) {
        let grown = after.memory - before.memory;
        assert!(grown < 12.0, "{before:?}, {after:?}");
        // The C library keeps areas for threads.
        assert!(
            after.mappings <= before.mappings + 16,
            "{before:?}, {after:?}"
        );
    }
    server.end()?;
    let left = left_in(&temporary)?;
    assert!(left.is_empty(), "{left:?}");
    // Other tests may have memory there meanwhile.
    until("as much shared memory as before", || {
        Ok(left_in(Path::new("/dev/shm"))?.len() <= shared.len())
    })
}
