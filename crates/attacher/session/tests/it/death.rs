//! The attacher of a session dies by SIGKILL after each of its steps. The target must run on, the
//! profiling must end by itself when the lease is over, tables and threads must be as before, and
//! the next attach must work.

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::common::{Worker, drive, numbers, steps};
use midair_tests::snapshot::{Snapshot, What};
use midair_tests::stand_in::Kit;
use midair_tests::target::{Exit, PATIENCE, run, until};

/// The lease in ms. An attacher that gets no processor is silent, too.
const LEASE: &str = "1500";

/// The longest time until threads, masks, handlers and descriptors are as before.
const LIMIT: Duration = Duration::from_secs(25);

fn attach(kit: &Kit, pid: i32, name: &str, extra: &[&str]) -> Exit {
    let out = kit.scratch().join(name);
    let (pid, out) = (pid.to_string(), out.to_str().unwrap().to_owned());
    let args = [&[&pid, &out, "--lease-ms", LEASE][..], extra].concat();
    run(drive(&args), PATIENCE).unwrap()
}

/// The worker thread parks shortly after the attacher was notified that the session is over. It then
/// waits 5 s for an offer, which an attacher without a processor may miss.
fn comes_too_early(said: &str) -> bool {
    said.contains("failed: Busy") || said.contains("accepted no session")
}

