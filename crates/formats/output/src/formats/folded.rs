//! The formats `results.folded` and `results.speedscope.json`: the GPU's time by the stack that
//! launched the work, for flame graphs.
//!
//! A folded stack is one line: the frames from the outermost to the innermost and the kernel, with
//! semicolons between them, then a space and the nanoseconds (the form of Brendan Gregg's
//! flamegraph.pl, which other tools read as well). For speedscope the same stacks are one JSON
//! document (its file-format-schema.json).

use crate::files::{FileSet, OutputFile, WriteError};
use crate::job::Job;
use crate::options::Frames;
use crate::sink::{Nothing, Opened, Sink, Writer};
use midair_trace::code;
use midair_trace::frame_names::Part;
use midair_trace::index::{Stat, Sum, Work};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};

/// The file of each format.
const FOLDED: &str = "results.folded";
const SPEEDSCOPE: &str = "results.speedscope.json";

/// Starts the file with one stack in each line.
pub(crate) fn open<'a>(jobs: &'a [Job<'a>], files: &FileSet) -> Opened<'a> {
    let file = files.create(FOLDED)?;
    let write = folded;
    Ok(Box::new(Stacks { jobs, file, write }))
}

/// Starts the file for speedscope.
pub(crate) fn open_speedscope<'a>(jobs: &'a [Job<'a>], files: &FileSet) -> Opened<'a> {
    let file = files.create(SPEEDSCOPE)?;
    let write = speedscope;
    Ok(Box::new(Stacks { jobs, file, write }))
}

/// The writer of either.
struct Stacks<'a> {
    jobs: &'a [Job<'a>],
    file: OutputFile,
    write: fn(&[Job<'_>]) -> String,
}

impl Writer for Stacks<'_> {
    fn begin<'s>(&'s mut self, _: &'s Job<'s>) -> Result<Box<dyn Sink + 's>, WriteError> {
        Ok(Box::new(Nothing))
    }

    fn finish(mut self: Box<Self>, files: &mut FileSet) -> Result<(), WriteError> {
        self.file.put((self.write)(self.jobs).as_bytes())?;
        files.add(self.file)
    }
}

/// Returns the process as the outermost frame, where there are several.
fn process(job: &Job<'_>, jobs: &[Job<'_>]) -> Option<String> {
    let pid = job.trace.process.pid;
    (jobs.len() > 1).then(|| format!("process {pid}"))
}

/// A name on a path, and the part of a frame. None for work, and for work without a stack.
pub(crate) type Named = (String, Option<Part>);

/// Returns the GPU's work, and whether it has stacks.
pub(crate) fn work(job: &Job<'_>) -> (Vec<(u32, Work, Sum)>, bool) {
    let all: Vec<_> = job.index.stacks.all().collect();
    if !all.is_empty() {
        return (all, true);
    }
    let sum = |stat: &Stat| Sum {
        stat: *stat,
        ..Sum::default()
    };
    let kernels = job.index.kernels.iter();
    let kernels = kernels.map(|(id, stat)| (0, Work::Kernel(*id), sum(stat)));
    let copies = job
        .index
        .work
        .iter()
        .filter_map(|((kind, direction), stat)| {
            let is_copy = *kind == midair_domain::kind::MEMORY_COPY;
            is_copy.then_some((0, Work::Copy(*direction), sum(stat)))
        });
    (kernels.chain(copies).collect(), false)
}

/// Returns the GPU's work by stack, the outermost frame first; the last part is the work itself. A kernel
/// with samples has its time below it ([`below`](super::below)), and without stacks it is the outermost.
pub(crate) fn by_stack(job: &Job<'_>, frames: Frames) -> BTreeMap<Vec<Named>, Sum> {
    let stacks = &job.index.stacks;
    let (work, has_stacks) = match job.index.samples.is_empty() {
        true => (stacks.all().collect(), true),
        false => work(job),
    };
    let mut named: HashMap<u32, Vec<Named>> = HashMap::new();
    let mut all: BTreeMap<Vec<Named>, Sum> = BTreeMap::new();
    for (stack, work, sum) in work {
        let path = named
            .entry(stack)
            .or_insert_with(|| match stacks.shown_frames(stack, frames) {
                _ if frames == Frames::None || !has_stacks => Vec::new(),
                _ if stack == 0 => vec![(stacks.no_stack().to_owned(), None)],
                None => vec![(code::UNKNOWN_STACK.to_owned(), None)],
                Some(frames) => frames
                    .into_iter()
                    .rev()
                    .map(|(function, line)| (code::frame(function, line), Some(function.part)))
                    .collect(),
            });
        let mut path = path.clone();
        let mut sum = sum;
        let parts = match work {
            Work::Kernel(id) => job.below().split(id, stack, sum.stat.total),
            Work::Copy(_) => Vec::new(),
        };
        let work = match work {
            Work::Kernel(id) => code::one_line(&job.kernel_name_by_id(id)).into_owned(),
            Work::Copy(direction) => {
                let kind = midair_domain::kind::MEMORY_COPY;
                job.names.operation(kind, direction).into_owned()
            }
        };
        path.push((work, None));
        for (sampled, time) in parts {
            let mut part = Sum::default();
            part.stat.total = time;
            let frames = path.iter().cloned().chain(sampled.frames(job));
            all.entry(frames.collect()).or_default().merge(&part);
            // The kernel itself keeps the number of its launches.
            sum.stat.total = 0;
        }
        all.entry(path).or_default().merge(&sum);
    }
    all
}

/// Whether the time of some work is below it, and only the number of launches is its own.
fn is_split(job: &Job<'_>, sum: &Sum) -> bool {
    !job.index.samples.is_empty() && sum.stat.total == 0
}

fn folded(jobs: &[Job<'_>]) -> String {
    let mut out = String::new();
    for job in jobs {
        let process = process(job, jobs);
        for (path, sum) in by_stack(job, job.plan.frames) {
            if is_split(job, &sum) {
                continue;
            }
            let frames: Vec<String> = process
                .iter()
                .chain(path.iter().map(|(name, _)| name))
                .map(|frame| frame.replace(';', ","))
                .collect();
            out.push_str(&format!("{} {}\n", frames.join(";"), sum.stat.total));
        }
    }
    out
}

fn speedscope(jobs: &[Job<'_>]) -> String {
    let mut numbers: HashMap<String, usize> = HashMap::new();
    let mut frames: Vec<Value> = Vec::new();
    let mut profiles: Vec<Value> = Vec::new();
    for job in jobs {
        let (mut samples, mut weights) = (Vec::new(), Vec::new());
        let mut end = 0_u64;
        for (path, sum) in by_stack(job, job.plan.frames) {
            if is_split(job, &sum) {
                continue;
            }
            let sample: Vec<usize> = path
                .into_iter()
                .map(|(frame, _)| {
                    *numbers.entry(frame).or_insert_with_key(|frame| {
                        frames.push(json!({ "name": frame }));
                        frames.len() - 1
                    })
                })
                .collect();
            samples.push(sample);
            weights.push(sum.stat.total);
            end = end.saturating_add(sum.stat.total);
        }
        profiles.push(json!({
            "type": "sampled",
            "name": format!("GPU time of process {}", job.trace.process.pid),
            "unit": "nanoseconds",
            "startValue": 0,
            "endValue": end,
            "samples": samples,
            "weights": weights,
        }));
    }
    let document = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": concat!("midair ", env!("CARGO_PKG_VERSION")),
        "shared": { "frames": frames },
        "profiles": profiles,
    });
    format!("{document}\n")
}
