//! The lines of the screen, from the header to the line of keys.

use crate::draw::{Line, Tone, bar};
use crate::rows::Row;
use crate::view::{By, View};
use crate::words::{bytes_rate, change, clock, number, percent, rate};
use crate::{code, details, processes};
use midair_live::{Device, Snapshot};
use midair_output::table::duration;
use midair_output::{distinct_labels, short_names};
use std::collections::{BTreeSet, HashMap};

/// The most heads of queues, and the most calls, that are shown.
const HEADS: usize = 6;
const WAITS: usize = 4;
/// The most lines of counters.
const COUNTERS: usize = 8;
/// The number of rows of kernels where the output has no last line.
const ROWS_OF_TEXT: usize = 20;

/// Keys and what they do.
const HELP: [&str; 10] = [
    "q            detach and quit",
    "s, S         sort by the next column, or by share again",
    "c            show lines of Python code, or kernels again",
    "/            filter kernels by name; Esc shows all",
    "space, p     pause or resume the screen",
    "up, down     select a kernel (also j and k)",
    "Enter        show its full name and durations; Esc returns",
    "r            record the next seconds to files",
    "?, h         this help",
    "Shares cover the last two seconds; changes compare with the two before.",
];

impl View {
    /// Returns the lines of the screen.
    pub(crate) fn lines(&self, columns: usize, rows: usize) -> Vec<Line> {
        let room = rows.saturating_sub(1);
        let mut lines = self.body(columns, room);
        lines.truncate(room);
        lines.resize(room, Line::empty());
        if rows > 0 {
            lines.push(self.last_line(columns));
        }
        lines
    }

    /// Returns all lines except the line of the keys.
    pub(crate) fn body(&self, columns: usize, rows: usize) -> Vec<Line> {
        let mut lines = vec![self.header(columns)];
        if self.snapshots.is_empty() {
            lines.push(Line::empty());
            let waits = "Waiting for a process with a GPU runtime.";
            lines.push(Line::new(Tone::Plain, waits.to_owned()));
            return lines;
        }
        if self.help {
            lines.push(Line::empty());
            lines.extend(HELP.map(|text| Line::new(Tone::Plain, text.to_owned())));
            return lines;
        }
        let kernels = self.rows();
        if self.open
            && let Some(row) = self.marked(&kernels).and_then(|at| kernels.get(at))
        {
            lines.push(Line::empty());
            let room = rows.saturating_sub(lines.len());
            lines.extend(details::lines(self, row, columns, room.min(40)));
            return lines;
        }
        // Lines above the kernels, each with its weight.
        let mut above: Vec<(u8, Line)> = Vec::new();
        let mut put = |weight: u8, of: Vec<Line>| {
            above.extend(of.into_iter().map(|line| (weight, line)));
        };
        put(6, processes::lines(self, columns));
        let several = self.snapshots.len() > 1;
        if !several {
            for device in self.snapshots.iter().flat_map(|it| &it.devices) {
                let mut of = self.device(device, columns);
                let causes = of.split_off(1.min(of.len()));
                put(5, of);
                put(1, causes);
            }
            let all = || self.snapshots.iter();
            put(3, all().flat_map(|it| counters(it, columns)).collect());
            put(2, all().flat_map(copies).collect());
            put(2, all().flat_map(waits).collect());
        }
        put(4, self.heads(columns, several));
        put(0, vec![Line::empty()]);
        // On a low terminal some kernels are worth more than all that is said above them.
        let least = 1 + kernels.len().min(LEAST_KERNELS);
        while lines.len() + above.len() + least > rows
            && let Some(at) = (0..above.len()).rev().min_by_key(|at| above[*at].0)
        {
            above.remove(at);
        }
        lines.extend(above.into_iter().map(|(_, line)| line));
        let room = rows.saturating_sub(lines.len() + 1).min(match rows {
            usize::MAX => ROWS_OF_TEXT,
            rows => rows,
        });
        lines.extend(self.kernels(&kernels, columns, room));
        lines
    }

    fn header(&self, columns: usize) -> Line {
        let all = &self.snapshots;
        let who = match all.as_slice() {
            [] => String::new(),
            [one] => format!("{} ({})", one.name, one.pid),
            many => {
                let alive = many.iter().filter(|it| it.ended.is_none()).count();
                midair_failure::plain::counted(alive, "process", "processes")
            }
        };
        let since = all.iter().map(|it| it.now.saturating_sub(it.since)).max();
        let records: f64 = all.iter().map(|it| it.records_rate).sum();
        let lost: u64 = all.iter().map(|it| it.lost).sum();
        let worker: Vec<f64> = all.iter().filter_map(|it| it.worker).collect();
        let there = worker.iter().sum::<f64>() / worker.len().max(1) as f64;
        let mut parts = vec![format!("midair top  {who}")];
        if let Some(since) = since {
            parts.push(clock(since));
            parts.push(format!("{} records/s", rate(records)));
            parts.push(format!(
                "own {} here, {} there",
                percent(self.own),
                percent(there)
            ));
        }
        if lost > 0 {
            parts.insert(2, format!("{lost} LOST"));
        }
        if let [one] = all.as_slice()
            && let Some(how) = &one.ended
        {
            parts.insert(1, format!("ENDED: {how}"));
        }
        if self.paused {
            parts.insert(1, "PAUSED".to_owned());
        }
        // On a narrow terminal, the least important parts are left out first.
        while parts.len() > 1 && parts.join("  ").chars().count() > columns {
            parts.pop();
        }
        let tone = if lost > 0 { Tone::Bad } else { Tone::Head };
        Line::new(tone, parts.join("  "))
    }

