//! The format `results.html`: one page for a browser, which needs neither a network nor a server.
//! It has what `midair attach` prints at its end, the tables in full length, and a timeline.
//!
//! The page is a fixed document with a style and a script, and one block of JSON. Everything that
//! the target chose (names of kernels, threads, ranges) is in that block alone, in which `<`, `>`
//! and `&` are escapes, so no text can end it. The script shows texts as texts. The page's policy
//! allows that script and that style by their digests, and nothing else: no other script, no
//! request.
//!
//! Memory and size of the page are bounded: see [`timeline`], [`series`] and [`tables`].
//!
//! Decision: FMT-035 (`docs/deviations/formats.md`).

mod rows;
mod series;
mod tables;
mod timeline;

use crate::files::{FileSet, OutputFile, WriteError};
use crate::formats::folded::{self, Named};
use crate::job::Job;
use crate::options::Frames;
use crate::sink::{Opened, Sink, Writer};
use midair_trace::frame_names::Part;
use rows::Session;
use serde_json::{Value, json};
use series::Series;
use std::collections::HashMap;
use std::io::{self, Write};
use timeline::Timeline;

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = concat!(include_str!("html/flame.js"), include_str!("html/page.js"));
const BODY: &str = include_str!("html/page.html");
/// SHA-256 of [`STYLE`] and [`SCRIPT`] in base 64. A test compares them, and says what they should
/// be.
const STYLE_DIGEST: &str = "qFoTnHw8x3Z1aV5xPbQZZUCXZKvDRu05flrEGy7lrpc=";
const SCRIPT_DIGEST: &str = "0khmZKvi2ocfbbps0JK9JhORTa2j43r8EFU1ybphesE=";

/// Numbers beyond this are not exact in a browser.
const MOST_EXACT: i128 = (1 << 53) - 1;
/// The most stacks of the flame graph; those with the most time are there.
const MOST_STACKS: usize = 20_000;
/// The version of the data within the page.
const SCHEMA: u32 = 1;

/// What is gathered while records are walked over.
#[derive(Debug, Default)]
struct Page {
    timeline: Timeline,
    series: Series,
    /// The names by which kernels are shown, by their full names.
    labels: HashMap<String, String>,
}

/// The writer.
struct Html<'a> {
    jobs: &'a [Job<'a>],
    file: OutputFile,
    page: Page,
    /// The number of sessions started.
    begun: usize,
}

/// Starts the file.
pub(crate) fn open<'a>(jobs: &'a [Job<'a>], files: &FileSet) -> Opened<'a> {
    Ok(Box::new(Html {
        jobs,
        file: files.create("results.html")?,
        page: Page {
            labels: tables::labels(jobs),
            ..Page::default()
        },
        begun: 0,
    }))
}

impl Writer for Html<'_> {
    fn begin<'s>(&'s mut self, job: &'s Job<'s>) -> Result<Box<dyn Sink + 's>, WriteError> {
        let process = self.begun;
        self.begun += 1;
        Ok(Box::new(Session::new(job, process, &mut self.page)))
    }

    fn finish(mut self: Box<Self>, files: &mut FileSet) -> Result<(), WriteError> {
        let written = document(&mut self.file, self.jobs, &mut self.page);
        written.map_err(|error| self.file.failed(error))?;
        files.add(self.file)
    }
}

/// Returns the start of a page, up to its data. It allows the script and the style with these digests
/// and nothing else.
pub(crate) fn start(
    script_digest: &str,
    (style, style_digest): (&str, &str),
    body: &str,
) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         script-src 'sha256-{script_digest}'; style-src 'sha256-{style_digest}'; \
         base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>midair</title>\n<style>{style}</style>\n</head>\n{body}\
         <script type=\"application/json\" id=\"data\">"
    )
}

