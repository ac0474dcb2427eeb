//! Comma-separated files of millions of lines, read in one pass with a small buffer.

use crate::files;
use crate::files::{unreadable, unusable};
use crate::frame::{Column, Filling, Frame, Names, field};
use midair_failure::Failure;
use std::collections::HashSet;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The columns that name a process.
const PROCESS: [&str; 3] = ["PID", "Process_Id", "pid"];

/// What helps if a file is not as it should be.
pub(super) const DAMAGED: &str = "the file is damaged or has an unknown version: profile again";

/// How many bytes are read at once.
const BUFFER: usize = 1 << 20;
/// The longest permitted line, in bytes.
const LINE: usize = 64 << 20;

/// Reads a file line by line.
pub(crate) struct Lines<'p> {
    path: &'p Path,
    file: Box<dyn Read>,
    buffer: Vec<u8>,
    /// Where the next line starts in the buffer, and where the read bytes end.
    at: usize,
    end: usize,
    ended: bool,
    /// The number of the line that was returned last, from 1.
    pub(crate) line: usize,
}

impl<'p> Lines<'p> {
    pub(crate) fn open(path: &'p Path) -> Result<Lines<'p>, Failure> {
        let file = files::unpacked(path).map_err(|error| unreadable(path, &error))?;
        Ok(Lines {
            path,
            file,
            buffer: vec![0; BUFFER],
            at: 0,
            end: 0,
            ended: false,
            line: 0,
        })
    }

    /// Returns the next line without its end; None after the last. A line end within quotes is part
    /// of the line.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, Failure> {
        let mut from = self.at;
        let mut quoted = false;
        loop {
            let unread = &self.buffer[from..self.end];
            let found = match quoted {
                // The common case: there is no quote before the end of the line.
                false => unread.iter().position(|b| *b == b'\n' || *b == b'"'),
                true => unread.iter().position(|b| *b == b'"'),
            };
            match found {
                Some(place) if unread[place] == b'"' => {
                    quoted = !quoted;
                    from += place + 1;
                }
                Some(place) => {
                    let (start, end) = (self.at, from + place);
                    self.at = end + 1;
                    self.line += 1;
                    return Ok(Some(trimmed(&self.buffer[start..end])));
                }
                None if self.ended => {
                    let (start, end) = (self.at, self.end);
                    self.at = end;
                    self.line += 1;
                    return Ok((start < end).then(|| trimmed(&self.buffer[start..end])));
                }
                None => {
                    from = self.end;
                    from -= self.refill()?;
                }
            }
        }
    }

    /// Reads more bytes behind the unread ones. Returns how far these were moved towards the start.
    fn refill(&mut self) -> Result<usize, Failure> {
        let moved = self.at;
        self.buffer.copy_within(self.at..self.end, 0);
        self.end -= moved;
        self.at = 0;
        if self.end == self.buffer.len() {
            if self.end > LINE {
                return Err(unusable(format!(
                    "{}: line {} is too long",
                    self.path.display(),
                    self.line + 1
                )));
            }
            self.buffer.resize(self.end * 2, 0);
        }
        let read = self.file.read(&mut self.buffer[self.end..]);
        let read = read.map_err(|error| unreadable(self.path, &error))?;
        self.end += read;
        self.ended = read == 0;
        Ok(moved)
    }
}

fn trimmed(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Takes the next field off a line; None at the end of the line.
pub(crate) fn take_field<'l>(
    line: &mut Option<&'l [u8]>,
    unquoted: &mut Vec<u8>,
) -> Option<Word<'l>> {
    let rest = (*line)?;
    if rest.first() != Some(&b'"') {
        let end = rest.iter().position(|b| *b == b',');
        let (word, after) = match end {
            Some(end) => (&rest[..end], Some(&rest[end + 1..])),
            None => (rest, None),
        };
        *line = after;
        return Some(Word::Plain(word));
    }
    unquoted.clear();
    let mut at = 1;
    while let Some(b) = rest.get(at) {
        at += 1;
        if *b != b'"' {
            unquoted.push(*b);
        } else if rest.get(at) == Some(&b'"') {
            unquoted.push(b'"');
            at += 1;
        } else {
            break;
        }
    }
    // The quoted field is followed by a comma, or by the end of the line.
    *line = rest.get(at + 1..).filter(|_| rest.get(at) == Some(&b','));
    Some(Word::Unquoted)
}

/// A field: a part of the line, or in the buffer if it had quotes.
pub(crate) enum Word<'l> {
    Plain(&'l [u8]),
    Unquoted,
}

impl<'l> Word<'l> {
    pub(crate) fn bytes<'w>(&self, unquoted: &'w [u8]) -> &'w [u8]
    where
        'l: 'w,
    {
        match self {
            Word::Plain(word) => word,
            Word::Unquoted => unquoted,
        }
    }
}