    fn device(&self, device: &Device, columns: usize) -> Vec<Line> {
        let idle = device.idle;
        let causes = [
            ("copies", idle.copies),
            ("launching", idle.launching),
            ("host waits", idle.waiting),
            ("nothing queued", idle.nothing),
        ];
        let causes: Vec<String> = causes
            .iter()
            .filter(|cause| cause.1 >= 0.0005)
            .map(|(word, share)| format!("{word} {}", percent(*share)))
            .collect();
        let width = if columns >= 100 { 30 } else { 12 };
        let drawn = bar(device.busy, width, self.look.unicode);
        let busy = format!(
            "GPU {:<3} busy [{drawn:<width$}] {:>6}",
            device.gpu,
            percent(device.busy)
        );
        let idle = match causes.is_empty() {
            true => String::new(),
            false => format!("  idle: {}", causes.join(", ")),
        };
        if busy.chars().count() + idle.len() <= columns {
            return vec![Line::new(Tone::Good, busy + &idle)];
        }
        let mut lines = vec![Line::new(Tone::Good, busy)];
        let mut line = "       idle:".to_owned();
        for (at, cause) in causes.iter().enumerate() {
            let comma = if at + 1 < causes.len() { "," } else { "" };
            if line.len() + cause.len() + 2 > columns {
                lines.push(Line::new(Tone::Plain, line));
                line = "            ".to_owned();
            }
            line.push_str(&format!(" {cause}{comma}"));
        }
        lines.push(Line::new(Tone::Plain, line));
        lines
    }

    /// Returns what runs at the heads of queues, the longest first.
    fn heads(&self, columns: usize, several: bool) -> Vec<Line> {
        let mut heads: Vec<(String, &midair_live::Head)> = Vec::new();
        for snapshot in &self.snapshots {
            for queue in &snapshot.queues {
                if let Some(head) = &queue.head {
                    let place = match several {
                        true => format!("{} queue {}", snapshot.pid, queue.id),
                        false => format!("queue {} GPU {}", queue.id, queue.gpu),
                    };
                    heads.push((place, head));
                }
            }
        }
        heads.sort_by(|a, b| b.1.age.cmp(&a.1.age).then_with(|| a.0.cmp(&b.0)));
        let names: Vec<&str> = heads.iter().map(|(_, head)| head.name.as_str()).collect();
        let names = short(&names);
        let names = distinct_labels(
            &names,
            columns.saturating_sub(44).max(12),
            self.look.unicode,
        );
        let line = |((place, head), name): (&(String, &midair_live::Head), String)| {
            let more = match head.under_way {
                0 | 1 => String::new(),
                more => format!(", {} behind it", more - 1),
            };
            let age = duration(head.age as f64);
            Line::new(Tone::Plain, format!("{place:<14} {age:>8} in {name}{more}"))
        };
        let mut lines: Vec<Line> = heads.iter().zip(names).take(HEADS).map(line).collect();
        if heads.len() > HEADS {
            let more = format!("({} more queues)", heads.len() - HEADS);
            lines.push(Line::new(Tone::Dim, more));
        }
        lines
    }

    fn kernels(&self, kernels: &[Row], columns: usize, room: usize) -> Vec<Line> {
        let title = match self.by {
            By::Kernel => "KERNEL",
            By::Code => "CODE",
        };
        let narrow = columns < 72;
        let fixed = if narrow { 27 } else { 47 };
        let width = columns.saturating_sub(fixed).max(12);
        let head = match narrow {
            true => format!(
                "{:<width$}{:>8}{:>8}{:>10}",
                title, "SHARE", "CHANGE", "MEAN"
            ),
            false => format!(
                "{:<width$}{:>8}{:>8}{:>10}{:>10}{:>10}",
                title, "SHARE", "CHANGE", "PER S", "MEAN", "TOTAL"
            ),
        };
        let mut lines = vec![Line::new(Tone::Head, head)];
        let marked = self.marked(kernels);
        // The marked line has to be on the screen.
        let first = marked.map_or(0, |at| (at + 1).saturating_sub(room.max(1)));
        let names: Vec<&str> = kernels.iter().map(|row| row.name.as_str()).collect();
        let places: Vec<String> = kernels.iter().map(Row::hottest_in_words).collect();
        let longest = places.iter().map(String::len).max().unwrap_or(0);
        let (room_of_name, unicode) = (width.saturating_sub(2 + longest), self.look.unicode);
        let names = match self.by {
            By::Kernel => distinct_labels(&short(&names), room_of_name, unicode),
            By::Code => code::fitted(&names, room_of_name, unicode),
        };
        for (at, (row, name)) in kernels.iter().zip(names).enumerate().skip(first).take(room) {
            let sign = if row.in_flight > 0 { '>' } else { ' ' };
            let place = places.get(at).map_or("", String::as_str);
            let mut text = format!("{sign}{name}{place}");
            let shown = text.chars().count();
            text.extend(std::iter::repeat_n(' ', width.saturating_sub(shown)));
            text.push_str(&format!(
                "{:>8}{:>8}",
                percent(row.share),
                change(row.change)
            ));
            let mean = duration(row.total.mean());
            text.push_str(&match narrow {
                true => format!("{mean:>10}"),
                false => format!(
                    "{:>10}{mean:>10}{:>10}",
                    rate(row.rate),
                    duration(row.total.total as f64)
                ),
            });
            let tone = match marked == Some(at) {
                true => Tone::Marked,
                false => Tone::Plain,
            };
            lines.push(Line::new(tone, text));
        }
        if self.by == By::Code {
            let reasons = self.snapshots.iter().filter_map(|it| it.no_stacks.as_ref());
            let different: BTreeSet<&String> = reasons.collect();
            let reason = |why: &String| Line::new(Tone::Bad, why.clone());
            lines.extend(different.into_iter().map(reason));
        }
        lines
    }

