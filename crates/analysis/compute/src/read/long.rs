//! Files with one line for each counter of a dispatch: AMD's `pmc_perf.csv` of 3.3 and later, in
//! which the passes follow one another, and files of single passes.

use super::csv::{
    DAMAGED, Dispatches, Lines, canonical, number, number_of_gpu, take_field, time, words,
};
use crate::evaluate::quantile;
use crate::files::{unpacked_name, unusable};
use crate::frame::{Column, Filling, Frame, field};
use midair_failure::Failure;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// The columns that make a file long: the counter of the line, and its value.
const NAME: &str = "Counter_Name";
const VALUE: &str = "Counter_Value";

/// The columns that are numbers of the dispatch, and that metrics use.
const FIELDS: [&str; 9] = field::around_sizes(&[], &[field::WAVE, field::KERNEL_ID]);

/// Whether a file has a line for each counter. One of the two columns alone is refused.
///
/// # Errors
/// When the file cannot be read, or when it has only one of the two columns.
pub(super) fn is_long(path: &Path) -> Result<bool, Failure> {
    let headings = Lines::open(path)?.next()?.map(words).unwrap_or_default();
    let has = |name: &str| headings.iter().any(|heading| heading == name);
    match (has(NAME), has(VALUE)) {
        (true, false) => Err(lacks(path, VALUE)),
        (false, true) => Err(lacks(path, NAME)),
        (both, _) => Ok(both),
    }
}

fn lacks(path: &Path, column: &str) -> Failure {
    unusable(format!("{} has no column {column}", path.display()))
}

/// What is equal in each run of a program: kernel, GPU, grid, workgroup and LDS.
type Key = (u32, [u64; 4]);

/// One dispatch of one pass: number, kernel, start and end.
type Identity = (u64, u32, i64, i64);

/// What a pass says about a dispatch.
struct Observed {
    row: usize,
    /// Nanoseconds; NaN if the times are not known.
    took: f64,
    /// The number of lines.
    lines: u32,
}

/// A counter, and the pass that counted it first.
struct Counter {
    name: String,
    values: Filling,
    pass: usize,
}

/// The places of the columns in the lines of a file.
struct Places {
    kernel: usize,
    dispatch: usize,
    gpu: usize,
    start: usize,
    end: usize,
    name: usize,
    value: usize,
    fields: [Option<usize>; FIELDS.len()],
}

impl Places {
    fn of(path: &Path, headings: &[String]) -> Result<Places, Failure> {
        let find = |name: &str| headings.iter().position(|known| canonical(known) == name);
        let place = |name: &str| find(name).ok_or_else(|| lacks(path, name));
        Ok(Places {
            kernel: place(field::KERNEL)?,
            dispatch: place(field::DISPATCH)?,
            gpu: find(field::GPU)
                .or_else(|| find("Agent_Id"))
                .ok_or_else(|| lacks(path, field::GPU))?,
            start: place(field::START)?,
            end: place(field::END)?,
            name: place(NAME)?,
            value: place(VALUE)?,
            fields: {
                place(field::GRID)?;
                FIELDS.map(find)
            },
        })
    }
}

/// Reads files, one after another.
#[derive(Default)]
struct Reader {
    dispatches: Dispatches,
    gpus: Filling,
    numbers: Filling,
    fields: [Filling; FIELDS.len()],
    counters: Vec<Counter>,
    by_name: HashMap<Vec<u8>, usize>,
    observed: Vec<Observed>,
    /// The current pass, from 1; whether it has a counter that no earlier pass has.
    pass: usize,
    is_new: bool,
    /// The numbers of dispatches in this pass, the dispatches themselves, and how often each key
    /// occurred.
    ids: HashSet<u64>,
    seen: HashMap<Identity, usize>,
    times: HashMap<Key, usize>,
    /// The rows of all passes, by key and number of the occurrence.
    rows: HashMap<(Key, usize), usize>,
}

/// Reads any number of files with one line for each counter of a dispatch. Dispatches of two passes
/// are the same when they have the same kernel, GPU and sizes, and equally many such dispatches
/// came before each.
///
/// # Errors
/// When a file cannot be read, is not complete, or is not a series of passes.
pub(super) fn pivoted(paths: &[&PathBuf]) -> Result<Frame, Failure> {
    let mut reader = Reader::default();
    for path in paths {
        reader.file(path)?;
    }
    reader.finish()
}

