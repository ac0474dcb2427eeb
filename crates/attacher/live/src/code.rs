//! The lines of the application's code that launch work (`--stacks`), by the time of that work.

use crate::fast::Fast;
use crate::histogram::Histogram;
use crate::lane::Span;
use crate::ran::Ran;
use crate::recent::windows;
use midair_output::{CodeLine, LATE, LiveGraphs, Stacks, Stat};
use midair_record::event::{GraphBuild, Kernel, NO_STACKS, Record, graph_build};
use std::collections::HashMap;

/// The most lines that have a row of their own. The others share one.
const MOST_LINES: usize = 4096;
/// The most bytes of the names of files and functions.
const MOST_NAME_BYTES: usize = 32 << 20;
/// The most launches whose work has come before their stack, in each of two seconds.
const MOST_WAITING: usize = 1 << 15;
/// How long work waits for the stack of its launch, ns. It is counted as launched without one then.
const PATIENCE: u64 = 1_000_000_000;
/// The name of the lines beyond the limit.
const FURTHER: &str = "(further lines)";

/// A line of code.
#[derive(Debug, Clone, Default)]
pub struct Line {
    /// The line.
    pub code: CodeLine,
    /// Its work's current share of the time of all kernels and copies.
    pub share: f64,
    /// Its share in the window before, to show the change.
    pub before: f64,
    /// The current rate of its kernels and copies that ended, per second.
    pub rate: f64,
    /// The times of its kernels and copies since the attach.
    pub total: Stat,
    /// The same times.
    pub histogram: Histogram,
}

/// Work without a stack so far, by the correlation id of its launch.
type Waiting = HashMap<u64, Vec<Span>, Fast>;

/// What the records say about lines.
#[derive(Debug)]
pub(crate) struct Code {
    stacks: Stacks,
    name_bytes: usize,
    lines: Vec<(CodeLine, Ran)>,
    by_name: HashMap<String, usize>,
    by_stack: HashMap<u32, usize, Fast>,
    /// Work whose launch has not come yet: of this second, and of the one before.
    waiting: [Waiting; 2],
    since: u64,
    /// Kernels that may be of HIP's graphs.
    graphs: LiveGraphs,
    /// Whether functions have got names since the lines were named.
    has_names: bool,
    /// Why no stacks are taken.
    why_none: Option<String>,
}

impl Code {
    pub(crate) fn new() -> Code {
        Code {
            stacks: Stacks::recent(),
            name_bytes: 0,
            lines: Vec::new(),
            by_name: HashMap::new(),
            by_stack: HashMap::default(),
            waiting: Default::default(),
            since: 0,
            graphs: LiveGraphs::default(),
            has_names: false,
            why_none: None,
        }
    }

    /// Returns why the session takes no stacks, where that was asked for.
    pub(crate) fn why_none(&self) -> Option<String> {
        self.why_none.clone()
    }

    /// Takes a record that is about stacks.
    pub(crate) fn learn(&mut self, record: &Record<'_>) {
        match record {
            Record::Code(code, file, name) => {
                self.has_names |= self.stacks.function(code.header.operation).is_some();
                self.name_bytes += file.len() + name.len();
                if self.name_bytes > MOST_NAME_BYTES {
                    return;
                }
            }
            Record::Note(text) => {
                let text = String::from_utf8_lossy(text);
                if text.starts_with(NO_STACKS) {
                    self.why_none = Some(text.into_owned());
                }
            }
            _ => {}
        }
        self.stacks.learn(record);
        if let Record::LaunchStack(launch) = record {
            let id = launch.correlation;
            let of = |waiting: &mut Waiting| waiting.remove(&id).unwrap_or_default();
            let spans: Vec<Span> = self.waiting.iter_mut().flat_map(of).collect();
            spans.into_iter().for_each(|span| self.add(id, span));
        }
    }

    /// Takes a step on the way to the kernels of a graph.
    pub(crate) fn add_step(&mut self, step: &GraphBuild) {
        match step.header.operation {
            graph_build::NODE | graph_build::NODE_COPY => {
                self.stacks.learn(&Record::GraphBuild(*step));
            }
            _ => self.graphs.add(step),
        }
    }