/// Parses a number. NaN for an empty field, None for a field that is not a number.
pub(crate) fn number(word: &[u8]) -> Option<f64> {
    // Most fields are whole numbers.
    if !word.is_empty() && word.len() <= 15 && word.iter().all(u8::is_ascii_digit) {
        let whole = word
            .iter()
            .fold(0_u64, |all, b| all * 10 + u64::from(b - b'0'));
        return Some(whole as f64);
    }
    let text = std::str::from_utf8(word).ok()?.trim();
    match text {
        "" | "N/A" | "NaN" | "nan" | "None" | "<NA>" => Some(f64::NAN),
        text => text.parse().ok(),
    }
}

/// Parses a time in whole nanoseconds, which may be too large for a double; None for an empty
/// field.
pub(crate) fn time(word: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(word).ok()?.trim();
    text.parse().ok().or_else(|| {
        // Medians over passes have a fraction.
        let time = text.parse::<f64>().ok().filter(|time| time.is_finite())?;
        Some(time.round() as i64)
    })
}

/// Returns all fields of a line as texts.
pub(crate) fn words(line: &[u8]) -> Vec<String> {
    let (mut rest, mut unquoted, mut all) = (Some(line), Vec::new(), Vec::new());
    while let Some(word) = take_field(&mut rest, &mut unquoted) {
        let text = String::from_utf8_lossy(word.bytes(&unquoted));
        all.push(text.trim().to_owned());
    }
    all
}

/// Returns the one line of a file such as `sysinfo.csv`, with its headings.
pub(crate) fn single(path: &Path) -> Result<Vec<(String, String)>, Failure> {
    let mut lines = Lines::open(path)?;
    let headings = lines.next()?.map(words).unwrap_or_default();
    let values = lines.next()?.map(words);
    let Some(values) = values.filter(|values| values.len() >= headings.len()) else {
        return Err(unusable(format!(
            "{} has no complete data line",
            path.display()
        )));
    };
    let all = headings.into_iter().zip(values);
    Ok(all.filter(|(heading, _)| !heading.is_empty()).collect())
}

/// The dispatches that were read.
#[derive(Default)]
pub(crate) struct Dispatches {
    pub(crate) names: Names,
    pub(crate) kernel: Vec<u32>,
    pub(crate) start: Vec<i64>,
    pub(crate) end: Vec<i64>,
}

impl Dispatches {
    /// Returns a frame with kernels and times. A dispatch without a time has none in the frame.
    pub(crate) fn frame(self) -> Frame {
        let mut frame = Frame::new(self.names, self.kernel);
        let known = self.start.iter().copied().filter(|time| *time != i64::MIN);
        let origin = known.min().unwrap_or(0);
        let rows = frame.rows;
        let column = |times: &[i64]| {
            let mut filling = Filling::default();
            for time in times {
                filling.push(match *time {
                    i64::MIN => f64::NAN,
                    time => time.saturating_sub(origin) as f64,
                });
            }
            filling.finish(rows)
        };
        frame.origin = origin;
        frame.put(field::START, column(&self.start));
        frame.put(field::END, column(&self.end));
        frame
    }
}

/// What a column holds.
enum Holds {
    Kernel,
    Gpu,
    Start,
    End,
    /// A number, which goes into this filling.
    Number(usize),
    /// Something that is not used.
    Other,
}