impl Reader {
    fn file(&mut self, path: &Path) -> Result<(), Failure> {
        let name = unpacked_name(path);
        // Only this file has several passes.
        let has_passes = name == "pmc_perf.csv";
        // rocprofv3's file may have a line for each place of the GPU.
        let has_places = name.ends_with("counter_collection.csv");
        self.begin();
        let mut lines = Lines::open(path)?;
        let headings = lines.next()?.map(words).unwrap_or_default();
        let places = Places::of(path, &headings)?;
        let mut words: Vec<Vec<u8>> = vec![Vec::new(); headings.len()];
        let mut unquoted = Vec::new();
        let mut last: Option<(Identity, usize)> = None;
        loop {
            let number_of_line = lines.line + 1;
            let wrong = |what: &str, word: &[u8]| {
                let word = String::from_utf8_lossy(word);
                let path = path.display();
                unusable(format!("{path}: line {number_of_line}: {what}{word}")).hint(DAMAGED)
            };
            let Some(line) = lines.next()? else { break };
            if line.is_empty() {
                continue;
            }
            let (mut rest, mut read) = (Some(line), 0);
            while let Some(word) = take_field(&mut rest, &mut unquoted) {
                if let Some(into) = words.get_mut(read) {
                    into.clear();
                    into.extend_from_slice(word.bytes(&unquoted).trim_ascii());
                }
                read += 1;
            }
            if read != words.len() {
                let what = format!("it has {read} of {} fields", words.len());
                return Err(wrong(&what, b""));
            }
            let id = number(&words[places.dispatch]).filter(|id| id.is_finite());
            let id = id.ok_or_else(|| wrong("not a dispatch number: ", &words[places.dispatch]))?;
            let value = number(&words[places.value]).filter(|value| !value.is_infinite());
            let value = value.ok_or_else(|| wrong("no count: ", &words[places.value]))?;
            let kernel = String::from_utf8_lossy(&words[places.kernel]);
            let kernel = self.dispatches.names.number(&kernel);
            let time_of = |place: usize| time(&words[place]).unwrap_or(i64::MIN);
            let (start, end) = (time_of(places.start), time_of(places.end));
            let identity = (id.to_bits(), kernel, start, end);
            let known = last.filter(|(last, _)| *last == identity);
            let known = known.map(|(_, at)| at);
            let at = match known.or_else(|| self.seen.get(&identity).copied()) {
                Some(at) => at,
                None => {
                    if has_passes && self.ids.contains(&identity.0) {
                        self.end(path)?;
                        self.begin();
                    }
                    let gpu = number_of_gpu(&words[places.gpu]).filter(|gpu| gpu.is_finite());
                    let gpu = gpu.ok_or_else(|| wrong("not a GPU number: ", &words[places.gpu]))?;
                    let fields = places.fields.map(|place| {
                        let word = place.map(|place| words[place].as_slice());
                        word.and_then(number).unwrap_or(f64::NAN)
                    });
                    self.dispatch(identity, gpu, fields, has_places)
                }
            };
            last = Some((identity, at));
            self.observed[at].lines += 1;
            let row = self.observed[at].row;
            let counter = self.counter(&words[places.name]);
            let counter = &mut self.counters[counter];
            if counter.pass != self.pass {
                // An earlier pass counted it.
                continue;
            }
            let before = counter.values.get(row);
            if before.is_nan() {
                counter.values.set(row, value);
            } else if has_places {
                counter.values.set(row, before + value);
            } else {
                let what = format!("dispatch {id} has this counter twice: ");
                return Err(wrong(&what, &words[places.name]));
            }
        }
        self.end(path)
    }

    fn begin(&mut self) {
        self.pass += 1;
        self.is_new = false;
        self.ids.clear();
        self.seen.clear();
        self.times.clear();
    }

    /// Ends a pass. One whose counters an earlier pass has already is no pass of the same profile.
    fn end(&self, path: &Path) -> Result<(), Failure> {
        if self.pass > 1 && !self.is_new && !self.seen.is_empty() {
            return Err(unusable(format!(
                "{} has each dispatch's counters twice: it mixes several runs or processes",
                path.display()
            ))
            .hint("profile again, or analyze each process's database separately"));
        }
        Ok(())
    }