    /// Takes a kernel. One of a graph belongs to the line that captured its node, if that is known: `node`,
    /// or 0; None for HIP. `is_own` says whether it is the program's rather than a copy of the runtime's.
    pub(crate) fn add_kernel(&mut self, kernel: &Kernel, node: Option<u64>, is_own: bool) {
        let may_wait = node.is_none() && self.stacks.is_on;
        if !may_wait || !self.graphs.take(kernel, is_own) {
            self.add_at(self.stacks.of_node(node.unwrap_or(0)), kernel);
        }
    }

    /// Counts a kernel at a stack, or else (0) where it was launched.
    fn add_at(&mut self, stack: u32, kernel: &Kernel) {
        let span = (kernel.start, kernel.end);
        if stack == 0 {
            self.add(kernel.correlation, span);
        } else {
            let line = self.line(stack);
            self.count(line, span);
        }
    }

    /// Takes a kernel or a copy.
    pub(crate) fn add(&mut self, correlation: u64, span: Span) {
        if !self.stacks.is_on {
            return;
        }
        let stack = self.stacks.of_launch(correlation);
        let [waiting, _] = &mut self.waiting;
        if stack == 0 && waiting.len() < MOST_WAITING {
            waiting.entry(correlation).or_default().push(span);
        } else {
            let line = self.line(stack);
            self.count(line, span);
        }
    }

    fn count(&mut self, line: usize, span: Span) {
        if let Some((_, ran)) = self.lines.get_mut(line) {
            ran.add(span);
        }
    }

    /// Returns the place of a stack's line.
    fn line(&mut self, stack: u32) -> usize {
        if let Some(line) = self.by_stack.get(&stack) {
            return *line;
        }
        let mut code = CodeLine::of(&self.stacks, stack);
        if self.lines.len() >= MOST_LINES && !self.by_name.contains_key(&code.name) {
            code = CodeLine {
                name: FURTHER.to_owned(),
                ..CodeLine::default()
            };
        }
        let next = self.lines.len();
        let line = *self.by_name.entry(code.name.clone()).or_insert(next);
        // The description of a stack may come later.
        if stack == 0 || self.stacks.frames(stack).is_some() {
            self.by_stack.insert(stack, line);
        }
        if line == next {
            self.lines.push((code, Ran::default()));
        }
        line
    }

    /// Gives lines the names that functions have got since. Lines that have the same name now are one.
    fn rename(&mut self) {
        let mut stacks: HashMap<usize, Vec<(u32, CodeLine)>, Fast> = HashMap::default();
        for (stack, line) in &self.by_stack {
            let code = CodeLine::of(&self.stacks, *stack);
            stacks.entry(*line).or_default().push((*stack, code));
        }
        for (line, stacks) in stacks {
            let Some((old, _)) = self.lines.get(line) else {
                continue;
            };
            let Some((_, new)) = stacks.first().filter(|(_, new)| new != old) else {
                continue;
            };
            // Nothing says which of its work so far was whose.
            if stacks.iter().any(|(_, other)| other != new) {
                self.by_stack.retain(|_, at| *at != line);
                continue;
            }
            self.by_name.remove(&old.name);
            let into = *self.by_name.entry(new.name.clone()).or_insert(line);
            if into == line {
                if let Some((code, _)) = self.lines.get_mut(line) {
                    code.clone_from(new);
                }
                continue;
            }
            for (stack, _) in &stacks {
                self.by_stack.insert(*stack, into);
            }
            let Some((code, gone)) = self.lines.get_mut(line).map(std::mem::take) else {
                continue;
            };
            drop(code);
            if let Some((_, ran)) = self.lines.get_mut(into) {
                ran.merge(&gone);
            }
        }
    }

    /// Takes the present.
    pub(crate) fn pulse(&mut self, now: u64) {
        if self.graphs.has_kernels() {
            let mut found = Vec::new();
            self.graphs
                .pulse(now, |kernel, stack| found.push((*kernel, stack)));
            for (kernel, stack) in found {
                self.add_at(stack, &kernel);
            }
        }
        if std::mem::take(&mut self.has_names) {
            self.rename();
        }
        if now.saturating_sub(self.since) < PATIENCE {
            return;
        }
        self.since = now;
        let [waiting, before] = &mut self.waiting;
        let late = std::mem::replace(before, std::mem::take(waiting));
        if late.is_empty() {
            return;
        }
        let line = self.line(0);
        for span in late.into_values().flatten() {
            self.count(line, span);
        }
    }