/// Writes the page.
fn document(file: &mut OutputFile, jobs: &[Job<'_>], page: &mut Page) -> io::Result<()> {
    file.write_all(start(SCRIPT_DIGEST, (STYLE, STYLE_DIGEST), BODY).as_bytes())?;
    data(&mut Escaped(&mut *file), jobs, page)?;
    write!(
        file,
        "</script>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )
}

/// Writes the data as one JSON object.
fn data(out: &mut impl Write, jobs: &[Job<'_>], page: &mut Page) -> io::Result<()> {
    let clock = Clock::of(jobs, page);
    let (frames, stacks) = stacks(jobs);
    let by = jobs.first().map_or(Frames::All, |job| job.plan.frames);
    let (frames, parts): (Vec<String>, Vec<Option<Part>>) = frames.into_iter().unzip();
    let parts: Vec<Value> = parts
        .into_iter()
        .map(|part| part.map_or(Value::Null, |part| part.text().into()))
        .collect();
    let head = json!({
        "schema": SCHEMA,
        "midair": env!("CARGO_PKG_VERSION"),
        "processes": tables::processes(jobs),
        "tables": tables::tables(jobs, &page.labels),
        "begin": clock.of_time(clock.begin),
        "end": clock.of_time(clock.end),
        "records": page.timeline.added,
        "bucket": page.timeline.width,
        "counters_merged": page.series.is_merged,
        "counters_left_out": page.series.left_out,
        "names": names(&page.timeline),
        "frames": frames,
        "parts": parts,
        "by": by.text(),
        "stacks": stacks,
    });
    let mut head = head.to_string();
    // The object goes on with the rows.
    head.pop();
    write!(out, "{head},\"rows\":[")?;
    rows(out, &clock, page)?;
    write!(out, "],\"curves\":[")?;
    curves(out, &clock, page)?;
    write!(out, "]}}")
}

/// Returns the names of frames and kernels with the parts of frames, and for each stack four numbers (the GPU's nanoseconds,
/// launches, nanoseconds from launch to start, bytes copied) and its path as the places of such names,
/// the outermost frame first.
fn stacks(jobs: &[Job<'_>]) -> (Vec<Named>, Vec<Value>) {
    let mut places: HashMap<Named, usize> = HashMap::new();
    let mut frames: Vec<Named> = Vec::new();
    let mut all: Vec<([u64; 4], Vec<usize>)> = Vec::new();
    let has_some = |job: &&Job<'_>| job.index.stacks.is_on || !job.index.samples.is_empty();
    for job in jobs.iter().filter(has_some) {
        let process = (jobs.len() > 1).then(|| format!("process {}", job.trace.process.pid));
        let process = process.map(|name| (name, None));
        for (path, sum) in folded::by_stack(job, Frames::All) {
            let path = process.iter().cloned().chain(path).map(|name| {
                *places.entry(name).or_insert_with_key(|name| {
                    frames.push(name.clone());
                    frames.len() - 1
                })
            });
            let numbers = [sum.stat.total, sum.stat.calls, sum.delay, sum.bytes];
            all.push((numbers.map(exact), path.collect()));
        }
    }
    all.sort_by_key(|([time, ..], _)| std::cmp::Reverse(*time));
    all.truncate(MOST_STACKS);
    let all = all
        .into_iter()
        .map(|(numbers, path)| json!([numbers, path]));
    (frames, all.collect())
}

fn names(timeline: &Timeline) -> Vec<Value> {
    let names = timeline.names.iter();
    names
        .map(|(category, name)| json!([category.text(), name]))
        .collect()
}

/// Writes the rows with their spans, each as numbers: the start as the distance from the start of
/// the span before, the length, and the name. Single spans have their value behind that, merged
/// ones their number, the sum of their times, and the longest.
fn rows(out: &mut impl Write, clock: &Clock, page: &mut Page) -> io::Result<()> {
    let timeline = &mut page.timeline;
    timeline.sort();
    let mut order: Vec<usize> = (0..timeline.rows.len()).collect();
    order.sort_by_key(|row| timeline.rows.get(*row).map(|row| (row.process, row.key)));
    for (at, number) in order.into_iter().enumerate() {
        let Some(row) = timeline.rows.get(number) else {
            continue;
        };
        let from = timeline
            .spans
            .partition_point(|span| (span.row as usize) < number);
        let until = timeline
            .spans
            .partition_point(|span| span.row as usize <= number);
        let spans = timeline.spans.get(from..until).unwrap_or_default();
        let comma = if at == 0 { "" } else { ",\n" };
        let name = Value::from(row.name.as_str());
        write!(
            out,
            "{comma}{{\"process\":{},\"name\":{name},\"spans\":[",
            row.process
        )?;
        let mut before = 0;
        let mut follows = "";
        for span in spans.iter().filter(|span| span.count == 1) {
            let start = clock.of_time(span.start);
            let time = exact(span.sum);
            let value = exact(span.value);
            write!(
                out,
                "{follows}{},{time},{},{value}",
                start - before,
                span.name
            )?;
            (before, follows) = (start, ",");
        }
        write!(out, "],\"merged\":[")?;
        (before, follows) = (0, "");
        for span in spans.iter().filter(|span| span.count > 1) {
            let start = clock.of_time(span.start);
            let [time, sum, longest] = [span.end - span.start, span.sum, span.longest].map(exact);
            let (name, count) = (span.name, span.count);
            write!(
                out,
                "{follows}{},{time},{name},{count},{sum},{longest}",
                start - before
            )?;
            (before, follows) = (start, ",");
        }
        write!(out, "]}}")?;
    }
    Ok(())
}

/// Writes the curves: start, length and value of each step.
fn curves(out: &mut impl Write, clock: &Clock, page: &mut Page) -> io::Result<()> {
    for (at, curve) in page.series.curves.iter_mut().enumerate() {
        curve.values.sort_by_key(|value| value.start);
        let comma = if at == 0 { "" } else { ",\n" };
        let name = Value::from(curve.name.as_str());
        write!(
            out,
            "{comma}{{\"process\":{},\"name\":{name},\"values\":[",
            curve.process
        )?;
        let mut follows = "";
        for value in &curve.values {
            let (start, time) = (clock.of_time(value.start), exact(value.end - value.start));
            let shown = Value::from(value.mean);
            write!(out, "{follows}{start},{time},{shown}")?;
            follows = ",";
        }
        write!(out, "]}}")?;
    }
    Ok(())
}

fn exact(number: u64) -> u64 {
    number.min(MOST_EXACT as u64)
}

/// The times of the page, all `CLOCK_BOOTTIME` nanoseconds.
struct Clock {
    /// The start of the first session, from which the page counts.
    zero: u64,
    /// The first and the last instant at which something is.
    begin: u64,
    end: u64,
}

impl Clock {
    fn of(jobs: &[Job<'_>], page: &Page) -> Clock {
        let sessions = jobs.iter().map(|job| &job.trace.process);
        let known = sessions.filter(|process| process.init_time != 0);
        let known = known.map(|process| (process.init_time, process.fini_time));
        let spans = page
            .timeline
            .spans
            .iter()
            .map(|span| (span.start, span.end));
        let curves = page.series.curves.iter().flat_map(|curve| &curve.values);
        let values = curves.map(|value| (value.start, value.end));
        let all: Vec<(u64, u64)> = known.collect();
        let first =
            |times: &mut dyn Iterator<Item = (u64, u64)>| times.map(|(start, _)| start).min();
        let found = first(&mut spans.clone().chain(values.clone()));
        let zero = first(&mut all.iter().copied()).or(found).unwrap_or(0);
        let ends = spans.chain(values).chain(all).map(|(_, end)| end);
        Clock {
            zero,
            begin: found.map_or(zero, |found| found.min(zero)),
            end: ends.max().unwrap_or(zero).max(zero),
        }
    }

    /// Returns the time since the first session started.
    fn of_time(&self, time: u64) -> i64 {
        let since = i128::from(time) - i128::from(self.zero);
        since.clamp(-MOST_EXACT, MOST_EXACT) as i64
    }
}

/// Writes JSON so that it cannot end the element that it is in. These characters are only within
/// JSON's texts.
pub(crate) struct Escaped<W>(pub(crate) W);

impl<W: Write> Write for Escaped<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        while let Some(at) = rest
            .iter()
            .position(|byte| matches!(byte, b'<' | b'>' | b'&'))
        {
            let (before, from) = rest.split_at(at);
            self.0.write_all(before)?;
            let byte = from.first().copied().unwrap_or_default();
            write!(self.0, "\\u{byte:04x}")?;
            rest = from.get(1..).unwrap_or_default();
        }
        self.0.write_all(rest)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::timeline::{Key, Span};
    use super::*;

    #[test]
    fn no_text_ends_the_block_of_data() {
        let mut out = Vec::new();
        let text = "</script><img src=x onerror=alert(1)>&amp;<!-- ü";
        write!(Escaped(&mut out), "{}", Value::from(text)).unwrap();
        let written = String::from_utf8(out).unwrap();
        assert!(!written.contains(['<', '>', '&']), "{written}");
        let read: String = serde_json::from_str(&written).unwrap();
        assert_eq!(read, text);
    }

    #[test]
    fn what_is_behind_the_escapes_is_flushed() {
        let mut out = io::BufWriter::new(Vec::new());
        let mut escaped = Escaped(&mut out);
        escaped.write_all(b"<").unwrap();
        escaped.flush().unwrap();
        assert_eq!(out.get_ref(), b"\\u003c");
    }

    const CLOCK: Clock = Clock {
        zero: 1000,
        begin: 900,
        end: 9000,
    };

    fn written(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn spans_are_numbers_single_ones_before_merged_ones() {
        let mut page = Page::default();
        let timeline = &mut page.timeline;
        // Rows are shown by process and key, whatever the order in which they came.
        let thread = timeline.row(1, Key::Thread(7), || "\"seven\"".to_owned());
        let stream = timeline.row(0, Key::Stream(1, 0), || "stream".to_owned());
        let empty = timeline.row(0, Key::Main, || "main".to_owned());
        assert_eq!((thread, stream, empty), (0, 1, 2));
        timeline.add(stream, 4, (1500, 1510), 9);
        timeline.add(stream, 5, (900, 1000), 8);
        timeline.add(thread, 6, (2000, 2000), 0);
        for (start, count) in [(1600, 2), (3000, 3), (7000, 4)] {
            timeline.spans.push(Span {
                row: stream,
                name: 10 + count as u32,
                start,
                end: start + 100,
                sum: 10 * count,
                longest: 9,
                count,
                value: 77,
            });
        }
        let text = written(|out| rows(out, &CLOCK, &mut page));
        let wanted = "\
{\"process\":0,\"name\":\"stream\",\"spans\":[-100,100,5,8,600,10,4,9],\
\"merged\":[600,100,12,2,20,9,1400,100,13,3,30,9,4000,100,14,4,40,9]},
{\"process\":0,\"name\":\"main\",\"spans\":[],\"merged\":[]},
{\"process\":1,\"name\":\"\\\"seven\\\"\",\"spans\":[1000,0,6,0],\"merged\":[]}";
        assert_eq!(text, wanted);
    }

    #[test]
    fn curves_have_begin_length_and_value_in_the_order_of_time() {
        let mut page = Page::default();
        let series = &mut page.series;
        series.add(1, "waves".to_owned(), (2000, 2500), 1.5);
        series.add(1, "waves".to_owned(), (900, 1000), 4.0);
        series.add(0, "cycles".to_owned(), (1000, 1001), 7.0);
        let text = written(|out| curves(out, &CLOCK, &mut page));
        let wanted = "\
{\"process\":1,\"name\":\"waves\",\"values\":[-100,100,4.0,1000,500,1.5]},
{\"process\":0,\"name\":\"cycles\",\"values\":[0,1,7.0]}";
        assert_eq!(text, wanted);
    }

    #[test]
    fn numbers_stay_exact_in_a_browser() {
        const LARGEST: u64 = 9_007_199_254_740_991;
        for (number, wanted) in [
            (0, 0),
            (1234, 1234),
            (LARGEST, LARGEST),
            (LARGEST + 1, LARGEST),
            (u64::MAX, LARGEST),
        ] {
            assert_eq!(exact(number), wanted);
        }
        let largest = LARGEST as i64;
        assert_eq!(CLOCK.of_time(u64::MAX), largest);
        let late = Clock {
            zero: u64::MAX,
            ..CLOCK
        };
        assert_eq!(late.of_time(0), -largest);
        assert_eq!(late.of_time(u64::MAX - 5), -5);
    }
}
