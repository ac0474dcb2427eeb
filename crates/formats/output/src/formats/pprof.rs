//! The format `results.pb.gz`: a profile for pprof (profile.proto of google/pprof, compressed), which
//! Go's tools, Grafana and others read. A sample is a stack with the kernel or the copy as its leaf,
//! and counts launches and the GPU's nanoseconds.

mod messages;

use super::below::MARK;
use super::folded;
use crate::files::{FileSet, OutputFile, WriteError};
use crate::job::Job;
use crate::options::Frames;
use crate::sink::{Nothing, Opened, Sink, Writer};
use flate2::Compression;
use flate2::write::GzEncoder;
use foldhash::fast::RandomState;
use messages::{Function, Label, Line, Location, Mapping, Profile, Sample, ValueType};
use midair_trace::code;
use midair_trace::index::Work;
use prost::Message;
use std::collections::HashMap;
use std::io::{self, Write};

/// The file.
const SUFFIX: &str = "results.pb.gz";
/// The number of the only mapping.
const PROGRAM: u64 = 1;

/// The writer.
struct Pprof<'a> {
    jobs: &'a [Job<'a>],
    file: OutputFile,
}

/// Starts the file.
pub(crate) fn open<'a>(jobs: &'a [Job<'a>], files: &FileSet) -> Opened<'a> {
    let file = files.create(SUFFIX)?;
    Ok(Box::new(Pprof { jobs, file }))
}

impl Writer for Pprof<'_> {
    fn begin<'s>(&'s mut self, _: &'s Job<'s>) -> Result<Box<dyn Sink + 's>, WriteError> {
        Ok(Box::new(Nothing))
    }

    fn finish(mut self: Box<Self>, files: &mut FileSet) -> Result<(), WriteError> {
        let packed = packed(&profile(self.jobs));
        let packed = packed.map_err(|error| self.file.failed(error))?;
        self.file.put(&packed)?;
        files.add(self.file)
    }
}

/// Returns a profile as its file has it.
fn packed(profile: &Profile) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&profile.encode_to_vec())?;
    encoder.finish()
}

