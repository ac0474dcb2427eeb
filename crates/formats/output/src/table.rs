//! The table at the end of `midair attach`: where the time went.
//!
//! These are plain functions from the index's sums to text. Names come from the target, so
//! everything that a terminal would interpret is removed.

use crate::labels::distinct_labels;
use crate::options::KernelNames;
use midair_demangle::shortened;
use midair_domain::{Ranked, sets};
use midair_failure::plain;
use midair_record::event::kind;
use midair_trace::activity::is_wait;
use midair_trace::api::Names;
use midair_trace::code;
use midair_trace::index::{Index, Stat};
use midair_trace::kernel_name::{Namer, UNSEEN_KERNEL};
use midair_trace::samples::{Hottest, Kernels};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::Write;

/// How a table looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// The columns of the terminal. Tables use up to 160 and need at least 40.
    pub columns: usize,
    /// Whether names are never cut, whatever the columns. This is for files and other programs.
    pub whole_names: bool,
    /// The rows of each table. The remaining entries are summed up in one more row.
    pub rows: usize,
    /// Whether titles are bold and bars are dim, through ANSI sequences.
    pub colour: bool,
    /// Whether bars and ellipses may use characters beyond ASCII.
    pub unicode: bool,
}

impl Default for Style {
    fn default() -> Self {
        Style {
            columns: 100,
            whole_names: false,
            rows: 10,
            colour: false,
            unicode: true,
        }
    }
}

/// The title of the table of lines of code.
pub(crate) const CODE: &str = "CODE";

/// The width of the columns behind the name, each including the space before it.
const CALLS: usize = 10;
const TOTAL: usize = 11;
const MEAN: usize = 11;
const SHARE: usize = 8;
const BAR: usize = 14;

#[derive(Debug, Clone)]
struct Line {
    name: String,
    stat: Stat,
}

/// One table, sorted by time with the longest first.
#[derive(Debug, Clone, Default)]
pub struct Section {
    title: String,
    lines: Vec<Line>,
    /// A note below the table.
    note: Option<String>,
    /// Whether its names are kernels' names.
    is_of_kernels: bool,
}

impl Section {
    /// Makes a table of these sums.
    pub fn new(title: &str, stats: HashMap<String, Stat>) -> Section {
        let lines = stats.into_iter().map(|(name, stat)| Line { name, stat });
        let mut lines: Vec<Line> = lines.collect();
        lines.sort_by(|a, b| {
            (Reverse(a.stat.total), &a.name).cmp(&(Reverse(b.stat.total), &b.name))
        });
        Section {
            title: title.to_owned(),
            lines,
            note: None,
            is_of_kernels: false,
        }
    }

    /// Returns the title.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Returns the note below it.
    pub(crate) fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Whether its names are kernels' names.
    pub(crate) fn is_of_kernels(&self) -> bool {
        self.is_of_kernels
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.note.is_none()
    }

    /// Returns its rows, with names in full length.
    pub fn rows(&self) -> impl Iterator<Item = (&str, &Stat)> {
        self.lines
            .iter()
            .map(|line| (line.name.as_str(), &line.stat))
    }

    /// Returns the nanoseconds of all its rows.
    pub fn total(&self) -> u64 {
        let totals = self.lines.iter().map(|line| line.stat.total);
        totals.fold(0, u64::saturating_add)
    }

    /// Returns the table as text, or an empty text where the table is empty.
    pub fn text(&self, style: Style) -> String {
        let mut out = text(&self.title, &self.lines, style);
        if let Some(note) = &self.note {
            out.push_str(note);
            out.push('\n');
        }
        out
    }
}

/// One of several sessions: its process, and what was recorded.
pub struct LabelledIndex<'a> {
    /// The process, in words.
    pub label: String,
    /// Its index.
    pub index: &'a Index,
}

