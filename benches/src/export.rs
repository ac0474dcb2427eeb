//! The cost of the writers of results, in rows per second of processor time: each format by itself,
//! and several at once.
//!
//! The records are made here, and nothing is attached to. There are three recordings. One has calls
//! alone, as a program makes them that asks and sets much and launches little: for these the goals
//! were set. Of ten records of another one, seven are HIP calls, two are kernels with long names,
//! and one is a copy: its rows are more than twice as long. The third one has kernels that were launched at
//! 5,000 different stacks of 20 frames: its bytes a row say how large such recordings become. The processor time covers the whole
//! process, the kernel's included, so other work on the machine matters only as far as it takes
//! caches away.

use crate::report::Table;
use midair_output::{Format, Names, Plan, Process, RecordFile, RecordWriter, Trace, write};
use midair_record::event::{
    self, Api, Code, Copy, Header, Kernel, KernelSymbol, LaunchStack, Stack, kind,
};
use midair_tests::Result;
use nix::time::{ClockId, clock_gettime};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The number of records, unless `MIDAIR_EXPORT_RECORDS` gives another one.
const RECORDS: u64 = 1_000_000;
/// Runs of each set, unless `MIDAIR_EXPORT_RUNS` gives another number. The best one counts, because
/// disturbances can only take time away.
const RUNS: u64 = 3;
/// The number of kernels, each with a name of its own.
const KERNELS: u64 = 60;
/// The id of HIP's launch.
const LAUNCH: u32 = 290;

/// For each set: its name, its formats, and how many million rows per second of processor time are
/// wanted of calls.
const SETS: [(&str, &[Format], &str); 7] = [
    ("csv", &[Format::Csv], "8"),
    ("json", &[Format::Json], "4"),
    ("pftrace", &[Format::Pftrace], "3"),
    ("kineto", &[Format::Kineto], "3"),
    ("parquet", &[Format::Parquet], "4"),
    ("rocpd", &[Format::Rocpd], "1"),
    (
        "csv json pftrace rocpd",
        &[Format::Csv, Format::Json, Format::Pftrace, Format::Rocpd],
        "0.7",
    ),
];

/// A recording: its name, and what makes it of a number of records.
type Recording = (&'static str, fn(u64) -> Result<RecordFile>);

const RECORDINGS: [Recording; 3] = [("calls", calls), ("kernels", made), ("stacks", at_stacks)];
/// The sets that are written of kernels with stacks.
const OF_STACKS: [(&str, &[Format], &str); 4] = [
    ("rocpd", &[Format::Rocpd], ""),
    ("folded", &[Format::Folded], ""),
    ("pprof", &[Format::Pprof], ""),
    ("html", &[Format::Html], ""),
];
/// Different stacks, the frames of each, and the functions that these are of.
const STACKS: u32 = 5_000;
const FRAMES: u32 = 20;
const FUNCTIONS: u32 = 400;

/// What the environment chooses.
struct Choice {
    records: u64,
    runs: u64,
    /// The start of a recording and of a set, as they are shown.
    only: String,
    /// Where the files stay, so that the files of two versions can be compared.
    keep: Option<PathBuf>,
}

impl Choice {
    fn of_environment() -> Choice {
        let text = |name: &str| std::env::var(format!("MIDAIR_EXPORT_{name}")).ok();
        let number = |name: &str, usual: u64| {
            let given = text(name).and_then(|text| text.parse().ok());
            given.unwrap_or(usual)
        };
        Choice {
            records: number("RECORDS", RECORDS),
            runs: number("RUNS", RUNS),
            only: text("ONLY").unwrap_or_default(),
            keep: text("KEEP").map(PathBuf::from),
        }
    }
}

/// Measures all sets of both recordings.
pub fn run(table: &mut Table) -> Result<()> {
    let choice = Choice::of_environment();
    for (recording, make) in RECORDINGS {
        let sets = sets(recording, &choice.only);
        if sets.is_empty() {
            continue;
        }
        let trace = session(make(choice.records)?);
        for set in sets {
            measure(table, &trace, &set, &choice)?;
        }
    }
    Ok(())
}

/// A set of formats, and the number of threads that write them.
struct Set {
    what: String,
    formats: &'static [Format],
    goal: &'static str,
    threads: usize,
}

/// Returns the chosen sets of a recording.
fn sets(recording: &str, only: &str) -> Vec<Set> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut sets = Vec::new();
    let all: &[(&str, &[Format], &str)] = match recording {
        "stacks" => &OF_STACKS,
        _ => &SETS,
    };
    for &(name, formats, goal) in all {
        let what = format!("{recording}, {name}");
        let several = formats.len() > 1 && processors > 1;
        sets.push(Set {
            what: what.clone(),
            formats,
            goal,
            threads: 1,
        });
        if several {
            sets.push(Set {
                what: format!("{what}, {processors} threads"),
                formats,
                goal,
                threads: processors,
            });
        }
    }
    sets.retain(|set| set.what.starts_with(only));
    sets
}

