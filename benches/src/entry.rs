//! How long the borrowed thread of the application is stopped, in three parts. Each entry starts a
//! worker thread that ends again and removes everything, so one process can be entered many times.

use crate::report::Table;
use midair_inject::{Library, Options, Times, enter, inspect};
use midair_session::Pid;
use midair_tests::Result;
use midair_tests::caller::Caller;
use midair_tests::compile::host_program;
use midair_tests::lab::Lab;
use midair_tests::target::Target;
use std::process::Command;
use std::time::{Duration, Instant};

/// Entries into each process.
const ENTRIES: usize = 150;
/// How long one look for gaps in the clock lasts, and the pause after it.
const LOOKS: Duration = Duration::from_micros(400);
const APART: Duration = Duration::from_millis(10);

/// One entry: its parts, the time until the worker thread answered, and the time until everything
/// was removed again.
type Entry = (Times, Duration, Duration);

fn entries(pid: i32) -> Result<Vec<Entry>> {
    let options = Options::default();
    let mut all = Vec::new();
    for _ in 0..ENTRIES {
        let began = Instant::now();
        let look = inspect(Pid::try_from(pid)?).map_err(|refusal| refusal.to_string())?;
        let entered = enter(&look, &Library::Nothing, &options)?;
        let (times, attach) = (entered.times, began.elapsed());
        entered.withdraw(&options)?;
        all.push((times, attach, began.elapsed()));
    }
    Ok(all)
}

fn report(table: &mut Table, who: &str, all: &[Entry]) {
    let mut row = |what: &str, of: fn(&Times) -> Duration, budget: &str| {
        let times: Vec<Duration> = all.iter().map(|(times, ..)| of(times)).collect();
        table.times(&format!("{who}: {what}"), &times, budget);
    };
    row("thread stopped", Times::stopped, "< 0.2 ms p50, < 1 ms p99");
    row("  seize", |times| times.seize, "");
    row("  stub", |times| times.stub, "");
    row("  release", |times| times.release, "");
    row("looking for a thread", |times| times.find, "");
    let attach: Vec<Duration> = all.iter().map(|(_, attach, _)| *attach).collect();
    table.times(&format!("{who}: attach"), &attach, "< 50 ms p99");
    let whole: Vec<Duration> = all.iter().map(|(.., whole)| *whole).collect();
    table.times(&format!("{who}: in and out again"), &whole, "");
}

/// Measures what the machine itself takes from a thread. A thread only looks at the clock, for
/// about as long as an application's thread is stopped in an entry. Returns the longest time
/// between two looks, for each time.
fn gaps() -> Vec<Duration> {
    let gap = |_| {
        let began = Instant::now();
        let (mut last, mut longest) = (began, Duration::ZERO);
        while last.duration_since(began) < LOOKS {
            let now = Instant::now();
            longest = longest.max(now.duration_since(last));
            last = now;
        }
        // The pause is as long as the one between entries.
        std::thread::sleep(APART);
        longest
    };
    (0..ENTRIES).map(gap).collect()
}

/// Measures on threads that keep the allocator busy, and on AMD's HIP.
pub fn run(table: &mut Table) -> Result<()> {
    table.times("no program: gap of a clock's reader", &gaps(), "");
    for (who, busy) in [
        ("sleeping program", "0"),
        ("1 busy thread", "1"),
        ("2 busy threads", "2"),
    ] {
        let mut command = Command::new(host_program("plain_threads")?);
        command.args([busy, "4"]);
        let mut target = Target::spawn(command)?;
        target.expect("ready")?;
        report(table, who, &entries(target.pid())?);
    }
    if let Some(lab) = Lab::find()? {
        let caller = Caller::start(Caller::command(&lab)?)?;
        report(table, "HIP program", &entries(caller.pid())?);
        caller.quit()?;
    }
    Ok(())
}