    /// Adds a dispatch of this pass, and returns its place in `observed`.
    fn dispatch(
        &mut self,
        identity: Identity,
        gpu: f64,
        fields: [f64; FIELDS.len()],
        has_numbers: bool,
    ) -> usize {
        let (id, kernel, start, end) = identity;
        let key = (
            kernel,
            [gpu, fields[0], fields[1], fields[2]].map(f64::to_bits),
        );
        let times = self.times.entry(key).or_default();
        let occurrence = (key, *times);
        *times += 1;
        let is_timed = start != i64::MIN && end >= start;
        let next = self.dispatches.kernel.len();
        let row = *self.rows.entry(occurrence).or_insert(next);
        if row == next {
            let (start, end) = if is_timed {
                (start, end)
            } else {
                (i64::MIN, i64::MIN)
            };
            self.dispatches.kernel.push(kernel);
            self.dispatches.start.push(start);
            self.dispatches.end.push(end);
            self.gpus.push(gpu);
            // rocprof-compute numbers dispatches by their order.
            self.numbers.push(match has_numbers && self.pass == 1 {
                true => f64::from_bits(id),
                false => row as f64,
            });
            for (filling, value) in self.fields.iter_mut().zip(fields) {
                filling.push(value);
            }
        }
        let took = if is_timed {
            end.saturating_sub(start) as f64
        } else {
            f64::NAN
        };
        let at = self.observed.len();
        self.observed.push(Observed {
            row,
            took,
            lines: 0,
        });
        self.ids.insert(id);
        self.seen.insert(identity, at);
        at
    }

    /// Returns the place of a counter.
    fn counter(&mut self, name: &[u8]) -> usize {
        if let Some(at) = self.by_name.get(name) {
            return *at;
        }
        self.is_new = true;
        let at = self.counters.len();
        self.by_name.insert(name.to_owned(), at);
        self.counters.push(Counter {
            name: String::from_utf8_lossy(name).into_owned(),
            values: Filling::default(),
            pass: self.pass,
        });
        at
    }

    fn finish(mut self) -> Result<Frame, Failure> {
        let rows = self.dispatches.kernel.len();
        if rows == 0 {
            return Err(unusable("the counter files have no dispatch"));
        }
        if self.pass > 1 {
            self.set_medians();
        }
        let mut frame = self.dispatches.frame();
        frame.put(field::DISPATCH, self.numbers.finish(rows));
        frame.put(field::GPU, ranked(&self.gpus.finish(rows), rows));
        for (name, filling) in FIELDS.iter().zip(self.fields) {
            frame.put(name, filling.finish(rows));
        }
        for counter in self.counters {
            frame.put(&counter.name, counter.values.finish(rows));
        }
        Ok(frame)
    }

    /// Sets how long each dispatch took: the median over all lines, as rocprof-compute has it.
    fn set_medians(&mut self) {
        self.observed.sort_by_key(|observed| observed.row);
        for same in self.observed.chunk_by(|a, b| a.row == b.row) {
            let timed = same.iter().filter(|observed| !observed.took.is_nan());
            let mut all: Vec<f64> = timed
                .flat_map(|observed| std::iter::repeat_n(observed.took, observed.lines as usize))
                .collect();
            let Some(row) = same.first().map(|observed| observed.row) else {
                continue;
            };
            let start = self.dispatches.start[row];
            if start != i64::MIN && !all.is_empty() {
                let median = quantile(&mut all, 0.5).round() as i64;
                self.dispatches.end[row] = start.saturating_add(median);
            }
        }
    }
}

/// Returns the numbers of GPUs, counted from 0.
fn ranked(gpus: &Column, rows: usize) -> Column {
    let mut all: Vec<f64> = (0..rows).map(|row| gpus.get(row)).collect();
    let numbers = all.clone();
    all.sort_by(f64::total_cmp);
    all.dedup();
    let mut ranks = Filling::default();
    for number in numbers {
        ranks.push(all.partition_point(|known| *known < number) as f64);
    }
    ranks.finish(rows)
}
