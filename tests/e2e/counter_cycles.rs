//! Attach cycles with counters on and off, in one process on AMD's runtimes: every dispatch is in the
//! records, values are right, and the process has grown no more than one that did the same rounds and
//! was never attached to: HIP and the modelled GPU come to new pages of their memory for a while.
//!
//! 20 cycles here (10 with thread traces); `MIDAIR_CYCLES=500` makes them so many, and the figures go to standard error.

use crate::counters::{attach, files, program};
use midair_tests::Result;
use midair_tests::lab::{Lab, LabTarget};
use midair_tests::modellog::ModelLog;
use midair_tests::table::Csv;
use midair_tests::target::PATIENCE;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Threads of the program, and rounds of each in a cycle: a round is two kernels.
const THREADS: u32 = 2;
const ROUNDS: usize = 20;
/// Cycles until everything that is made once is there: two of each kind.
const FIRST: usize = 4;
/// kB by which it may have grown more since, in all: heaps come and go in pieces, and our own rings (what
/// is known of reservations, 640 kB a queue) are come to page by page.
const GROWN: u64 = 4096;

/// How large a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    descriptors: usize,
    threads: usize,
    mappings: usize,
    /// Address space and resident memory, in kB.
    mapped: u64,
    resident: u64,
}

impl Size {
    fn of(pid: i32) -> Result<Size> {
        let count = |what: &str| -> Result<usize> {
            Ok(std::fs::read_dir(format!("/proc/{pid}/{what}"))?.count())
        };
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let number = |name: &str| -> Result<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let line = line.ok_or_else(|| format!("no {name}"))?;
            Ok(line.trim().trim_end_matches(" kB").parse()?)
        };
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
        Ok(Size {
            descriptors: count("fd")?,
            threads: count("task")?,
            mappings: maps.lines().count(),
            mapped: number("VmSize:")?,
            resident: number("VmRSS:")?,
        })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} descriptors, {} threads, {} mappings, {} kB mapped, {} kB resident",
            self.descriptors, self.threads, self.mappings, self.mapped, self.resident
        )
    }
}

/// What a cycle has brought.
#[derive(Debug, Default, Clone, Copy)]
struct Cycle {
    /// Dispatches of the program's kernels in the trace.
    dispatches: usize,
    /// Those with values.
    counted: usize,
    /// Files of thread traces.
    traces: usize,
}

fn read(out: &Path) -> Result<Cycle> {
    let mut cycle = Cycle::default();
    for file in files(out) {
        let name = file.to_string_lossy();
        if name.ends_with("kernel_trace.csv") {
            let rows = Csv::read(&file)?.rows;
            let own = |name: &str| name.contains("vadd") || name.contains("scale");
            cycle.dispatches += rows.iter().filter(|row| own(&row["Kernel_Name"])).count();
        } else if name.ends_with(".att") {
            cycle.traces += 1;
        } else if name.ends_with("counter_collection.csv") {
            for row in Csv::read(&file)?.rows {
                let number = |column: &str| Csv::number(&row, column);
                let (grid, workgroup) = (number("Grid_Size")?, number("Workgroup_Size")?);
                let waves = grid / workgroup * workgroup.div_ceil(64);
                let value: f64 = row["Counter_Value"].parse()?;
                assert_eq!(
                    (&row["Counter_Name"][..], value),
                    ("SQ_WAVES", waves as f64)
                );
                cycle.counted += 1;
            }
        }
    }
    Ok(cycle)
}

/// Words that ask for counters.
const COUNTERS: [&str; 4] = ["--max-overhead", "100", "--pmc", "SQ_WAVES"];
/// Words that ask for thread traces of many dispatches.
const TRACES: [&str; 7] = [
    "--att",
    "--kernel-iteration-range",
    "[1-1000]",
    "--att-target-cu",
    "0",
    "--att-buffer-size",
    "0x100000",
];

/// Attaches, has the program do its rounds, and detaches.
fn cycle(lab: &Lab, target: &mut LabTarget, further: &[&str]) -> Result<Cycle> {
    let out = tempfile::tempdir_in(lab.scratch())?;
    let mut words = vec!["--kernel-trace", "--output-format", "csv"];
    words.extend(further);
    let mut attacher = attach(lab, target, out.path(), &words)?.spawn()?;
    attacher.expect_error("attached to process")?;
    rounds(target)?;
    attacher.send("")?;
    // An exit code other than 0 says that something was lost.
    attacher.target.wait(PATIENCE)?.success()?;
    read(out.path())
}