/// Returns the tables of kernels, calls, copies, waits and markers of these sessions. Where there
/// are several, the first table has a row for each process.
pub fn sections(
    sessions: &[LabelledIndex<'_>],
    names: &Names,
    kernel_names: KernelNames,
) -> Vec<Section> {
    all_sections(sessions, names, kernel_names, true)
}

/// Returns the same tables with kernels' names in full length.
pub(crate) fn full_sections(
    sessions: &[LabelledIndex<'_>],
    names: &Names,
    kernel_names: KernelNames,
) -> Vec<Section> {
    all_sections(sessions, names, kernel_names, false)
}

fn all_sections(
    sessions: &[LabelledIndex<'_>],
    names: &Names,
    kernel_names: KernelNames,
    in_short: bool,
) -> Vec<Section> {
    let indexes: Vec<&Index> = sessions.iter().map(|session| session.index).collect();
    let mut all = parts(&indexes, names, kernel_names, in_short);
    if sessions.len() > 1 {
        all.insert(0, processes(sessions));
    }
    all
}

/// Returns the [`sections`] of one session as text, or an empty text when nothing was recorded.
pub fn summary(index: &Index, names: &Names, kernel_names: KernelNames, style: Style) -> String {
    let label = String::new();
    summary_together(
        &[LabelledIndex { label, index }],
        names,
        kernel_names,
        style,
    )
}

/// Returns the [`sections`] as text.
pub fn summary_together(
    sessions: &[LabelledIndex<'_>],
    names: &Names,
    kernel_names: KernelNames,
    style: Style,
) -> String {
    let all = sections(sessions, names, kernel_names);
    let all: Vec<String> = all.iter().map(|section| section.text(style)).collect();
    let all: Vec<&str> = all
        .iter()
        .map(String::as_str)
        .filter(|text| !text.is_empty())
        .collect();
    all.join("\n")
}

fn parts(
    indexes: &[&Index],
    names: &Names,
    kernel_names: KernelNames,
    in_short: bool,
) -> Vec<Section> {
    let mut markers: HashMap<String, Stat> = HashMap::new();
    for (message, stat) in indexes.iter().flat_map(|index| &index.markers) {
        markers.entry(message.clone()).or_default().merge(stat);
    }
    let mut headings: Vec<_> = midair_domain::built()
        .filter_map(|domain| Some((domain.files.table?, domain.kind)))
        .collect();
    headings.sort_by_key(|(heading, _)| heading.rank);
    // Domains that share a table are summed up under the first of them.
    headings.dedup_by_key(|(heading, _)| heading.rank);
    let part = |(heading, first): (Ranked, u8)| match first {
        kind::KERNEL_DISPATCH => kernels(indexes, heading.name, kernel_names, in_short),
        first if sets::MARKERS.contains(first) => {
            Section::new(heading.name, std::mem::take(&mut markers))
        }
        first if sets::HOOKED_CALLS.contains(first) => calls(indexes, names, heading.name),
        kind::SYNCHRONIZATION => waits(indexes, names, heading.name),
        first => Section::new(heading.name, work(indexes, names, first)),
    };
    let mut all: Vec<Section> = headings.into_iter().map(part).collect();
    let behind_kernels = all.iter().position(Section::is_of_kernels);
    all.insert(behind_kernels.map_or(0, |at| at + 1), code(indexes));
    all
}

/// Returns the lines of the application's code that launched work, by the GPU's time.
fn code(indexes: &[&Index]) -> Section {
    let mut by_line: HashMap<String, Stat> = HashMap::new();
    for (name, stat) in indexes.iter().flat_map(|index| code::by_line(index)) {
        by_line.entry(name).or_default().merge(&stat);
    }
    Section::new(CODE, by_line)
}

/// Returns the waits of the host: CUPTI's records of them or, where there are none, the calls that
/// waited.
fn waits(indexes: &[&Index], names: &Names, title: &str) -> Section {
    let recorded = work(indexes, names, kind::SYNCHRONIZATION);
    if !recorded.is_empty() {
        return Section::new(title, recorded);
    }
    let mut by_name: HashMap<String, Stat> = HashMap::new();
    for ((kind, operation), stat) in indexes.iter().flat_map(|index| &index.calls) {
        if is_wait(*kind, *operation) {
            let name = names.operation(*kind, *operation).into_owned();
            by_name.entry(name).or_default().merge(stat);
        }
    }
    Section::new(title, by_name)
}

/// Returns each process with its kernels, or with its calls where no process has any kernel.
fn processes(sessions: &[LabelledIndex<'_>]) -> Section {
    fn sum<'a>(stats: impl Iterator<Item = &'a Stat>) -> Stat {
        stats.fold(Stat::default(), |mut sum, stat| {
            sum.merge(stat);
            sum
        })
    }
    let kernels = sessions
        .iter()
        .any(|session| !session.index.kernels.is_empty());
    let mut by_process: HashMap<String, Stat> = HashMap::new();
    for session in sessions {
        let stat = if kernels {
            sum(session.index.kernels.values())
        } else {
            sum(session.index.calls.values())
        };
        // A process that has become another program had two sessions.
        by_process
            .entry(session.label.clone())
            .or_default()
            .merge(&stat);
    }
    let title = if kernels {
        "KERNELS OF PROCESS"
    } else {
        "CALLS OF PROCESS"
    };
    Section::new(title, by_process)
}

/// Returns kernels by their time on the device. Dispatches without times are not included. A line
/// below says how many there are.
fn kernels(indexes: &[&Index], title: &str, kernel_names: KernelNames, in_short: bool) -> Section {
    // Several code objects can have one kernel (a library loaded for each device). There is one
    // line for each name.
    let mut namer = Namer::new(kernel_names);
    let mut by_name: HashMap<String, Stat> = HashMap::new();
    for (index, (id, stat)) in indexes
        .iter()
        .flat_map(|index| index.kernels.iter().map(move |entry| (index, entry)))
    {
        let name = match index.symbols.get(id) {
            Some(symbol) => namer.name_or_symbol(&symbol.name),
            None => UNSEEN_KERNEL.to_owned(),
        };
        by_name.entry(name).or_default().merge(stat);
    }
    if in_short {
        by_name = shorter(by_name, kernel_names);
    }
    let mut section = Section::new(title, by_name);
    section.is_of_kernels = true;
    let timed: u64 = indexes
        .iter()
        .flat_map(|index| index.kernels.values())
        .map(|stat| stat.calls)
        .sum();
    let dispatches: u64 = indexes.iter().map(|index| index.dispatches).sum();
    let untimed = dispatches.saturating_sub(timed);
    let mut notes = hottest(indexes, &mut namer, kernel_names);
    if untimed > 0 {
        notes.push(format!(
            "{untimed} of {dispatches} dispatches have no times"
        ));
    }
    section.note = (!notes.is_empty()).then(|| notes.join("\n"));
    section
}

/// How many kernels have their hottest instruction below the table.
const HOTTEST: usize = 5;

/// Returns a line for each of the most sampled kernels.
fn hottest(indexes: &[&Index], namer: &mut Namer, kernel_names: KernelNames) -> Vec<String> {
    let mut all: Vec<(String, (Hottest, String))> = Vec::new();
    for index in indexes {
        if index.samples.is_empty() {
            continue;
        }
        let sampled = Kernels::of(index.symbols.values().map(|it| &it.record));
        for it in index.samples.hottest(&sampled) {
            let symbol = index.symbols.get(&it.kernel);
            let name = symbol.map(|symbol| namer.name_or_symbol(&symbol.name));
            let text = symbol.and_then(|symbol| {
                let object = index.code_objects.get(&symbol.record.code_object_id)?;
                let all = &index.instructions;
                let text = all.of_kernel(&symbol.record, &object.record, it.offset)?;
                Some(text.in_words())
            });
            let text = text.unwrap_or_default();
            all.push((name.unwrap_or_else(|| UNSEEN_KERNEL.to_owned()), (it, text)));
        }
    }
    all.sort_by_key(|(_, (it, _))| Reverse(it.all));
    all.truncate(HOTTEST);
    let (names, all): (Vec<String>, Vec<_>) = all.into_iter().unzip();
    let names = match kernel_names {
        KernelNames::Mangled => names,
        _ => shortened(&names),
    };
    let line = |(name, (it, text)): (String, (Hottest, String))| {
        let share = 100.0 * it.count as f64 / it.all as f64;
        let name = fit(&name, usize::MAX, true);
        format!(
            "hottest instruction: {name}+{:#x} has {share:.0} % of {} samples{text}",
            it.offset, it.all
        )
    };
    names.into_iter().zip(all).map(line).collect()
}

/// Returns the names of kernels from their mangled ones: demangled, and without what does not help
/// to recognise them, as far as they stay different.
pub fn kernel_labels(symbols: &[&[u8]]) -> Vec<String> {
    let mut namer = Namer::new(KernelNames::Demangled);
    let names: Vec<String> = symbols
        .iter()
        .map(|symbol| namer.name_or_symbol(symbol))
        .collect();
    shortened(&names)
}

/// Shortens demangled names by what does not help to recognise a kernel, where they stay different.
fn shorter(by_name: HashMap<String, Stat>, kernel_names: KernelNames) -> HashMap<String, Stat> {
    if kernel_names == KernelNames::Mangled {
        return by_name;
    }
    let (names, stats): (Vec<String>, Vec<Stat>) = by_name.into_iter().unzip();
    shortened(&names).into_iter().zip(stats).collect()
}

/// Returns calls of HIP, HSA and CUDA by the time between entry and return. A call within another
/// counts in both.
fn calls(indexes: &[&Index], names: &Names, title: &str) -> Section {
    let mut by_name: HashMap<String, Stat> = HashMap::new();
    for (key, stat) in indexes.iter().flat_map(|index| &index.calls) {
        let name = names.operation(key.0, key.1).into_owned();
        by_name.entry(name).or_default().merge(stat);
    }
    Section::new(title, by_name)
}

/// Returns the work of one domain by time: copies on their engine, fills, moves of unified memory,
/// waits.
fn work(indexes: &[&Index], names: &Names, kind: u8) -> HashMap<String, Stat> {
    let prefix = format!("{}_", names.kind(kind));
    let mut by_name: HashMap<String, Stat> = HashMap::new();
    for ((of, operation), stat) in indexes.iter().flat_map(|index| &index.work) {
        if *of == kind {
            let name = names.operation(kind, *operation).replace(&prefix, "");
            let name = name.to_lowercase().replace('_', " ");
            by_name.entry(name).or_default().merge(stat);
        }
    }
    by_name
}

fn text(title: &str, lines: &[Line], style: Style) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let all: u64 = lines
        .iter()
        .fold(0, |sum, line| sum.saturating_add(line.stat.total));
    let mut lines = lines.to_vec();
    fold_rest(&mut lines, style);

    let columns = style.columns.clamp(40, 160);
    // On a narrow terminal, the least important columns are left out first.
    let (mut bar, mut mean) = (BAR, MEAN);
    let fixed = |bar: usize, mean: usize| CALLS + TOTAL + mean + SHARE + bar;
    if columns < fixed(bar, mean) + 20 {
        bar = 0;
    }
    if columns < fixed(bar, mean) + 16 {
        mean = 0;
    }
    let longest = lines
        .iter()
        .map(|line| line.name.chars().count())
        .max()
        .unwrap_or(0)
        .max(title.len());
    let width = longest.min(columns - fixed(bar, mean)).max(8);

    let mut out = String::new();
    let (bold, dim, plain) = if style.colour {
        ("\x1b[1m", "\x1b[2m", "\x1b[0m")
    } else {
        ("", "", "")
    };
    let _ = write!(
        out,
        "{bold}{title:<width$}{:>CALLS$}{:>TOTAL$}",
        "CALLS", "TOTAL"
    );
    if mean > 0 {
        let _ = write!(out, "{:>MEAN$}", "MEAN");
    }
    let _ = writeln!(out, "{:>SHARE$}{plain}", "SHARE");
    let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
    let names = match style.whole_names {
        true => distinct_labels(&names, usize::MAX, style.unicode),
        false => distinct_labels(&names, width, style.unicode),
    };
    for (line, name) in lines.iter().zip(names) {
        let share = if all == 0 {
            0.0
        } else {
            line.stat.total as f64 / all as f64
        };
        let _ = write!(out, "{name:<width$}");
        let _ = write!(
            out,
            "{:>CALLS$}{:>TOTAL$}",
            line.stat.calls,
            duration(line.stat.total as f64)
        );
        if mean > 0 {
            let _ = write!(
                out,
                "{:>MEAN$}",
                duration(line.stat.total as f64 / line.stat.calls.max(1) as f64)
            );
        }
        let _ = write!(out, "{:>width$.1}%", share * 100.0, width = SHARE - 1);
        if bar > 0 {
            let drawn = draw(share, BAR - 2, style.unicode);
            if !drawn.is_empty() {
                let _ = write!(out, "  {dim}{drawn}{plain}");
            }
        }
        out.push('\n');
    }
    out
}

/// Sums the rows beyond the last one up in one line.
fn fold_rest(lines: &mut Vec<Line>, style: Style) {
    let rows = style.rows.max(1);
    // One line more than asked for takes no more space than the line that would replace it.
    if lines.len() <= rows + 1 {
        return;
    }
    let rest = lines.split_off(rows);
    let mut stat = Stat::default();
    for line in &rest {
        stat.merge(&line.stat);
    }
    lines.push(Line {
        name: format!("({} others)", rest.len()),
        stat,
    });
}

/// Returns the text in at most `width` characters, without control characters. A text that was cut
/// ends in an ellipsis.
pub(crate) fn fit(text: &str, width: usize, unicode: bool) -> String {
    let clean: Vec<char> = text
        .chars()
        .map(|c| if plain::is_obeyed(c) { '?' } else { c })
        .collect();
    if clean.len() <= width {
        return clean.into_iter().collect();
    }
    let ellipsis = if unicode { "…" } else { "..." };
    let kept = width.saturating_sub(ellipsis.chars().count());
    clean
        .into_iter()
        .take(kept)
        .chain(ellipsis.chars())
        .collect()
}

/// Returns a bar of at most `width` characters, in eighths where the terminal can show them.
fn draw(share: f64, width: usize, unicode: bool) -> String {
    let full = share.clamp(0.0, 1.0) * width as f64;
    if !unicode {
        return "#".repeat(full.round() as usize);
    }
    let eighths = (full * 8.0).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    bar.extend(
        " ▏▎▍▌▋▊▉"
            .chars()
            .nth(eighths % 8)
            .filter(|part| *part != ' '),
    );
    bar
}

/// Returns a duration in nanoseconds with three digits and a unit.
pub fn duration(nanoseconds: f64) -> String {
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let (unit, scale) = units
        .into_iter()
        .rev()
        .find(|(_, scale)| nanoseconds >= *scale)
        .unwrap_or(("ns", 1.0));
    let value = nanoseconds / scale;
    let digits = match value {
        v if unit == "ns" && v.fract() == 0.0 => 0,
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_record::event::{
        CodeObject, Header, Instruction, KernelSymbol, PcSample, Record, decode,
    };

    fn table(title: &str, stats: HashMap<String, Stat>, style: Style) -> String {
        Section::new(title, stats).text(style)
    }

    fn stats(entries: &[(&str, u64, u64)]) -> HashMap<String, Stat> {
        let stat = |(name, calls, total): &(&str, u64, u64)| {
            (
                (*name).to_owned(),
                Stat {
                    calls: *calls,
                    total: *total,
                    min: 1,
                    max: 2,
                    ..Stat::default()
                },
            )
        };
        entries.iter().map(stat).collect()
    }

    #[test]
    fn a_table_is_sorted_and_summed_up() {
        let entries = [
            ("a", 1, 500_000),
            ("bbb", 20, 250_000),
            ("c", 2, 150_000),
            ("d", 3, 60_000),
            ("e", 4, 40_000),
        ];
        let style = Style {
            rows: 3,
            columns: 80,
            unicode: false,
            ..Style::default()
        };
        let text = table("CALL", stats(&entries), style);
        let wanted = "\
CALL           CALLS      TOTAL       MEAN   SHARE
a                  1     500 us     500 us   50.0%  ######
bbb               20     250 us    12.5 us   25.0%  ###
c                  2     150 us    75.0 us   15.0%  ##
(2 others)         7     100 us    14.3 us   10.0%  #
";
        assert_eq!(text, wanted);
        assert_eq!(table("CALL", HashMap::new(), style), "");
    }

    #[test]
    fn lines_fit_the_terminal_and_obey_nothing() {
        let long =
            "void really::long::name<int, float, 3>(float const*, float const*, float*, int)"
                .repeat(3);
        let entries = [(long.as_str(), 1, 5), ("\x1b[31mred\n", 1, 3)];
        for columns in [0, 40, 47, 55, 60, 63, 72, 80, 120, 500] {
            for unicode in [true, false] {
                let text = table(
                    "KERNEL",
                    stats(&entries),
                    Style {
                        columns,
                        unicode,
                        ..Style::default()
                    },
                );
                assert_eq!(text.lines().count(), 3, "{text}");
                assert!(!text.contains('\x1b'));
                for line in text.lines() {
                    assert!(
                        line.chars().count() <= columns.clamp(40, 160),
                        "{columns}: {line:?}"
                    );
                }
            }
        }
        let coloured = table(
            "KERNEL",
            stats(&entries),
            Style {
                colour: true,
                ..Style::default()
            },
        );
        assert!(coloured.starts_with("\x1b[1mKERNEL"));
    }

    #[test]
    fn names_are_whole_where_nobody_counts_columns() {
        let long = "gemm<".to_owned() + &"float, ".repeat(40) + "1>";
        let entries = [(long.as_str(), 1, 5), ("short", 1, 3)];
        let style = Style {
            whole_names: true,
            ..Style::default()
        };
        let text = table("KERNEL", stats(&entries), style);
        assert!(text.contains(&long), "{text}");
        let cut = table("KERNEL", stats(&entries), Style::default());
        assert!(!cut.contains(&long) && cut.contains("…"), "{cut}");
    }

    #[test]
    fn sampled_kernels_have_their_hottest_instruction_below() {
        let mut index = Index::default();
        for (kernel_id, name) in [(1, "_Z4vaddPf.kd"), (2, "_Z5scalePf.kd")] {
            let symbol = KernelSymbol {
                kernel_id,
                code_object_id: 3,
                kernel_object: 1000 * kernel_id,
                name_len: name.len() as u32,
                ..KernelSymbol::default()
            };
            index.add(&Record::KernelSymbol(symbol, name.as_bytes()));
        }
        for (pc, count) in [(1000, 1), (1016, 3), (2004, 5)] {
            for _ in 0..count {
                index.add(&Record::PcSample(PcSample {
                    pc,
                    code_object_id: 3,
                    header: Header {
                        kind: kind::PC_SAMPLING_HOST_TRAP,
                        ..Header::default()
                    },
                    ..PcSample::default()
                }));
            }
        }
        let object = CodeObject {
            code_object_id: 3,
            load_base: 900,
            ..CodeObject::default()
        };
        index.add(&Record::CodeObject(object, b""));
        let line = "/home/me/job/vadd.hip:7";
        let record = Instruction::record(3, 116, "s_waitcnt lgkmcnt(0)", line);
        index.add(&decode(&record).unwrap().0);
        let section = kernels(&[&index], "KERNEL", KernelNames::default(), true);
        assert_eq!(
            section.note(),
            Some(
                "hottest instruction: scale+0x4 has 100 % of 5 samples\n\
                 hottest instruction: vadd+0x10 has 75 % of 4 samples: s_waitcnt lgkmcnt(0) (job/vadd.hip:7)"
            )
        );
    }

    #[test]
    fn kernels_of_one_short_name_keep_their_whole_ones() {
        let names = [
            "void a::k<1>(int)",
            "void b::k<1>(int)",
            "void a::j<1>(int)",
        ];
        let by_name = stats(&names.map(|name| (name, 1, 5)));
        let shown = shorter(by_name, KernelNames::default());
        let mut shown: Vec<String> = shown.into_keys().collect();
        shown.sort();
        assert_eq!(shown, ["j<1>", "void a::k<1>(int)", "void b::k<1>(int)"]);
    }

    #[test]
    fn durations_have_three_digits() {
        for (nanoseconds, wanted) in [
            (0.0, "0 ns"),
            (7.0, "7 ns"),
            (1_500.0, "1.50 us"),
            (12_345_678.0, "12.3 ms"),
            (3e11, "300 s"),
            (7.5, "7.50 ns"),
        ] {
            assert_eq!(duration(nanoseconds), wanted);
        }
    }

    #[test]
    fn columns_that_matter_least_are_left_out_first() {
        let entries = [("gemm", 1, 5)];
        let has = |columns| {
            let style = Style {
                columns,
                unicode: false,
                ..Style::default()
            };
            let text = table("KERNEL", stats(&entries), style);
            (text.contains('#'), text.contains("MEAN"))
        };
        // Without the bar a name has 20 columns next to the others, and without the mean 16.
        for (columns, wanted) in [
            (74, (true, true)),
            (73, (false, true)),
            (56, (false, true)),
            (55, (false, false)),
        ] {
            assert_eq!(has(columns), wanted, "{columns}");
        }
    }

    #[test]
    fn labels_of_kernels_are_demangled_and_short() {
        let symbols: [&[u8]; 3] = [b"_Z4vaddPKfS0_Pfi.kd", b"_ZN1a4gemmEi", b"_ZN1b4gemmEi"];
        assert_eq!(
            kernel_labels(&symbols),
            ["vadd", "a::gemm(int)", "b::gemm(int)"]
        );
        assert_eq!(kernel_labels(&[]), Vec::<String>::new());
    }

    #[test]
    fn processes_have_their_kernels_or_else_their_calls() {
        let stat = |calls: u64, time| {
            let mut stat = Stat::default();
            (0..calls).for_each(|_| stat.count(time));
            stat
        };
        let index = |kernels: &[u64], calls: &[u64]| {
            let mut index = Index::default();
            for (id, count) in (0..).zip(kernels) {
                index.kernels.insert(id, stat(*count, 10));
            }
            for (id, count) in (0..).zip(calls) {
                let call = (kind::HIP_RUNTIME_API_EXT, id);
                index.calls.insert(call, stat(*count, 7));
            }
            index
        };
        let told = |indexes: &[(&str, Index)]| {
            let sessions: Vec<LabelledIndex<'_>> = indexes
                .iter()
                .map(|(label, index)| LabelledIndex {
                    label: (*label).to_owned(),
                    index,
                })
                .collect();
            let section = processes(&sessions);
            let rows = section.rows();
            let rows = rows.map(|(name, stat)| (name.to_owned(), stat.calls, stat.total));
            (section.title().to_owned(), rows.collect::<Vec<_>>())
        };
        let row = |name: &str, calls, total| (name.to_owned(), calls, total);
        // One had two programs, and one has no kernels.
        let with = [
            ("a", index(&[1, 2], &[5])),
            ("b", index(&[], &[9])),
            ("a", index(&[4], &[5])),
        ];
        assert_eq!(
            told(&with),
            (
                "KERNELS OF PROCESS".to_owned(),
                vec![row("a", 7, 70), row("b", 0, 0)]
            )
        );
        let without = [("a", index(&[], &[1])), ("b", index(&[], &[2, 3]))];
        assert_eq!(
            told(&without),
            (
                "CALLS OF PROCESS".to_owned(),
                vec![row("b", 5, 35), row("a", 1, 7)]
            )
        );
    }
}