    /// Returns the lines, by time now, then by time so far. None if the session takes no stacks.
    pub(crate) fn lines(&self, now: u64, per_second: impl Fn(u64) -> f64) -> Option<Vec<Line>> {
        if !self.stacks.is_on {
            return None;
        }
        // Kernels wait for what is known of graphs.
        let late = if self.graphs.has_kernels() { LATE } else { 0 };
        let (recent, before) = windows(now.saturating_sub(late));
        // Work that waits has no stack so far.
        let none = CodeLine::of(&self.stacks, 0);
        let known = self.by_name.get(&none.name);
        let known = known.and_then(|line| self.lines.get(*line));
        let mut without = known.map_or_else(Ran::default, |(_, ran)| ran.clone());
        for span in self.waiting.iter().flat_map(Waiting::values).flatten() {
            without.add(*span);
        }
        let is_line = |code: &CodeLine| *code != none && *code != CodeLine::default();
        let with = self.lines.iter().filter(|(code, _)| is_line(code));
        let all = with.map(|(code, ran)| (code, ran));
        let all = all.chain((without.total.calls > 0).then_some((&none, &without)));
        let sum = |of| {
            let ns: u64 = all.clone().map(|(_, ran)| ran.recent.sum(of).ns).sum();
            ns.max(1) as f64
        };
        let (all_now, all_before) = (sum(&recent), sum(&before));
        let line = |(code, ran): (&CodeLine, &Ran)| {
            let now = ran.recent.sum(&recent);
            Line {
                code: code.clone(),
                share: now.ns as f64 / all_now,
                before: ran.recent.sum(&before).ns as f64 / all_before,
                rate: per_second(now.calls),
                total: ran.total,
                histogram: ran.histogram.clone(),
            }
        };
        let mut lines: Vec<Line> = all.clone().map(line).collect();
        lines.sort_by(|a, b| {
            let by_share = b.share.total_cmp(&a.share);
            let by_total = b.total.total.cmp(&a.total.total);
            by_share
                .then(by_total)
                .then_with(|| a.code.name.cmp(&b.code.name))
        });
        Some(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_record::event::{
        Header, LaunchStack, Module, NativeCode, Stack, decode, encode, kind, note,
    };

    const SECOND: u64 = 1_000_000_000;
    const T: u64 = 1_000 * SECOND;

    fn tell(code: &mut Code, bytes: &[u8]) {
        code.learn(&decode(bytes).unwrap().0);
    }

    fn header(kind: u8, operation: u32) -> Header {
        Header {
            kind,
            operation,
            ..Header::default()
        }
    }

    /// A session with a function and two stacks, at its lines 31 and 32.
    fn session() -> Code {
        let mut code = Code::new();
        let function = midair_record::event::Code {
            header: header(kind::CODE, 1),
            file_len: 5,
            name_len: 4,
        };
        tell(&mut code, &encode(&function, b"/a.pymain"));
        for number in 0..3_u32 {
            let stack = Stack {
                header: header(kind::STACK, number),
                frames: number.min(1),
                is_cut: 0,
            };
            let frame = [1, 30 + number].map(u32::to_ne_bytes).concat();
            let frame = if number == 0 { &[] } else { &*frame };
            tell(&mut code, &encode(&stack, frame));
        }
        code
    }

    fn launch(code: &mut Code, correlation: u64, stack: u32) {
        let launch = LaunchStack {
            header: header(kind::LAUNCH_STACK, stack),
            correlation,
        };
        tell(code, &encode(&launch, &[]));
    }

    /// Name, count, and share in percent of each line.
    fn lines(code: &Code, now: u64) -> Vec<(String, u64, u64)> {
        let lines = code.lines(now, |count| count as f64).unwrap();
        let line = |line: Line| {
            let share = (100.0 * line.share).round() as u64;
            (line.code.name, line.total.calls, share)
        };
        lines.into_iter().map(line).collect()
    }

    fn row(name: &str, count: u64, share: u64) -> (String, u64, u64) {
        (name.to_owned(), count, share)
    }

    fn kernel(dispatch_id: u64) -> Kernel {
        Kernel {
            dispatch_id,
            correlation: 5,
            start: T,
            end: T + 1_000,
            grid: [64, 1, 1],
            ..Kernel::default()
        }
    }

    /// The dispatches of one launch, of which one is HIP's own, and a launch from before the attach.
    #[test]
    fn a_kernel_of_a_hip_graph_belongs_to_the_line_that_captured_it() {
        let mut code = session();
        let step = |operation, subject, made, end| GraphBuild {
            header: header(kind::GRAPH_BUILD, operation),
            subject,
            made,
            start: T + end - 1,
            end: T + end,
            ..GraphBuild::default()
        };
        let captured = GraphBuild {
            grid: [64, 1, 1],
            stack: 1,
            ..step(graph_build::LAUNCH, 7, 0, 2)
        };
        let replay = GraphBuild {
            correlation: 5,
            ..step(graph_build::REPLAY, 9, 0, 11)
        };
        let before = GraphBuild {
            correlation: 6,
            ..step(graph_build::REPLAY, 10, 0, 11)
        };
        code.add_kernel(&kernel(1), None, true);
        for step in [
            step(graph_build::INSTANTIATE, 8, 9, 4),
            replay,
            before,
            step(graph_build::END, 7, 8, 3),
            captured,
            step(graph_build::BEGIN, 7, 0, 1),
        ] {
            code.add_step(&step);
        }
        launch(&mut code, 5, 2);
        launch(&mut code, 6, 2);
        code.add_kernel(&kernel(2), None, false);
        let other = Kernel {
            correlation: 6,
            ..kernel(3)
        };
        code.add_kernel(&other, None, true);
        code.pulse(T + 2_000);
        assert_eq!(lines(&code, T), [], "they wait");
        code.pulse(T + 2_000 + LATE);
        let wanted = [row("/a.py:32 main", 2, 67), row("/a.py:31 main", 1, 33)];
        assert_eq!(lines(&code, T + SECOND), wanted);
    }

    #[test]
    fn a_kernel_of_a_graph_belongs_to_the_line_that_captured_its_node() {
        let mut code = session();
        let step = |operation, subject, made| GraphBuild {
            header: header(kind::GRAPH_BUILD, operation),
            subject,
            made,
            stack: 1,
            ..GraphBuild::default()
        };
        for step in [
            step(graph_build::NODE, 70, 0),
            step(graph_build::NODE_COPY, 70, 71),
        ] {
            code.add_step(&step);
        }
        launch(&mut code, 5, 2);
        for node in [71, 71, 90, 0] {
            code.add_kernel(&kernel(1), Some(node), true);
        }
        let wanted = [row("/a.py:31 main", 2, 50), row("/a.py:32 main", 2, 50)];
        assert_eq!(lines(&code, T + SECOND), wanted);
    }

    /// A place has its symbol's name some time after the first work of it, and two places may be of one function.
    #[test]
    fn lines_of_native_code_have_the_names_that_come_later() {
        let mut code = Code::new();
        let native = Stack {
            header: Header {
                flags: midair_record::event::NATIVE | midair_record::event::NO_PYTHON,
                ..header(kind::STACK, 0)
            },
            frames: 0,
            is_cut: 0,
        };
        tell(&mut code, &encode(&native, &[]));
        let module = Module {
            header: header(kind::MODULE, 1),
            path_len: 4,
            ..Module::default()
        };
        tell(&mut code, &encode(&module, b"/app"));
        for number in 1..4_u32 {
            let place = NativeCode {
                header: header(kind::NATIVE_CODE, number),
                module: 1,
                reserved: 0,
                address: u64::from(0x10 * number),
            };
            tell(&mut code, &encode(&place, &[]));
            let stack = Stack {
                header: header(kind::STACK, number),
                frames: 1,
                is_cut: 0,
            };
            let frame = [number, 0].map(u32::to_ne_bytes).concat();
            tell(&mut code, &encode(&stack, &frame));
            launch(&mut code, u64::from(number), number);
            code.add(u64::from(number), (T, T + 1_000));
        }
        let unnamed = [0x10, 0x20, 0x30].map(|at| row(&format!("/app app+{at:#x}"), 1, 33));
        assert_eq!(lines(&code, T + SECOND), unnamed);
        for (number, name) in [(1, "main"), (2, "step"), (3, "main")] {
            let function = midair_record::event::Code {
                header: header(kind::CODE, number),
                file_len: 4,
                name_len: 4,
            };
            tell(
                &mut code,
                &encode(&function, format!("/app{name}").as_bytes()),
            );
        }
        code.pulse(T + SECOND);
        let named = [row("/app main", 2, 67), row("/app step", 1, 33)];
        assert_eq!(lines(&code, T + SECOND), named);
        code.add(3, (T, T + 1_000));
        let named = [row("/app main", 3, 75), row("/app step", 1, 25)];
        assert_eq!(lines(&code, T + SECOND), named);
    }

    #[test]
    fn each_line_has_the_time_of_its_own_launches() {
        const OUTSIDE: &str = "(launched outside of Python)";
        let mut code = session();
        for (id, stack) in [(1, 1), (2, 2), (3, 1)] {
            launch(&mut code, id, stack);
        }
        let ms = SECOND / 1_000;
        // Two kernels of one launch, one of another, and one whose launch comes later.
        for (id, length) in [(1, 10), (1, 20), (2, 30), (4, 30), (5, 10)] {
            code.add(id, (T, T + length * ms));
        }
        let wanted = [
            row(OUTSIDE, 2, 40),
            row("/a.py:31 main", 2, 30),
            row("/a.py:32 main", 1, 30),
        ];
        assert_eq!(lines(&code, T + SECOND), wanted);
        launch(&mut code, 4, 2);
        let wanted = [
            row("/a.py:32 main", 2, 60),
            row("/a.py:31 main", 2, 30),
            row(OUTSIDE, 1, 10),
        ];
        assert_eq!(lines(&code, T + SECOND), wanted);
        // Work does not wait for ever, and is counted once.
        for second in 1..4 {
            code.pulse(T + second * SECOND);
        }
        assert!(code.waiting.iter().all(Waiting::is_empty));
        let all = lines(&code, T + SECOND);
        assert_eq!(all, wanted);
        let whole = code.lines(T, |count| count as f64).unwrap();
        assert!(
            whole
                .iter()
                .any(|line| line.code.whole() == "/a.py:31 main")
        );
    }

    #[test]
    fn without_stacks_there_are_no_lines() {
        let mut code = Code::new();
        code.add(1, (T, T + 1));
        assert!(code.lines(T, |count| count as f64).is_none() && code.why_none().is_none());
        let why = format!("{NO_STACKS}no reason");
        tell(&mut code, &note("another note"));
        tell(&mut code, &note(&why));
        tell(&mut code, &note("another note"));
        assert_eq!(code.why_none(), Some(why));
    }

    #[test]
    fn what_a_target_invents_is_limited() {
        let mut code = session();
        for id in 0..3 * MOST_WAITING as u64 {
            code.add(id, (T, T + 1));
        }
        assert_eq!(code.waiting[0].len(), MOST_WAITING);
        let counted: u64 = lines(&code, T).iter().map(|line| line.1).sum();
        assert_eq!(counted, 3 * MOST_WAITING as u64);
        for number in 0..2 * MOST_LINES as u32 {
            let stack = Stack {
                header: header(kind::STACK, 3 + number),
                frames: 1,
                is_cut: 0,
            };
            let frame = [1, 100 + number].map(u32::to_ne_bytes).concat();
            tell(&mut code, &encode(&stack, &frame));
            launch(&mut code, 1_000_000 + u64::from(number), 3 + number);
            code.add(1_000_000 + u64::from(number), (T, T + 1));
        }
        assert!(code.lines.len() <= MOST_LINES + 1);
        let all: u64 = code.lines.iter().map(|(_, ran)| ran.total.calls).sum();
        assert_eq!(all, 2 * MOST_LINES as u64 + 2 * MOST_WAITING as u64);
    }
}
