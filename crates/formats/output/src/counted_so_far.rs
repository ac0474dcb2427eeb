//! What was counted so far, in one csv file that is rewritten again and again while a process is
//! attached, for programs that show counters live.
//!
//! A dispatch whose window has values has a line of its own. All other dispatches of the same
//! kernel, agent, grid, workgroup, LDS and scratch share one line with their number and their mean
//! time. So the file grows with the windows, of which there are few, and not with the dispatches.
//!
//! The headings are as in AMD's `pmc_perf.csv`, and `Dispatches` (decision FMT-050).

use crate::counters::reader::Reader;
use crate::counters::values;
use crate::job::Job;
use crate::model::{Plan, Trace};
use midair_record::event::{Kernel, Record, kind};
use midair_trace::api::Names;
use midair_trace::index::untimed;
use midair_trace::record_file::WalkError;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Further sorts of dispatches are left out, since a target can invent any number.
const MOST_SORTS: usize = 1 << 16;

/// The properties that dispatches on one line have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Sort {
    node: u32,
    kernel: u64,
    object: u64,
    grid: u64,
    workgroup: u64,
    lds: u32,
    scratch: u32,
}

impl Sort {
    fn of(kernel: &Kernel) -> Sort {
        let product = |all: [u32; 3]| {
            let mut all = all.into_iter().map(u64::from);
            all.try_fold(1_u64, u64::checked_mul).unwrap_or(u64::MAX)
        };
        Sort {
            node: kernel.node,
            kernel: kernel.kernel_id,
            object: match kernel.kernel_id {
                0 => kernel.kernel_object,
                _ => 0,
            },
            grid: product(kernel.grid),
            workgroup: product(kernel.workgroup),
            lds: kernel.group_segment,
            scratch: kernel.private_segment,
        }
    }
}

/// The dispatches of one sort that have no values.
#[derive(Debug, Clone, Copy)]
struct Rest {
    count: u64,
    time: u64,
    first: Kernel,
}

/// Writes the file next to its final name and then renames it. So a reader sees either the previous
/// file or this one, and always a whole one.
///
/// # Errors
/// When the records cannot be read, or the file cannot be written.
pub fn write_counted_so_far(
    trace: &Trace,
    names: &Names,
    plan: &Plan,
    to: &Path,
) -> io::Result<()> {
    let directory = to.parent().unwrap_or(Path::new("."));
    let file = tempfile::NamedTempFile::new_in(directory)?;
    let mut out = BufWriter::with_capacity(1 << 16, file);
    write_to(&mut out, &Job::new(trace, names, plan))?;
    let file = out.into_inner().map_err(|error| error.into_error())?;
    file.persist(to).map(drop).map_err(|error| error.error)
}

fn write_to(out: &mut impl Write, job: &Job<'_>) -> io::Result<()> {
    let plan = &job.trace.counters;
    let all = job.counting.counters(plan);
    let counters: BTreeSet<&str> = all.iter().map(|counter| counter.wanted.name).collect();
    let counters: Vec<&str> = counters.into_iter().collect();
    write!(
        out,
        "Dispatch_ID,GPU_ID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Scratch_Per_Workitem,Arch_VGPR,\
         Accum_VGPR,SGPR,Kernel_Name,Dispatches"
    )?;
    for counter in &counters {
        write!(out, ",{counter}")?;
    }
    writeln!(out, ",Start_Timestamp,End_Timestamp")?;

    let records = &job.trace.records;
    let mut rests: HashMap<Sort, Rest> = HashMap::new();
    let walked = records.walk_all(
        |kind| kind == kind::KERNEL_DISPATCH,
        |record| {
            if let Record::Kernel(kernel, _) = record
                && records.is_chosen(kernel)
                && untimed(kernel.header.flags, kernel.untimed).is_none()
                && !job.counting.windows.has_values(kernel.dispatch_id)
            {
                let sort = Sort::of(kernel);
                if rests.len() < MOST_SORTS || rests.contains_key(&sort) {
                    let rest = rests.entry(sort).or_insert(Rest {
                        count: 0,
                        time: 0,
                        first: *kernel,
                    });
                    rest.count += 1;
                    let time = kernel.end.saturating_sub(kernel.start);
                    rest.time = rest.time.saturating_add(time);
                }
            }
            Ok::<(), io::Error>(())
        },
    );
    walked.map_err(plain)?;

    let mut reader = Reader::new(job);
    let mut named: HashMap<u64, String> = HashMap::new();
    let mut line = vec![None; counters.len()];
    let walked = records.walk_all(
        |kind| kind == kind::COUNTER_COLLECTION,
        |record| {
            let Record::CounterWindow(part, words) = record else {
                return Ok(());
            };
            let Some(counts) = reader.part(part, words) else {
                return Ok(());
            };
            // Values that several dispatches have together belong to none of them.
            if counts.batch.is_some() {
                return Ok(());
            }
            line.fill(None);
            for (_, name, values) in &counts.counters {
                if let Ok(at) = counters.binary_search(name)
                    && let Some(place) = line.get_mut(at)
                {
                    *place = Some(values::sum(values));
                }
            }
            let kernel = counts.kernel;
            let times = (1, kernel.start, kernel.end);
            row(out, job, &mut named, kernel, times, &line)
        },
    );
    walked.map_err(plain)?;
    line.fill(None);
    let rests: BTreeMap<Sort, Rest> = rests.into_iter().collect();
    for rest in rests.values() {
        let mean = rest.time / rest.count.max(1);
        let begin = rest.first.start;
        let times = (rest.count, begin, begin.saturating_add(mean));
        row(out, job, &mut named, &rest.first, times, &line)?;
    }
    Ok(())
}

/// Writes one line: how many dispatches it stands for, start and end of one of them, and what was
/// counted.
fn row(
    out: &mut impl Write,
    job: &Job<'_>,
    named: &mut HashMap<u64, String>,
    kernel: &Kernel,
    (count, start, end): (u64, u64, u64),
    values: &[Option<f64>],
) -> io::Result<()> {
    let sort = Sort::of(kernel);
    let symbol = job.index.symbols.get(&kernel.kernel_id);
    let (arch, accum, sgpr) = symbol.map_or((0, 0, 0), |symbol| {
        let record = &symbol.record;
        (record.arch_vgpr, record.accum_vgpr, record.sgpr)
    });
    let gpu = job.agent(kernel.node);
    let gpu = gpu.map_or(0, |agent| agent.logical_node_type_id);
    let key = match kernel.kernel_id {
        0 => kernel.kernel_object,
        id => id,
    };
    let name = named
        .entry(key)
        .or_insert_with(|| job.kernel_name(kernel).replace('"', "\"\""));
    write!(
        out,
        "{},{gpu},{},{},{},{},{arch},{accum},{sgpr},\"{name}\",{count}",
        kernel.dispatch_id, sort.grid, sort.workgroup, sort.lds, sort.scratch
    )?;
    for value in values {
        match value {
            Some(value) => write!(out, ",{value}")?,
            None => out.write_all(b",")?,
        }
    }
    writeln!(out, ",{start},{end}")
}

fn plain(error: WalkError<io::Error>) -> io::Error {
    match error {
        WalkError::Read(error) | WalkError::Visit(error) => error,
    }
}