/// Writes a set several times.
fn measure(table: &mut Table, trace: &Trace, set: &Set, choice: &Choice) -> Result<()> {
    let names = Names::amd();
    let mut rows = Vec::new();
    let mut shortest = Duration::MAX;
    let mut bytes = 0;
    for _ in 0..choice.runs {
        let directory = match &choice.keep {
            Some(keep) => keep.join(set.what.replace([',', ' '], "-")),
            None => std::env::temp_dir().join(format!("midair-export-{}", std::process::id())),
        };
        let plan = Plan {
            directory: directory.clone(),
            prefix: "r".to_owned(),
            formats: set.formats.to_vec(),
            threads: set.threads,
            ..Plan::default()
        };
        let (cpu, wall) = (processor_time()?, Instant::now());
        let files = write(trace, &names, &plan)?;
        let took = processor_time()?.saturating_sub(cpu);
        shortest = shortest.min(wall.elapsed());
        rows.push(choice.records as f64 / took.as_secs_f64() / 1e6);
        bytes = files
            .iter()
            .filter_map(|file| file.metadata().ok())
            .map(|meta| meta.len())
            .sum();
        if choice.keep.is_none() {
            std::fs::remove_dir_all(&directory)?;
        }
    }
    let best = rows.iter().copied().fold(0.0, f64::max);
    let what = &set.what;
    table.plain(
        &format!("{what}: million rows per CPU second"),
        &rows,
        set.goal,
    );
    println!(
        "{what}: best {best:.2} million rows per CPU second, {:.2} s at least by the clock ({:.2} million rows), {:.0} bytes a row",
        shortest.as_secs_f64(),
        choice.records as f64 / shortest.as_secs_f64() / 1e6,
        bytes as f64 / choice.records as f64,
    );
    Ok(())
}

/// Returns a session with these records.
pub fn session(records: RecordFile) -> Trace {
    Trace {
        known: Default::default(),
        process: Process {
            pid: 4242,
            command: vec!["train".to_owned()],
            ..Process::default()
        },
        agents: Vec::new(),
        records,
        lost: Vec::new(),
        notes: Vec::new(),
        outcome: Default::default(),
        counters: Default::default(),
        gpu: None,
        attach: Default::default(),
    }
}

/// Returns the processor time of this process.
fn processor_time() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?.into())
}

fn header(kind: u8, operation: u32) -> Header {
    Header {
        kind,
        operation,
        ..Header::default()
    }
}

/// Starts a session with the kernels.
fn begin() -> Result<RecordWriter> {
    let mut writer = RecordWriter::create_in(&std::env::temp_dir())?;
    for id in 1..=KERNELS {
        let name = format!(
            "_ZN2at6native27unrolled_elementwise_kernelINS0_13BinaryFunctorIfffNS0_15binary_internal10MulFunctorIfEEEESt5arrayIPcLm{id}EELi4E23TrivialOffsetCalculatorILi2EjES9_ILi1EjENS0_6memory15LoadWithoutCastENSC_16StoreWithoutCastEEEviT_T0_T2_T3_T4_T5_"
        );
        let symbol = KernelSymbol {
            header: header(kind::KERNEL_SYMBOL, 0),
            kernel_id: id,
            name_len: name.len() as u32,
            ..KernelSymbol::default()
        };
        writer.append(&event::encode(&symbol, name.as_bytes()))?;
    }
    Ok(writer)
}

/// Returns the arguments of a launch.
fn words() -> Vec<u8> {
    (0..12_u64)
        .flat_map(|word| (0x7f12_3456_7000 + word * 8).to_le_bytes())
        .collect()
}

/// Returns a dispatch by its number, launched by the call with this correlation id.
fn kernel(number: u64, correlation: u64, start: u64) -> Kernel {
    Kernel {
        header: header(kind::KERNEL_DISPATCH, 1),
        start,
        end: start + 2_900,
        correlation,
        dispatch_id: number + 1,
        kernel_id: number % KERNELS + 1,
        stream: 0x55_0000 + number % 3 * 0x100,
        queue_id: 1,
        node: 1,
        tid: 4242,
        workgroup: [256, 1, 1],
        grid: [1 << 20, 1, 1],
        ..Kernel::default()
    }
}

/// Makes this many launches, each a call and the kernel that it launches.
pub fn launches(count: u64) -> Result<RecordFile> {
    let mut writer = begin()?;
    let words = words();
    for number in 0..count {
        let start = 8_123_456_789_012 + number * 3_517;
        let call = Api {
            header: header(kind::HIP_RUNTIME_API_EXT, LAUNCH),
            start,
            end: start + 1_200,
            correlation: number + 1,
            tid: 4242,
            nargs: (words.len() / 8) as u32,
            ..Api::default()
        };
        writer.append(&event::encode(&call, &words))?;
        let kernel = kernel(number, number + 1, start + 5_000);
        writer.append(&event::encode(&kernel, &[]))?;
    }
    Ok(writer.finish()?)
}