/// [`attach`], repeated while the process is busy.
fn attach_in_turn(kit: &Kit, pid: i32, name: &str, extra: &[&str]) -> Exit {
    let limit = Instant::now() + PATIENCE;
    loop {
        let exit = attach(kit, pid, name, extra);
        if !comes_too_early(&exit.stdout.join("\n")) || Instant::now() > limit {
            return exit;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Checks that nothing is recorded, and that everything is as before except the parked worker
/// thread and what it needs.
fn is_over(worker: &Worker, before: &Snapshot, tables: &impl PartialEq<Tables>, when: &str) {
    let pid = worker.pid();
    until("the end of the profiling", || {
        Ok(*tables == worker.tables()?)
    })
    .unwrap_or_else(|error| panic!("{when}: {error}"));
    let left = || {
        let now = Snapshot::take(pid).unwrap();
        before.diff(&now).without(|change| {
            change.what == What::Map
                || (change.what == What::Thread && change.name == "midair-worker")
        })
    };
    let limit = Instant::now() + LIMIT;
    while !left().is_empty() {
        assert!(Instant::now() < limit, "{when}: this stays\n{}", left());
        // Looking costs milliseconds, and five threads look while leases of 1.5 s end.
        std::thread::sleep(Duration::from_millis(50));
    }
}

type Tables = std::collections::BTreeMap<String, Vec<u8>>;

/// Checks that the next attacher enters immediately, or once the other one's lease is over.
fn next_works(kit: &Kit, worker: &Worker, name: &str, when: &str) {
    let limit = Instant::now() + PATIENCE;
    loop {
        let exit = attach(kit, worker.pid(), name, &[]);
        let said = exit.stdout.join("\n");
        if exit.status.success() {
            assert!(said.contains("wrote "), "{when}: {exit}");
            return;
        }
        assert!(comes_too_early(&said), "{when}: {exit}");
        assert!(Instant::now() < limit, "{when}: busy for ever");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn has_died(exit: &Exit) -> Option<String> {
    let dead = exit.signal() == Some(libc::SIGKILL);
    dead.then(|| exit.stderr.last().cloned().unwrap_or_default())
}

/// Checks that no file looks finished without being so. The attacher had not written any.
fn no_half_files(kit: &Kit, name: &str, when: &str) {
    let Ok(entries) = std::fs::read_dir(kit.scratch().join(name)) else {
        return;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        let extension = path.extension().and_then(|word| word.to_str());
        if extension == Some("json") {
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.trim_end().ends_with('}'), "{when}: {path:?}");
        }
    }
}

/// Whether the processor is emulated (`cargo vm`), so that an attach takes seconds.
fn is_emulated() -> bool {
    midair_tests::kernel::times_slower() > 1
}

/// Returns the steps to die after: all, or every third on an emulated processor.
fn chosen(steps: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let every = if is_emulated() { 3 } else { 1 };
    steps.into_iter().step_by(every).collect()
}

/// Runs the steps on a few threads, because most of the time is spent waiting for leases to end.
/// Each has a program that works without end, so an emulated processor has room for two.
fn in_parallel(numbers: &[u64], work: impl Fn(usize, &[u64]) + Sync) {
    let count = if is_emulated() { 2 } else { 5 };
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for thread in 0..count {
            let own: Vec<u64> = numbers
                .iter()
                .copied()
                .skip(thread)
                .step_by(count)
                .collect();
            let work = &work;
            threads.push(scope.spawn(move || work(thread, &own)));
        }
        let failed = threads.into_iter().filter_map(|thread| thread.join().err());
        let failed: Vec<_> = failed.collect();
        assert!(
            failed.is_empty(),
            "{} threads failed, see above",
            failed.len()
        );
    });
}

#[test]
fn of_a_first_attach() {
    let kit = Kit::new().unwrap();
    let first = Worker::start(&kit, "first.log", None);
    let unharmed = attach(&kit, first.pid(), "unharmed", &[]);
    let names = steps(unharmed.stdout.last().unwrap());
    unharmed.success().unwrap();
    first.quit();
    let longest = Mutex::new(Duration::ZERO);
    let deaths = AtomicUsize::new(0);
    let numbers = chosen(numbers(&names));
    in_parallel(&numbers, |_, own| {
        for number in own {
            let worker = Worker::start(&kit, &format!("model-{number}.log"), None);
            let before = Snapshot::take(worker.pid()).unwrap();
            let tables = worker.tables().unwrap();
            let name = format!("out-{number}");
            let words = ["--die-after", &number.to_string()];
            let exit = attach(&kit, worker.pid(), &name, &words);
            let Some(when) = has_died(&exit) else {
                exit.success().unwrap();
                worker.quit();
                continue;
            };
            deaths.fetch_add(1, Relaxed);
            let died = Instant::now();
            no_half_files(&kit, &name, &when);
            is_over(&worker, &before, &tables, &when);
            let mut longest = longest.lock().unwrap();
            *longest = longest.max(died.elapsed());
            drop(longest);
            next_works(&kit, &worker, &format!("next-{number}"), &when);
            assert!(tables == worker.tables().unwrap(), "{when}");
            worker.quit();
        }
    });
    let deaths = deaths.into_inner();
    eprintln!("first attach: {deaths} deaths at {names:?}, over after {longest:?} at most");
    assert!(deaths + 2 >= numbers.len(), "{deaths} of {numbers:?}");
}

#[test]
fn of_an_attach_that_wakes_our_thread() {
    let kit = Kit::new().unwrap();
    let deaths = AtomicUsize::new(0);
    // The engine makes few steps here, and all are taken. The number leaves a margin for steps that
    // will be added.
    let numbers = chosen(1..=30);
    in_parallel(&numbers, |thread, own| {
        let worker = Worker::start(&kit, &format!("model-{thread}.log"), None);
        let tables = worker.tables().unwrap();
        let first = format!("first-{thread}");
        attach(&kit, worker.pid(), &first, &[]).success().unwrap();
        let before = Snapshot::take(worker.pid()).unwrap();
        for number in own {
            let name = format!("out-{number}");
            let words = ["--die-after", &number.to_string()];
            let exit = attach_in_turn(&kit, worker.pid(), &name, &words);
            let Some(when) = has_died(&exit) else {
                let exit = exit.success().unwrap();
                let steps = steps(exit.stdout.last().unwrap()).len() as u64;
                assert!(steps <= *number, "step {number} of {steps} struck nobody");
                continue;
            };
            deaths.fetch_add(1, Relaxed);
            no_half_files(&kit, &name, &when);
            is_over(&worker, &before, &tables, &when);
            next_works(&kit, &worker, &format!("next-{number}"), &when);
        }
        assert!(tables == worker.tables().unwrap());
        worker.quit();
    });
    let deaths = deaths.into_inner();
    eprintln!("woken: {deaths} deaths");
    let most = numbers.len();
    assert!((most * 18 / 30..most).contains(&deaths), "{deaths}");
}

/// The attacher dies in the middle of writing any file. No file with its final name may be half
/// written.
#[test]
fn while_it_writes() {
    let kit = Kit::new().unwrap();
    let worker = Worker::start(&kit, "model.log", None);
    attach(&kit, worker.pid(), "whole", &[]).success().unwrap();
    let sizes = std::fs::read_dir(kit.scratch().join("whole")).unwrap();
    let largest = sizes
        .map(|file| file.unwrap().metadata().unwrap().len())
        .max();
    let mut bytes = 0;
    let mut deaths = 0;
    while bytes < largest.unwrap() {
        let name = format!("at-{bytes}");
        let exit = attach_in_turn(
            &kit,
            worker.pid(),
            &name,
            &["--largest-file", &bytes.to_string()],
        );
        let when = format!("no file beyond {bytes} bytes");
        if exit.signal() == Some(libc::SIGXFSZ) {
            deaths += 1;
            no_half_files(&kit, &name, &when);
            let finished = std::fs::read_dir(kit.scratch().join(&name)).map_or(0, |files| {
                let finished =
                    |file: &std::fs::DirEntry| !file.file_name().to_string_lossy().starts_with('.');
                files
                    .filter(|file| finished(file.as_ref().unwrap()))
                    .count()
            });
            assert_eq!(finished, 0, "{when}: files are there, and not all of them");
        }
        bytes = if bytes == 0 { 1 } else { bytes * 4 };
    }
    eprintln!("{deaths} deaths while writing, up to {bytes} bytes");
    assert!(deaths >= 4, "only {deaths}");
    worker.quit();
}