/// Reads files with one line for each dispatch, one file after another.
pub(crate) fn wide(paths: &[&PathBuf]) -> Result<Frame, Failure> {
    let mut dispatches = Dispatches::default();
    let mut names: Vec<String> = Vec::new();
    let mut fillings: Vec<Filling> = Vec::new();
    let mut gpus = Filling::default();
    for path in paths {
        let mut lines = Lines::open(path)?;
        let headings = lines.next()?.map(words).unwrap_or_default();
        let mut holds = Vec::with_capacity(headings.len());
        for heading in &headings {
            holds.push(match canonical(heading) {
                field::KERNEL => Holds::Kernel,
                field::START => Holds::Start,
                field::END => Holds::End,
                name if has_words(name) => Holds::Other,
                field::GPU => Holds::Gpu,
                name => {
                    let known = names.iter().position(|known| known == name);
                    Holds::Number(known.unwrap_or_else(|| {
                        names.push(name.to_owned());
                        fillings.push(Filling::default());
                        names.len() - 1
                    }))
                }
            });
        }
        if !holds.iter().any(|it| matches!(it, Holds::Kernel)) {
            return Err(unusable(format!(
                "{} has no column {}",
                path.display(),
                field::KERNEL
            )));
        }
        if !holds.iter().any(|it| matches!(it, Holds::Start))
            || !holds.iter().any(|it| matches!(it, Holds::End))
        {
            return Err(unusable(format!("{} has no time columns", path.display())));
        }
        let mut unquoted = Vec::new();
        loop {
            let number_of_line = lines.line + 1;
            let Some(line) = lines.next()? else { break };
            if line.is_empty() {
                continue;
            }
            let row = dispatches.kernel.len();
            let (mut kernel, mut start, mut end) = (None, i64::MIN, i64::MIN);
            let mut rest = Some(line);
            let mut read = 0;
            for (column, holds) in holds.iter().enumerate() {
                let Some(word) = take_field(&mut rest, &mut unquoted) else {
                    break;
                };
                read = column + 1;
                let word = word.bytes(&unquoted);
                match holds {
                    Holds::Kernel => {
                        kernel = Some(dispatches.names.number(&String::from_utf8_lossy(word)));
                    }
                    Holds::Start => start = time(word).unwrap_or(i64::MIN),
                    Holds::End => end = time(word).unwrap_or(i64::MIN),
                    Holds::Gpu | Holds::Number(_) => {
                        let (value, filling) = match holds {
                            Holds::Number(index) => (number(word), &mut fillings[*index]),
                            _ => (number_of_gpu(word), &mut gpus),
                        };
                        let Some(value) = value else {
                            return Err(unusable(format!(
                                "{}: line {number_of_line}: {} is not a number: {}",
                                path.display(),
                                headings[column],
                                String::from_utf8_lossy(word)
                            ))
                            .hint(DAMAGED));
                        };
                        if filling.rows() < row {
                            filling.skip_to(row);
                        }
                        if filling.rows() == row {
                            filling.push(value);
                        }
                    }
                    Holds::Other => {}
                }
            }
            if end < start {
                // A clock that went back: no duration.
                (start, end) = (i64::MIN, i64::MIN);
            }
            let Some(kernel) = kernel.filter(|_| read == holds.len()) else {
                return Err(unusable(format!(
                    "{}: line {number_of_line} has {read} of {} fields",
                    path.display(),
                    holds.len()
                ))
                .hint("the file is not complete: profile again"));
            };
            dispatches.kernel.push(kernel);
            dispatches.start.push(start);
            dispatches.end.push(end);
        }
    }
    if dispatches.kernel.is_empty() {
        let path = paths.first().map(|path| path.display().to_string());
        return Err(unusable(format!(
            "{} has no dispatch",
            path.unwrap_or_default()
        )));
    }
    let rows = dispatches.kernel.len();
    let mut frame = dispatches.frame();
    for (name, filling) in names.iter().zip(fillings) {
        frame.put(name, filling.finish(rows));
    }
    if frame.named(field::DISPATCH).is_none() {
        let mut numbers = Filling::default();
        (0..rows).for_each(|row| numbers.push(row as f64));
        frame.put(field::DISPATCH, numbers.finish(rows));
    }
    frame.put(
        field::GPU,
        match gpus.rows() {
            0 => Column::Same(0.0),
            _ => gpus.finish(rows),
        },
    );
    Ok(frame)
}

/// Refuses a file that should have one line for each dispatch but has several for one.
pub(super) fn once(path: &Path, frame: &Frame) -> Result<(), Failure> {
    let at = |name: &str, row: usize| frame.named(name).map_or(f64::NAN, |it| it.get(row));
    let mut seen = HashSet::with_capacity(frame.rows);
    for row in 0..frame.rows {
        let id = at(field::DISPATCH, row);
        // Processes number their dispatches by themselves.
        let process = PROCESS.map(|name| at(name, row).to_bits());
        if !id.is_nan() && !seen.insert((id.to_bits(), process)) {
            return Err(unusable(format!(
                "{} has several lines for dispatch {id}",
                path.display()
            ))
            .hint(DAMAGED));
        }
    }
    Ok(())
}

/// Returns the number of a GPU, which may be written as `Agent 4`.
pub(super) fn number_of_gpu(word: &[u8]) -> Option<f64> {
    number(word.strip_prefix(b"Agent ").unwrap_or(word))
}

/// Whether a column has words that are not used: AMD's versions and ours write such columns. Any
/// other column has numbers.
fn has_words(heading: &str) -> bool {
    const WORDS: [&str; 10] = [
        "",
        "Agent_Id",
        "GUID",
        field::GROUP,
        "Kernel_Short_Name",
        "Node",
        "Queue_ID",
        "obj",
        "queue-id",
        "sig",
    ];
    // Joined passes number the columns that each of them has.
    let plain = heading.trim_end_matches(|end: char| end.is_ascii_digit());
    let plain = match plain.len() < heading.len() {
        true => plain.strip_suffix(['_', '.']).unwrap_or(heading),
        false => heading,
    };
    WORDS.contains(&plain) || plain != heading && plain == field::KERNEL
}

/// Returns the name of a column, whatever name a version has given it.
pub(crate) fn canonical(heading: &str) -> &str {
    match heading {
        "Dispatch_Id" => field::DISPATCH,
        "Correlation_Id" => field::CORRELATION,
        "Kernel_Id" => "Kernel_ID",
        "GPU-ID" | "gpu-id" => field::GPU,
        "KernelName" => field::KERNEL,
        "BeginNs" => field::START,
        "EndNs" => field::END,
        "grd" => field::GRID,
        "wgr" => field::WORKGROUP,
        "lds" | "LDS_Block_Size" => field::LDS,
        "scr" | "Scratch_Size" => "Scratch_Per_Workitem",
        "arch_vgpr" | "VGPR_Count" => "Arch_VGPR",
        "accum_vgpr" | "Accum_VGPR_Count" => "Accum_VGPR",
        "sgpr" | "SGPR_Count" => "SGPR",
        other => other,
    }
}
