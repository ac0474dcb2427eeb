//! Runtimes like ROCm 10 on gfx1250: the table of AMD's extensions is longer, queues are made by
//! descriptor, and dispatches are vendor packets. The tests run on the stand-in runtimes, and the
//! tests of the packets also on AMD's own runtime.

use crate::profiler::compare::same;
use crate::profiler::{Counter, Profiler, Trace, since};
use midair_tests::Result;
use midair_tests::lab::{Lab, LabTarget};
use midair_tests::modellog::{Event, ModelLog};
use midair_tests::stand_in::Kit;
use midair_tests::target::PATIENCE;
use std::collections::BTreeSet;

const VADD: &str = "vadd(float const*, float const*, float*, int)";
/// The options of these tests.
const KERNELS: [&str; 2] = ["--kernel-trace", "--hsa-trace"];
/// The sizes of the table, each with the name that selects a runtime with it.
const TABLES: [(u64, Option<&str>); 3] = [(624, None), (760, Some("rocm10")), (776, Some("later"))];

/// Starts the program on a model whose queues take up profiling that is enabled late. `unkind.rs`
/// tests what happens otherwise.
fn start(kit: &Kit, tables: Option<&str>, more: &[(&str, &str)]) -> Result<LabTarget> {
    let tables = tables.map(|tables| ("SIM_HSA_TABLES", tables));
    let mut variables = vec![("MODEL_KERNEL_NS", "20000"), ("MODEL_LATCH", "0")];
    variables.extend(tables);
    variables.extend_from_slice(more);
    let mut target = kit.start("newer_hsa", "model.log", &variables)?;
    target.expect("ready")?;
    Ok(target)
}

fn ask(target: &mut LabTarget, command: &str) -> Result<String> {
    target.send(command)?;
    target.expect(command.split(' ').next().unwrap_or_default())
}

fn quit(mut target: LabTarget) -> Result<()> {
    target.send("quit")?;
    let log = target.log.clone();
    let exit = target.target.wait(PATIENCE)?.success()?;
    assert_eq!(exit.stdout.last().map(String::as_str), Some("done"));
    ModelLog::read(&log)?.check()
}

/// Checks as [`Trace::whole`] does, but expects exactly these notes.
fn whole_but(trace: &mut Trace, notes: &[&str]) -> Result<()> {
    let there = std::mem::take(&mut trace.midair["notes"]);
    trace.midair["notes"] = serde_json::json!([]);
    let found: Vec<&str> = there
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|note| note.as_str())
        .collect();
    assert_eq!(found.len(), notes.len(), "{found:?}");
    for note in notes {
        assert!(found.iter().any(|found| found.contains(note)), "{found:?}");
    }
    trace.whole()
}

/// Records queues from before the attach and from after it, with both kinds of dispatches.
fn window(size: u64, tables: Option<&str>, more: &[(&str, &str)]) -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, tables, more)?;
    let ext = ask(&mut target, "ext")?;
    assert!(ext.starts_with(&format!("ext {size} ")), "{ext}");
    ask(&mut target, "go 2")?;
    let before = target.model_log()?;
    let profiler = Profiler::attach(target.pid(), &kit.scratch().join("window"), &KERNELS)?;
    ask(&mut target, "go 3")?;
    ask(&mut target, "make")?;
    ask(&mut target, "go 5")?;
    assert_eq!(
        ask(&mut target, "ext")?,
        ext,
        "entries that nobody knows were touched"
    );
    let log = since(&target.model_log()?, &before);
    let mut trace = profiler.detach()?;
    assert_eq!(
        ask(&mut target, "ext")?,
        ext,
        "entries that nobody knows were touched"
    );
    // Each round has four vendor dispatches: three rounds ran with one queue, five with two.
    let vendor = log.dispatches().filter(|ran| ran.format == 3).count();
    assert_eq!((vendor, log.dispatches().count()), (26, 52));
    let by_descriptor = tables.is_some();
    if by_descriptor {
        whole_but(&mut trace, &["2 copy engine queues"])?;
    } else {
        trace.whole()?;
    }
    same(&trace, &log)?;
    let grids: BTreeSet<[u64; 3]> = trace
        .kernels
        .iter()
        .map(|kernel| kernel.work.grid)
        .collect();
    assert_eq!(grids, BTreeSet::from([[1024, 1, 1], [384, 1, 1]]));
    let queues: BTreeSet<u64> = trace.kernels.iter().map(|kernel| kernel.queue).collect();
    assert_eq!(queues.len(), 2);
    let made = trace
        .hsa
        .values()
        .filter(|call| call.name == "hsa_amd_queue_create");
    assert_eq!(made.count(), usize::from(by_descriptor));
    quit(target)
}