/// Makes this many kernels, each launched at one of the stacks.
fn at_stacks(count: u64) -> Result<RecordFile> {
    let mut writer = begin()?;
    writer.append(&event::encode(&stack(0, 0), &[]))?;
    for number in 1..=FUNCTIONS {
        let file = format!("/home/user/job/package/module_{}.py", number % 40);
        let name = format!("Model.layer_{number}.forward");
        let code = Code {
            header: header(kind::CODE, number),
            file_len: file.len() as u32,
            name_len: name.len() as u32,
        };
        writer.append(&event::encode(&code, [file, name].concat().as_bytes()))?;
    }
    for number in 1..=STACKS {
        let frame = |at: u32| [(number / (at + 1) + at) % FUNCTIONS + 1, 10 + number % 300];
        let words = (0..FRAMES).flat_map(frame);
        let frames: Vec<u8> = words.flat_map(u32::to_ne_bytes).collect();
        writer.append(&event::encode(&stack(number, FRAMES), &frames))?;
    }
    for number in 0..count {
        let launch = LaunchStack {
            header: header(kind::LAUNCH_STACK, (number % u64::from(STACKS)) as u32 + 1),
            correlation: number + 1,
        };
        writer.append(&event::encode(&launch, &[]))?;
        let start = 8_123_456_789_012 + number * 3_517;
        let kernel = kernel(number, number + 1, start);
        writer.append(&event::encode(&kernel, &[]))?;
    }
    Ok(writer.finish()?)
}

fn stack(number: u32, frames: u32) -> Stack {
    Stack {
        header: header(kind::STACK, number),
        frames,
        is_cut: 0,
    }
}

/// The calls of the recording of calls, with the words of their arguments.
const CALLS: [(&str, usize); 10] = [
    ("hipGetLastError", 0),
    ("hipGetDevice", 1),
    ("hipSetDevice", 1),
    ("hipGetLastError", 0),
    ("hipStreamQuery", 1),
    ("hipGetLastError", 0),
    ("hipEventQuery", 1),
    ("hipPeekAtLastError", 0),
    ("hipDeviceSynchronize", 0),
    ("hipGetLastError", 0),
];

/// Makes this many calls.
fn calls(records: u64) -> Result<RecordFile> {
    let names = Names::amd();
    let number = |name: &str| {
        let mut kinds = names.buffer.iter();
        let kind = kinds.find(|kind| kind.name == "HIP_RUNTIME_API_EXT")?;
        let at = kind.operations.iter().position(|other| other == name)?;
        u32::try_from(at).ok()
    };
    let mut operations = Vec::new();
    for (name, _) in CALLS {
        operations.push(number(name).ok_or("a function of HIP is not known")?);
    }
    let mut writer = RecordWriter::create_in(&std::env::temp_dir())?;
    let words = words();
    for record in 0..records {
        let turn = (record % CALLS.len() as u64) as usize;
        let nargs = CALLS[turn].1;
        let start = 8_123_456_789_012 + record * 15_833;
        let api = Api {
            header: header(kind::HIP_RUNTIME_API_EXT, operations[turn]),
            start,
            end: start + 480 + record % 97,
            correlation: record + 1,
            tid: 4242,
            nargs: nargs as u32,
            ..Api::default()
        };
        writer.append(&event::encode(&api, &words[..nargs * 8]))?;
    }
    Ok(writer.finish()?)
}

/// Makes this many records of all kinds.
fn made(records: u64) -> Result<RecordFile> {
    let mut writer = begin()?;
    let words = words();
    for number in 0..records {
        let start = 8_123_456_789_012 + number * 3_517;
        let (correlation, tid) = (number + 1, 4242 + (number % 4) as u32);
        match number % 10 {
            0 | 5 => {
                let kernel = Kernel {
                    tid,
                    ..kernel(number / 5, correlation, start)
                };
                writer.append(&event::encode(&kernel, &[]))?;
            }
            9 => {
                let copy = Copy {
                    header: header(kind::MEMORY_COPY, 2),
                    start,
                    end: start + 9_000,
                    correlation,
                    bytes: 1 << 20,
                    stream: 0x55_0000,
                    dst_node: 1,
                    tid,
                    ..Copy::default()
                };
                writer.append(&event::encode(&copy, &[]))?;
            }
            turn => {
                let is_launch = turn == 1 || turn == 6;
                let args = if is_launch { &words[..] } else { &words[..16] };
                let api = Api {
                    header: header(
                        kind::HIP_RUNTIME_API_EXT,
                        if is_launch { LAUNCH } else { turn as u32 * 11 },
                    ),
                    start,
                    end: start + 1_200,
                    correlation,
                    tid,
                    nargs: (args.len() / 8) as u32,
                    ..Api::default()
                };
                writer.append(&event::encode(&api, args))?;
            }
        }
    }
    Ok(writer.finish()?)
}
