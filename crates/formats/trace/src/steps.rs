//! The iterations of a program's main loop, found in the stacks of its launches (`--stacks`).
//!
//! A loop executes its lines in one order again and again, so where the line of a frame jumps back, an
//! iteration starts. The loop that is looked for is in the outermost frame whose line jumps back often
//! enough: training steps, or tokens of a model that generates. Launches of other threads (PyTorch's
//! backward pass) belong to the iteration, and to the line of the loop, during which they were made:
//! correlation ids count up in all threads together.
//!
//! An iteration has phases: one for each time that the loop goes on to another of its lines. A phase has the name of
//! the function that its line calls, such as `forward`, `backward` or `decode`.
//!
//! In native stacks the calls of a function stand for its lines, in the order of their addresses. They are read where
//! there are no Python frames.
//!
//! Nothing is said where that does not repeat.

use crate::frame_names::Part;
use crate::index::{Function, Launched, Stacks, TimedKernel};
use foldhash::fast::RandomState;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

/// The most frames of a stack, from the outermost one, in which the loop is looked for.
const MOST_DEPTH: usize = 200;
/// A line jumps back at least this often.
const FEWEST: usize = 5;
/// An outer loop has at least this part of the most frequent jumps: a step accumulates gradients over
/// some inner iterations, while a line that logs is executed once in many steps.
const OUTER: usize = 8;
/// The most frequent order of lines is in this part of the iterations at least: one in three.
const ALIKE: usize = 3;
/// A loop is looked for in a line that makes this part of the launches.
const NEARLY_ALL: f64 = 0.9;
/// The most phases of a recording. Later iterations have none.
const MOST_PHASES: usize = 1 << 18;
/// Functions through which PyTorch and decorators call others. A phase has the name of the function behind them.
const WRAPPERS: [&str; 6] = [
    "_wrapped_call_impl",
    "_call_impl",
    "wrapper",
    "wrapped",
    "decorate_context",
    "inner",
];

/// One iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// When its first kernel started, ns.
    pub start: u64,
    /// How long it was from there to the first kernel of the next iteration, ns.
    pub duration: u64,
    /// For how much of that a kernel ran, ns.
    pub busy: u64,
    /// The kernels that it launched.
    pub kernels: u64,
}

impl Step {
    /// Returns the part of the time in which no kernel ran.
    pub fn idle(&self) -> f64 {
        1.0 - self.busy as f64 / self.duration.max(1) as f64
    }
}

/// A line of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LoopLine {
    /// Its number.
    pub line: u32,
    /// The GPU's time of the kernels that were launched while it was executed, ns.
    pub time: u64,
    /// The number of these kernels.
    pub kernels: u64,
}

/// The part of an iteration in which the loop executes one of its lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phase {
    /// The line.
    pub line: u32,
    /// When the first kernel that was launched there started, ns.
    pub start: u64,
    /// How long it was from there to the first kernel of the next phase, ns.
    pub duration: u64,
}

/// The main loop of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MainLoop {
    /// The function that it is in.
    pub function: Function,
    /// The thread that executes it.
    pub tid: u32,
    /// Its lines, in order.
    pub lines: Vec<LoopLine>,
    /// The names of the functions that its lines call, without those that call none which launches.
    pub calls: BTreeMap<u32, String>,
    /// Its whole iterations, in order.
    pub steps: Vec<Step>,
    /// The phases of its iterations, in order.
    pub phases: Vec<Phase>,
    /// Whether its lines are the calls of a native function, numbered by their addresses from 1.
    pub is_native: bool,
    /// Kernels that came after the most that are looked at.
    pub left_out: u64,
}

impl MainLoop {
    /// Returns the median of the iterations' durations, ns.
    pub fn median(&self) -> u64 {
        let mut all: Vec<u64> = self.steps.iter().map(|step| step.duration).collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied().unwrap_or(0)
    }

    /// Returns the longest iteration, with its number from 1.
    pub fn slowest(&self) -> Option<(usize, &Step)> {
        let all = self.steps.iter().enumerate();
        all.max_by_key(|(at, step)| (step.duration, Reverse(*at)))
            .map(|(at, step)| (at + 1, step))
    }

    /// Returns the part of the time of all iterations in which no kernel ran.
    pub fn idle(&self) -> f64 {
        let all = || self.steps.iter();
        let sum = |of: fn(&Step) -> u64| all().map(of).fold(0, u64::saturating_add);
        1.0 - sum(|step| step.busy) as f64 / sum(|step| step.duration).max(1) as f64
    }
}