fn rounds(target: &mut LabTarget) -> Result<()> {
    target.send(&format!("rounds {ROUNDS}"))?;
    target.expect("rounds")?;
    Ok(())
}

#[test]
fn a_process_is_the_same_after_many_cycles_with_counters_and_without() -> Result<()> {
    cycles_with(&COUNTERS, 20)
}

#[test]
fn a_process_is_the_same_after_many_cycles_with_traces_and_without() -> Result<()> {
    cycles_with(&TRACES, 10)
}

/// Runs this many cycles, every second of them with these words.
fn cycles_with(words: &[&str], usual: usize) -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let cycles: usize = match std::env::var("MIDAIR_CYCLES") {
        Ok(count) => count.parse()?,
        Err(_) => usual,
    };
    let mut target = program(&lab, THREADS)?.spawn()?;
    target.expect("ready")?;
    rounds(&mut target)?;
    let pid = target.target.pid();
    let mut never = program(&lab, THREADS)?.log_name("never.log").spawn()?;
    never.expect("ready")?;
    rounds(&mut never)?;
    let mut at_first = None;
    let each = THREADS as usize * ROUNDS * 2;
    let (mut first, mut counted, mut traces) = (None, 0, 0);
    let (begin, mut slowest) = (Instant::now(), Duration::ZERO);
    for number in 0..cycles {
        let since = Instant::now();
        let counts = number % 2 == 0;
        let further = if counts { words } else { &[] };
        let brought = cycle(&lab, &mut target, further)?;
        slowest = slowest.max(since.elapsed());
        assert_eq!(brought.dispatches, each, "dispatches of cycle {number}");
        assert!(
            counts || brought.counted + brought.traces == 0,
            "cycle {number}: {brought:?}"
        );
        counted += brought.counted;
        traces += brought.traces;
        rounds(&mut never)?;
        if number + 1 == FIRST {
            first = Some(Size::of(pid)?);
            at_first = Some(Size::of(never.target.pid())?);
        }
        if (number + 1) % 50 == 0 {
            let other = Size::of(never.target.pid())?.resident;
            eprintln!(
                "after {}: {}; never attached: {other}",
                number + 1,
                Size::of(pid)?
            );
        }
    }
    let (first, last) = (first.ok_or("too few cycles")?, Size::of(pid)?);
    let (before, after) = (
        at_first.ok_or("too few cycles")?,
        Size::of(never.target.pid())?,
    );
    let grown = after.resident.saturating_sub(before.resident);
    eprintln!(
        "{cycles} cycles in {:?}, the slowest {slowest:?}; {} dispatches, {counted} with values, {traces} traces\nafter {FIRST}: {first}\nat the end: {last}\nnever attached, resident: {} and {}",
        begin.elapsed(),
        cycles * each,
        before.resident,
        after.resident
    );
    // Some of them ran alongside others, and have none.
    match words == COUNTERS {
        true => assert!(counted > cycles * each / 20, "{counted} with values"),
        false => assert!(traces >= cycles / 2, "{traces} traces"),
    }
    assert_eq!(
        (last.descriptors, last.threads),
        (first.descriptors, first.threads),
        "{first}\n{last}"
    );
    assert!(last.mappings <= first.mappings + 4, "{first}\n{last}");
    assert!(last.mapped <= first.mapped + GROWN, "{first}\n{last}");
    let most = first.resident + grown + GROWN;
    assert!(
        last.resident <= most,
        "{first}\n{last}\nnever attached: {grown} kB more"
    );
    never.send("quit")?;
    never.expect("total")?;
    never.target.wait(PATIENCE)?.success()?;
    target.send("quit")?;
    let total = target.expect("total")?;
    let launches: usize = total.split(' ').nth(1).unwrap_or_default().parse()?;
    let log = target.log.clone();
    target.target.wait(PATIENCE)?.success()?;
    let log = ModelLog::read(&log)?;
    log.check()?;
    assert_eq!(launches, (cycles + 1) * each);
    let own = |n: u32| [64 * (n + 1), 32 * (n + 1) + 65536];
    let grids: Vec<u32> = (0..THREADS).flat_map(own).collect();
    let ran = log.dispatches().filter(|d| grids.contains(&d.grid[0]));
    assert_eq!(ran.count(), launches, "dispatches on the device");
    Ok(())
}