/// The profile of all sessions.
fn profile(jobs: &[Job<'_>]) -> Profile {
    let mut tables = Tables::default();
    // The first text is the empty one.
    tables.text("");
    let mut profile = Profile::default();
    for (name, unit) in [("launches", "count"), ("gpu", "nanoseconds")] {
        profile.sample_type.push(ValueType {
            r#type: tables.text(name),
            unit: tables.text(unit),
        });
    }
    profile.default_sample_type = tables.text("gpu");
    let command = jobs
        .first()
        .and_then(|job| job.trace.process.command.first());
    let program = code::one_line(command.map_or("", String::as_str));
    profile.mapping.push(Mapping {
        id: PROGRAM,
        filename: tables.text(&program),
        has_functions: true,
        has_filenames: true,
        has_line_numbers: true,
    });
    let (begin, end) = span(jobs);
    profile.time_nanos = signed(begin);
    profile.duration_nanos = signed(end - begin);
    for (at, job) in jobs.iter().enumerate() {
        let process = &job.trace.process;
        // A label distinguishes processes of one machine.
        let label = (jobs.len() > 1).then(|| Label {
            key: tables.text("pid"),
            num: i64::from(process.pid),
            ..Label::default()
        });
        let mut labels: Vec<Label> = label.into_iter().collect();
        for (key, text) in job.plan.labels.get(at).into_iter().flatten() {
            labels.push(Label {
                key: tables.text(key),
                str: tables.text(text),
                ..Label::default()
            });
        }
        let stacks = &job.index.stacks;
        let (mut all, has_stacks) = folded::work(job);
        all.sort_unstable_by_key(|(stack, work, _)| (*stack, *work));
        for (stack, work, sum) in all {
            let mut stat = sum.stat;
            let name = match work {
                Work::Kernel(id) => job.kernel_name_by_id(id),
                Work::Copy(direction) => {
                    let kind = midair_domain::kind::MEMORY_COPY;
                    job.names.operation(kind, direction)
                }
            };
            let mut locations = vec![tables.location((&name, ""), 0)];
            let frames = job.plan.frames;
            match stacks.shown_frames(stack, frames) {
                _ if frames == Frames::None || !has_stacks => {}
                _ if stack == 0 => locations.push(tables.location((stacks.no_stack(), ""), 0)),
                None => locations.push(tables.location((code::UNKNOWN_STACK, ""), 0)),
                Some(frames) => locations.extend(frames.into_iter().map(|(function, line)| {
                    tables.location((&function.name, &function.file), line)
                })),
            }
            let parts = match work {
                Work::Kernel(id) => job.below().split(id, stack, stat.total),
                Work::Copy(_) => Vec::new(),
            };
            for (sampled, time) in parts {
                let (line, instruction, reason) = sampled.parts(job);
                let (file, line) = line.unwrap_or_default();
                let reason = reason.map(|reason| tables.location((&marked(&reason), ""), 0));
                let instruction = tables.location((&marked(&instruction), &file), line);
                let inner = reason.into_iter().chain([instruction]);
                profile.sample.push(Sample {
                    location_id: inner.chain(locations.iter().copied()).collect(),
                    value: vec![0, signed(time)],
                    label: labels.clone(),
                });
                // The kernel itself keeps the number of its launches.
                stat.total = 0;
            }
            profile.sample.push(Sample {
                location_id: locations,
                value: vec![signed(stat.calls), signed(stat.total)],
                label: labels.clone(),
            });
        }
    }
    profile.location = tables.locations;
    profile.function = tables.functions;
    profile.string_table = tables.texts;
    profile
}

/// Returns the time from the start of the first session to the end of the last one, in ns since 1970.
/// The start is 0 where it is not known.
fn span(jobs: &[Job<'_>]) -> (u64, u64) {
    let sessions = jobs.iter().map(|job| {
        let process = &job.trace.process;
        let duration = process.fini_time.saturating_sub(process.init_time);
        let began = job.trace.attach.began_ns;
        (began, began.saturating_add(duration))
    });
    let first = sessions.clone().map(|(began, _)| began).min();
    let last = sessions.map(|(_, ended)| ended).max();
    (first.unwrap_or(0), last.unwrap_or(0))
}

/// Returns the name of a frame whose width is from samples.
fn marked(name: &str) -> String {
    format!("{name}{MARK}")
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What samples refer to, each once.
#[derive(Default)]
struct Tables {
    texts: Vec<String>,
    functions: Vec<Function>,
    locations: Vec<Location>,
    of_text: HashMap<String, i64, RandomState>,
    of_function: HashMap<(i64, i64), u64, RandomState>,
    of_location: HashMap<(u64, u32), u64, RandomState>,
}

impl Tables {
    /// Returns the place of a text.
    fn text(&mut self, text: &str) -> i64 {
        if let Some(place) = self.of_text.get(text) {
            return *place;
        }
        let place = self.texts.len() as i64;
        self.texts.push(text.to_owned());
        self.of_text.insert(text.to_owned(), place);
        place
    }

    /// Returns the number of a line of a function with this name and file.
    fn location(&mut self, (name, file): (&str, &str), line: u32) -> u64 {
        let name = self.text(&code::one_line(name));
        let file = self.text(&code::one_line(file));
        let next = self.functions.len() as u64 + 1;
        let function = *self.of_function.entry((name, file)).or_insert(next);
        if function == next {
            self.functions.push(Function {
                id: next,
                name,
                system_name: name,
                filename: file,
            });
        }
        let next = self.locations.len() as u64 + 1;
        let location = *self.of_location.entry((function, line)).or_insert(next);
        if location == next {
            self.locations.push(Location {
                id: next,
                mapping_id: PROGRAM,
                line: vec![Line {
                    function_id: function,
                    line: i64::from(line),
                }],
            });
        }
        location
    }
}