/// Finds the main loop. None where no line jumps back often enough.
pub fn main_loop(launched: &Launched, stacks: &Stacks) -> Option<MainLoop> {
    let mut kernels = launched.kernels.clone();
    kernels.sort_unstable_by_key(|kernel| (kernel.correlation, kernel.start));
    let paths = Paths::of(&kernels, stacks);
    let found = paths.find()?;
    let steps = steps(&kernels, &found.heads);
    if steps.len() < FEWEST - 1 {
        return None;
    }
    Some(MainLoop {
        function: stacks.function(found.function)?.clone(),
        tid: paths.tid,
        lines: lines(&kernels, &found),
        calls: paths.calls(&kernels, &found, stacks),
        phases: phases(&kernels, &found, &steps),
        steps,
        is_native: paths.is_native,
        left_out: launched.left_out,
    })
}

/// The outermost frames first: function and line.
type Path = Vec<(u32, u32)>;

/// The stacks of the launches of one thread.
struct Paths {
    tid: u32,
    /// Of each launch of the thread that has one: its kernel, and its stack.
    launches: Vec<(usize, u32)>,
    by_stack: HashMap<u32, Path, RandomState>,
    is_native: bool,
}

/// A loop, before its iterations are measured.
struct Found {
    function: u32,
    /// How many frames are outside of the loop's.
    depth: usize,
    /// The launches in the loop: kernel and line.
    lines: Vec<(usize, u32)>,
    /// The kernels at which iterations start.
    heads: Vec<usize>,
}

impl Paths {
    /// Reads the stacks of the thread that launched most of the kernels that have one.
    fn of(kernels: &[TimedKernel], stacks: &Stacks) -> Paths {
        let with_stack = |(at, kernel): (usize, &TimedKernel)| {
            let stack = stacks.of_launch(kernel.correlation);
            (stack != 0).then_some((kernel.tid, at, stack))
        };
        let all = || kernels.iter().enumerate().filter_map(with_stack);
        let mut threads: HashMap<u32, usize, RandomState> = HashMap::default();
        for (tid, ..) in all() {
            *threads.entry(tid).or_default() += 1;
        }
        let most = threads
            .iter()
            .max_by_key(|(tid, count)| (**count, Reverse(**tid)));
        let tid = most.map_or(0, |(tid, _)| *tid);
        let launches: Vec<(usize, u32)> = all()
            .filter(|(of, ..)| *of == tid)
            .map(|(_, at, stack)| (at, stack))
            .collect();
        let mut by_stack: HashMap<u32, Path, RandomState> = HashMap::default();
        for (_, stack) in &launches {
            by_stack
                .entry(*stack)
                .or_insert_with(|| path(stacks, *stack));
        }
        let is_native = !launches.is_empty() && by_stack.values().all(Path::is_empty);
        if is_native {
            let calls = calls_of(stacks);
            for (stack, path) in &mut by_stack {
                let frames = stacks.numbered_frames(*stack).into_iter().flatten();
                path.extend(frames.filter_map(|(place, _)| calls.get(&place).copied()));
                path.reverse();
            }
        }
        Paths {
            tid,
            launches,
            by_stack,
            is_native,
        }
    }

    /// Goes from the outermost frame inwards until a line jumps back often enough.
    fn find(&self) -> Option<Found> {
        let mut launches = self.launches.clone();
        for depth in 0..MOST_DEPTH {
            let frame = |stack: u32| self.by_stack.get(&stack)?.get(depth).copied();
            let function = most_frequent(
                launches
                    .iter()
                    .filter_map(|(_, stack)| Some(frame(*stack)?.0)),
            )?;
            launches.retain(|(_, stack)| frame(*stack).is_some_and(|(of, _)| of == function));
            // A smaller part of the program than this is not its main loop.
            if 2 * launches.len() < self.launches.len() {
                return None;
            }
            let lines: Vec<(usize, u32)> = launches
                .iter()
                .filter_map(|(at, stack)| Some((*at, frame(*stack)?.1)))
                .collect();
            let line = most_frequent(lines.iter().map(|(_, line)| *line))?;
            match heads(&lines) {
                Jumps::Loop(heads) => {
                    return Some(Found {
                        function,
                        depth,
                        lines,
                        heads,
                    });
                }
                // Its loop is too short to be shown, unless it runs an inner one nearly all the time: epochs.
                Jumps::Some if share(&lines, line) < NEARLY_ALL => return None,
                Jumps::Some | Jumps::None => {}
            }
            launches.retain(|(_, stack)| frame(*stack).is_some_and(|(_, of)| of == line));
        }
        None
    }
}

