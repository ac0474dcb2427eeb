//! The cost of the writers of results, in rows per second of processor time: each format by itself,
//! and several at once.
//!
//! The records are made here, and nothing is attached to. Of ten records, seven are HIP calls with
//! their arguments, two are kernels with long names, and one is a copy. The processor time is that
//! of the whole process, the kernel's included, so other work on the machine matters only as far as
//! it takes caches away.

use crate::report::Table;
use midair_output::{Format, Names, Plan, Process, RecordFile, RecordWriter, Trace, write};
use midair_record::event::{self, Api, Copy, Header, Kernel, KernelSymbol, kind};
use midair_tests::Result;
use nix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// The number of records, unless `MIDAIR_EXPORT_RECORDS` gives another one.
const RECORDS: u64 = 1_000_000;
/// Runs of each set. The best one counts, because disturbances can only take time away.
const RUNS: usize = 3;
/// The number of kernels, each with a name of its own.
const KERNELS: u64 = 60;
/// The id of HIP's launch.
const LAUNCH: u32 = 290;

/// For each set: its name, its formats, and how many million rows per second of processor time are
/// wanted.
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

/// Measures all sets.
pub fn run(table: &mut Table) -> Result<()> {
    midair_columns::install();
    let wanted = std::env::var("MIDAIR_EXPORT_RECORDS").ok();
    let records = wanted.and_then(|text| text.parse().ok()).unwrap_or(RECORDS);
    let only = std::env::var("MIDAIR_EXPORT_ONLY").unwrap_or_default();
    let names = Names::amd();
    let trace = session(made(records)?);
    let mut rates = Vec::new();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut sets = Vec::new();
    for (what, formats, goal) in SETS {
        sets.push((what.to_owned(), formats, goal, 1));
        if formats.len() > 1 && processors > 1 {
            sets.push((
                format!("{what}, {processors} threads"),
                formats,
                goal,
                processors,
            ));
        }
    }
    for (what, formats, goal, threads) in sets {
        if !only.is_empty() && !what.starts_with(&only) {
            continue;
        }
        let mut rows = Vec::new();
        let mut shortest = Duration::MAX;
        let mut bytes = 0;
        for _ in 0..RUNS {
            let directory =
                std::env::temp_dir().join(format!("midair-export-{}", std::process::id()));
            let plan = Plan {
                directory: directory.clone(),
                prefix: "r".to_owned(),
                formats: formats.to_vec(),
                threads,
                ..Plan::default()
            };
            let (cpu, wall) = (processor_time()?, Instant::now());
            let files = write(&trace, &names, &plan)?;
            let took = processor_time()?.saturating_sub(cpu);
            shortest = shortest.min(wall.elapsed());
            rows.push(records as f64 / took.as_secs_f64() / 1e6);
            bytes = files
                .iter()
                .filter_map(|file| file.metadata().ok())
                .map(|meta| meta.len())
                .sum();
            std::fs::remove_dir_all(&directory)?;
        }
        let best = rows.iter().copied().fold(0.0, f64::max);
        table.plain(&format!("{what}: million rows per CPU second"), &rows, goal);
        println!(
            "{what}: best {best:.2} million rows per CPU second, {:.2} s at least by the clock ({:.2} million rows), {:.0} bytes a row",
            shortest.as_secs_f64(),
            records as f64 / shortest.as_secs_f64() / 1e6,
            bytes as f64 / records as f64,
        );
        rates.push((what, best));
    }
    if let Some((first, rate)) = rates.first() {
        for (what, other) in &rates {
            println!("{what}: {:.2} of {first}", other / rate);
        }
    }
    Ok(())
}

/// Returns a session with these records.
pub fn session(records: RecordFile) -> Trace {
    Trace {
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

/// Begins a session with the kernels.
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

/// Makes this many records.
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