#[test]
fn tables_as_long_as_ours_shorter_and_longer() -> Result<()> {
    for (size, tables) in TABLES {
        window(size, tables, &[])?;
    }
    Ok(())
}

/// The packet processor takes some packets before a completion signal could be put in. Those are
/// untimed, and none is missing.
#[test]
fn vendor_packets_that_are_taken_early() -> Result<()> {
    let kit = Kit::new()?;
    let eager = [("MODEL_EAGER", "1"), ("MODEL_SEED", "11")];
    let mut target = start(&kit, Some("rocm10"), &eager)?;
    let before = target.model_log()?;
    let profiler = Profiler::attach(target.pid(), &kit.scratch().join("eager"), &KERNELS)?;
    ask(&mut target, "go 40")?;
    let log = since(&target.model_log()?, &before);
    let trace = profiler.detach()?;
    assert_eq!(trace.kernels.len(), log.dispatches().count());
    let of = |ext: bool| {
        trace
            .kernels
            .iter()
            .filter(|kernel| (kernel.work.grid[0] == 384) == ext)
            .count()
    };
    assert_eq!((of(true), of(false)), (80, 80));
    let logged: BTreeSet<u64> = log.dispatches().map(|ran| ran.packet.end).collect();
    let timed = trace
        .kernels
        .iter()
        .map(|kernel| kernel.work.end)
        .filter(|end| *end != 0);
    let timed: BTreeSet<u64> = timed.collect();
    assert!(timed.is_subset(&logged), "{timed:?}");
    quit(target)
}

#[test]
fn vendor_packets_of_an_unknown_format_are_counted_and_told() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, None, &[])?;
    let before = target.model_log()?;
    let profiler = Profiler::attach(target.pid(), &kit.scratch().join("odd"), &KERNELS)?;
    ask(&mut target, "go 1")?;
    ask(&mut target, "odd 5")?;
    let log = since(&target.model_log()?, &before);
    let mut trace = profiler.detach()?;
    let odd = log
        .records
        .iter()
        .filter(|record| matches!(record.event, Event::Vendor { format: 77, .. }));
    assert_eq!(odd.count(), 5);
    whole_but(
        &mut trace,
        &[
            "unknown vendor packets, 5 of format 77: kernels that they launched are not in the trace",
        ],
    )?;
    same(&trace, &log)?;
    let notes = std::fs::read_to_string(trace.dir.join("t_notes.txt"))?;
    assert!(notes.contains("5 of format 77"), "{notes}");
    quit(target)
}

/// On AMD's own runtime, with a code object that names its kernel. The queues are older than the
/// attach.
#[test]
fn vendor_packets_on_amds_runtime() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (program, kernels) = (lab.program("vendor_hsa")?, lab.kernels()?);
    let target = lab.run(&program).arg(&kernels).register(false);
    let mut target = target
        .env("MODEL_KERNEL_NS", 1_000)
        .env("MODEL_LATCH", 0)
        .env("HSA_ENABLE_INTERRUPT", 0)
        .spawn()?;
    target.expect("ready")?;
    ask(&mut target, "go 2")?;
    let mut counter = Counter::of(&target);
    counter.wait_until(16)?;
    let before = target.model_log()?;
    let profiler = Profiler::attach(target.pid(), &lab.scratch().join("vendor"), &KERNELS)?;
    ask(&mut target, "go 50")?;
    counter.wait_until(16 + 400)?;
    let log = since(&target.model_log()?, &before);
    let trace = profiler.detach()?;
    trace.whole()?;
    same(&trace, &log)?;
    let vendor = log.dispatches().filter(|ran| ran.format == 3).count();
    assert_eq!((vendor, log.dispatches().count()), (300, 400));
    let of = |grid: u64| {
        trace
            .kernels
            .iter()
            .filter(|kernel| kernel.work.grid[0] == grid)
            .count()
    };
    assert_eq!((of(1280), of(1000)), (300, 100));
    assert!(trace.kernels.iter().all(|kernel| kernel.name == VADD));
    quit(target)
}