impl Paths {
    /// Returns the function that each line of the loop calls: the one with most of the GPU's time.
    fn calls(
        &self,
        kernels: &[TimedKernel],
        found: &Found,
        stacks: &Stacks,
    ) -> BTreeMap<u32, String> {
        let mut times: BTreeMap<u32, BTreeMap<u32, u64>> = BTreeMap::new();
        for (at, stack) in &self.launches {
            let path = self.by_stack.get(stack).map_or(&[][..], Vec::as_slice);
            let Some((function, line)) = path.get(found.depth) else {
                continue;
            };
            let inside = path.get(found.depth + 1..).unwrap_or_default();
            let called = inside.iter().find(|(function, _)| {
                let name = stacks.function(*function).map(|it| it.name.as_str());
                let last = name.and_then(|name| name.rsplit('.').next());
                !last.is_some_and(|last| WRAPPERS.contains(&last))
            });
            if let (Some((called, _)), Some(kernel)) = (called, kernels.get(*at))
                && *function == found.function
            {
                let time = times.entry(*line).or_default().entry(*called).or_default();
                *time = time.saturating_add(kernel.end.saturating_sub(kernel.start));
            }
        }
        let most = |(line, times): (u32, BTreeMap<u32, u64>)| {
            let (called, _) = times
                .iter()
                .max_by_key(|(it, time)| (**time, Reverse(**it)))?;
            Some((line, stacks.function(*called)?.name.clone()))
        };
        times.into_iter().filter_map(most).collect()
    }
}

/// Returns the frames of Python code of a stack, the outermost first.
fn path(stacks: &Stacks, stack: u32) -> Path {
    let frames = stacks.numbered_frames(stack).into_iter().flatten();
    let is_python = |(function, _): &(u32, u32)| {
        !stacks.native.contains_key(function)
            && (stacks.function(*function)).is_some_and(|it| it.part != Part::Module)
    };
    let mut path: Path = frames.filter(is_python).collect();
    path.reverse();
    path
}

/// Returns function and call of each place in native code: places of one name are calls of one function. It has the
/// number of its first place, and its calls are numbered by their addresses from 1.
fn calls_of(stacks: &Stacks) -> HashMap<u32, (u32, u32), RandomState> {
    let mut functions: HashMap<(&str, &str), Vec<(u64, u32)>, RandomState> = HashMap::default();
    for (number, (_, address)) in &stacks.native {
        if let Some(function) = stacks.function(*number) {
            let name = (function.file.as_str(), function.name.as_str());
            functions.entry(name).or_default().push((*address, *number));
        }
    }
    let mut calls = HashMap::default();
    for places in functions.values_mut() {
        places.sort_unstable();
        let first = places.first().map_or(0, |(_, number)| *number);
        for (call, (_, number)) in (1..).zip(places.iter()) {
            calls.insert(*number, (first, call));
        }
    }
    calls
}

/// Returns the part of the launches that a line makes.
fn share(lines: &[(usize, u32)], line: u32) -> f64 {
    let own = lines.iter().filter(|(_, of)| *of == line).count();
    own as f64 / lines.len().max(1) as f64
}

fn most_frequent(all: impl Iterator<Item = u32>) -> Option<u32> {
    let mut counts: HashMap<u32, usize, RandomState> = HashMap::default();
    for one in all {
        *counts.entry(one).or_default() += 1;
    }
    let most = counts
        .into_iter()
        .max_by_key(|(one, count)| (*count, Reverse(*one)));
    most.map(|(one, _)| one)
}

/// What the lines of a frame do.
enum Jumps {
    /// They jump back at most once, as where a statement has several lines.
    None,
    /// They jump back, but not as a loop does.
    Some,
    /// They jump back at these kernels, at which iterations start.
    Loop(Vec<usize>),
}

/// Looks for a loop in the lines of a frame, which are in the order of launches.
fn heads(lines: &[(usize, u32)]) -> Jumps {
    let changes = || {
        lines.windows(2).filter_map(|pair| match pair {
            [(_, from), (at, to)] if from != to => Some((*at, *from, *to)),
            _ => None,
        })
    };
    let mut jumps: HashMap<(u32, u32), usize, RandomState> = HashMap::default();
    let mut goes_on: HashSet<u32, RandomState> = HashSet::default();
    for (_, from, to) in changes() {
        match to < from {
            true => *jumps.entry((from, to)).or_default() += 1,
            false => _ = goes_on.insert(from),
        }
    }
    let most = jumps.values().max().copied().unwrap_or(0);
    if most <= 1 {
        return Jumps::None;
    }
    let fewest = FEWEST.max(most / OUTER);
    // Within one statement the line may jump back, too, but not as far as the loop does.
    let often = jumps.iter().filter(|(_, count)| **count >= fewest);
    let widest = often.max_by_key(|((from, to), _)| (from - to, Reverse(*to)));
    let Some(((end, head), _)) = widest else {
        return Jumps::Some;
    };
    // A line before the loop's end jumps in an inner loop or a statement, unless some iterations end
    // there.
    let is_end = |from: u32, to: u32| {
        let of_some = to == *head && !goes_on.contains(&from);
        from >= *end && to <= *head || of_some
    };
    let (mut heads, mut orders, mut order) = (Vec::new(), Vec::new(), Vec::new());
    for (at, from, to) in changes() {
        if to < from && is_end(from, to) {
            heads.push(at);
            orders.push(std::mem::take(&mut order));
        }
        order.push(to);
    }
    // What came before the first one is no whole iteration.
    let mut alike: HashMap<&[u32], usize, RandomState> = HashMap::default();
    for order in orders.iter().skip(1) {
        *alike.entry(order).or_default() += 1;
    }
    let repeated = alike.values().max().copied().unwrap_or(0);
    match ALIKE * repeated >= orders.len().saturating_sub(1) && heads.len() >= FEWEST {
        true => Jumps::Loop(heads),
        false => Jumps::Some,
    }
}