    fn last_line(&self, columns: usize) -> Line {
        if let Some(typed) = &self.typed {
            return Line::new(Tone::Head, format!("/{typed}_"));
        }
        if !self.message.is_empty() {
            return Line::new(Tone::Head, self.message.clone());
        }
        let filter = match self.filter.is_empty() {
            true => String::new(),
            false => format!("  only '{}'", self.filter),
        };
        let sort = self.sort.word();
        let other = match self.by {
            By::Kernel => "code",
            By::Code => "kernels",
        };
        // The first one that fits, or else the shortest.
        let [long, middle, short] = [
            format!(
                "q quit  s sort ({sort})  c {other}  / filter  space pause  Enter details  r record  ? help{filter}"
            ),
            format!(
                "q quit  s sort ({sort})  c {other}  / filter  space  Enter  r record  ? help{filter}"
            ),
            format!("q s:{sort} c:{other} / space Enter r ?{filter}"),
        ];
        let mut fitting = [long, middle].into_iter();
        let text = fitting.find(|text| text.chars().count() <= columns);
        Line::new(Tone::Dim, text.unwrap_or(short))
    }
}

/// The kernels that are shown, if there are as many, before anything stands above them.
const LEAST_KERNELS: usize = 4;

/// Returns the counters of whole GPUs, as many on a line as there is room for.
fn counters(snapshot: &Snapshot, columns: usize) -> Vec<Line> {
    let mut lines: Vec<String> = Vec::new();
    let mut of = None;
    for counter in &snapshot.counters {
        let unit = match counter.unit.as_str() {
            "" | "/s" => counter.unit.clone(),
            other => format!(" {other}"),
        };
        let word = format!("  {} {}{unit}", counter.name, number(counter.mean));
        let fits = lines.last().is_some_and(|line: &String| {
            of == Some(counter.gpu) && line.chars().count() + word.chars().count() <= columns
        });
        match lines.last_mut().filter(|_| fits) {
            Some(line) => line.push_str(&word),
            None => lines.push(format!("counter GPU {}{word}", counter.gpu)),
        }
        of = Some(counter.gpu);
    }
    let more = lines.len().saturating_sub(COUNTERS);
    lines.truncate(COUNTERS);
    if more > 0 {
        lines.push(format!("({more} more lines of counters: --json)"));
    }
    let line = |text| Line::new(Tone::Plain, text);
    lines.into_iter().map(line).collect()
}

fn copies(snapshot: &Snapshot) -> Option<Line> {
    let parts: Vec<String> = snapshot
        .copies
        .iter()
        .map(|copies| format!("{} {}", copies.name, bytes_rate(copies.rate)))
        .collect();
    let text = format!("copies  {}", parts.join("  "));
    (!parts.is_empty()).then(|| Line::new(Tone::Plain, text))
}

/// Returns the calls that wait, by time now.
fn waits(snapshot: &Snapshot) -> Option<Line> {
    let waits = snapshot
        .calls
        .iter()
        .filter(|call| call.waits && call.threads > 0.0005);
    let parts: Vec<String> = waits
        .take(WAITS)
        .map(|call| format!("{} {} of a thread", call.name, percent(call.threads)))
        .collect();
    let text = format!("waits   {}", parts.join("  "));
    (!parts.is_empty()).then(|| Line::new(Tone::Plain, text))
}

/// Returns each name without the parts that do not help to recognise the kernel, as the table after
/// an attach has it. Different names stay different.
fn short(names: &[&str]) -> Vec<String> {
    let different: BTreeSet<&str> = names.iter().copied().collect();
    let different: Vec<&str> = different.into_iter().collect();
    let known: HashMap<&str, String> = different
        .iter()
        .copied()
        .zip(short_names(&different))
        .collect();
    let of = |name: &&str| known.get(name).cloned().unwrap_or_default();
    names.iter().map(of).collect()
}