/// Measures iterations, which start at these kernels in the order of launches. The last one is not over.
fn steps(kernels: &[TimedKernel], heads: &[usize]) -> Vec<Step> {
    let ends = heads.iter().skip(1).copied().chain([kernels.len()]);
    let starts: Vec<(u64, u64)> = heads
        .iter()
        .zip(ends)
        .map(|(from, to)| {
            let own = kernels.get(*from..to).unwrap_or_default();
            let first = own.iter().map(|kernel| kernel.start).min();
            (first.unwrap_or(0), own.len() as u64)
        })
        .collect();
    let busy = busy(kernels);
    let mut steps = Vec::new();
    for pair in starts.windows(2) {
        let [(start, count), (next, _)] = *pair else {
            continue;
        };
        // Streams may let a later iteration's kernel go first.
        if next > start {
            steps.push(Step {
                start,
                duration: next - start,
                busy: within(&busy, start, next),
                kernels: count,
            });
        }
    }
    steps
}

/// Returns the times in which any kernel ran, in order and apart from each other.
fn busy(kernels: &[TimedKernel]) -> Vec<(u64, u64)> {
    let mut spans: Vec<(u64, u64)> = kernels.iter().map(|it| (it.start, it.end)).collect();
    spans.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (start, end) in spans {
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    merged
}

/// Returns how much of the time from `start` to `end` the spans take.
fn within(spans: &[(u64, u64)], start: u64, end: u64) -> u64 {
    let first = spans.partition_point(|span| span.1 <= start);
    let inside = spans.iter().skip(first).take_while(|span| span.0 < end);
    inside
        .map(|span| span.1.min(end).saturating_sub(span.0.max(start)))
        .sum()
}

/// Finds the phases of iterations.
fn phases(kernels: &[TimedKernel], found: &Found, steps: &[Step]) -> Vec<Phase> {
    // The first kernel of each run of launches at one line.
    let (mut starts, mut last): (Vec<(u64, u32)>, u32) = (Vec::new(), 0);
    for (at, line) in &found.lines {
        if *line != last || found.heads.binary_search(at).is_ok() {
            starts.extend(kernels.get(*at).map(|kernel| (kernel.start, *line)));
            last = *line;
        }
    }
    starts.sort_unstable();
    let mut phases: Vec<Phase> = Vec::new();
    for step in steps {
        let end = step.start.saturating_add(step.duration);
        let from = starts.partition_point(|(start, _)| *start < step.start);
        let own = starts
            .iter()
            .skip(from)
            .take_while(|(start, _)| *start < end);
        let before = phases.len();
        for (start, line) in own {
            match phases.get_mut(before..).and_then(<[Phase]>::last_mut) {
                Some(last) if last.line == *line => continue,
                Some(last) => last.duration = start - last.start,
                None => {}
            }
            let (start, line) = (*start, *line);
            phases.push(Phase {
                line,
                start,
                duration: end - start,
            });
        }
        if phases.len() > MOST_PHASES {
            phases.truncate(before);
            break;
        }
    }
    phases
}

/// Sums up whole iterations by the line of the loop at which kernels were launched.
fn lines(kernels: &[TimedKernel], found: &Found) -> Vec<LoopLine> {
    let (Some(first), Some(last)) = (found.heads.first(), found.heads.last()) else {
        return Vec::new();
    };
    let mut sums: BTreeMap<u32, LoopLine> = BTreeMap::new();
    let mut known = found
        .lines
        .iter()
        .skip_while(|(at, _)| at < first)
        .peekable();
    let mut line = 0;
    for at in *first..*last {
        while let Some((_, now)) = known.next_if(|(of, _)| *of <= at) {
            line = *now;
        }
        let sum = sums.entry(line).or_default();
        sum.line = line;
        if let Some(kernel) = kernels.get(at) {
            sum.time = sum.time.saturating_add(kernel.end - kernel.start);
            sum.kernels += 1;
        }
    }
    sums.into_values().collect()
}

#[cfg(test)]
mod tests;
