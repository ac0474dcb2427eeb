//! Where in the application's code work was launched: functions, stacks, and the GPU's time by
//! stack.

mod graphs;
mod launches;

use super::Stat;
use crate::frame_names::Frames;
use crate::frame_names::{self, Part};
use crate::{code, limits};
use foldhash::fast::RandomState;
use midair_record::event::{
    self, Code, CudaLaunch, Kernel, LaunchStack, Module, NativeCode, Record, Stack, StackCost,
};
use std::collections::HashMap;

pub(crate) use graphs::Matching;
use graphs::{Captured, Graphs};
pub use graphs::{LATE, LiveGraphs};
pub use launches::Launches;

/// Numbers of functions and stacks beyond this are not described; a session of the target's has
/// fewer.
const MOST_NUMBERS: u32 = 1 << 17;
/// The most launches whose work has come before their stack.
const MOST_WAITING: usize = 1 << 16;
/// The most different kernels of one launch that are distinguished while its stack has not come.
const MOST_WORK: usize = 1 << 10;
/// The most sums.
const MOST_SUMS: usize = 1 << 20;

/// A function of the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its file, as Python has it, or the program or the library that it is in.
    pub file: String,
    /// Its name, with the names of the classes and functions around it.
    pub name: String,
    /// Its part in a program.
    pub part: Part,
}

/// Work of the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Work {
    /// A kernel, by its id.
    Kernel(u64),
    /// A copy, by its direction.
    Copy(u32),
}

/// What some work adds up to.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sum {
    /// Its times.
    pub stat: Stat,
    /// Nanoseconds from the doorbells of kernels until their starts, as far as doorbells are known.
    pub delay: u64,
    /// Bytes that were copied.
    pub bytes: u64,
}

impl Sum {
    fn add(&mut self, added: &Added) {
        self.stat.count(added.time);
        self.delay = self.delay.saturating_add(added.delay);
        self.bytes = self.bytes.saturating_add(added.bytes);
    }

    /// Adds the work of another sum.
    pub fn merge(&mut self, other: &Sum) {
        self.stat.merge(&other.stat);
        self.delay = self.delay.saturating_add(other.delay);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// What one kernel or copy adds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Added {
    pub(super) time: u64,
    pub(super) delay: u64,
    pub(super) bytes: u64,
}

impl Added {
    pub(super) fn by_kernel(kernel: &Kernel) -> Added {
        let delay = match kernel.rung {
            0 => 0,
            rung => kernel.start.saturating_sub(rung),
        };
        Added {
            time: kernel.end.saturating_sub(kernel.start),
            delay,
            bytes: 0,
        }
    }
}

/// A program or a library of the process, and its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapped {
    /// Where it lies.
    pub module: Module,
    /// Its path, as the kernel prints it.
    pub path: Vec<u8>,
}

impl Mapped {
    /// Returns the path for the user, also of a file that was replaced meanwhile.
    pub fn name(&self) -> String {
        let path = self.path.strip_suffix(b" (deleted)");
        limits::text(path.unwrap_or(&self.path)).into_owned()
    }
}

/// What stacks have cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StackSummary {
    /// Calls with a stack: launches, and calls that wait by a packet of their own.
    pub calls: u64,
    /// Different stacks.
    pub different: u64,
    /// Walks that were timed.
    pub timed: u64,
    /// Their mean time, ns.
    pub mean: Option<f64>,
    /// The time of all walks by that, ns.
    pub total: Option<f64>,
    /// Launches whose native frames the budget did not allow.
    pub over_budget: u64,
}

impl StackSummary {
    /// Returns its numbers with their names. Times are there if walks were timed.
    pub fn numbers(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let whole = |time: Option<f64>| time.map(|time| time.round() as u64);
        let all = [
            ("calls", Some(self.calls)),
            ("different", Some(self.different)),
            ("timed_walks", Some(self.timed)),
            ("mean_walk_ns", whole(self.mean)),
            ("total_walk_ns", whole(self.total)),
            ("over_budget", Some(self.over_budget)),
        ];
        all.into_iter()
            .filter_map(|(name, number)| Some((name, number?)))
    }
}

/// What the records say about stacks.
#[derive(Debug, Clone, Default)]
pub struct Stacks {
    /// Programs and libraries by their numbers.
    pub modules: HashMap<u32, Mapped, RandomState>,
    /// Places in them by the numbers of functions: module and linked address. Most have no name of
    /// their own yet, which a [`Code`] gives them.
    pub native: HashMap<u32, (u32, u64), RandomState>,
    /// The objects for which functions of Python's were called, by the numbers of the functions.
    pub objects: HashMap<u32, u64, RandomState>,
    /// Whether Python's stacks are taken, and native ones.
    kinds: (bool, bool),
    functions: HashMap<u32, Function, RandomState>,
    /// The frames of each stack, the innermost first: function and line.
    stacks: HashMap<u32, Vec<(u32, u32)>, RandomState>,
    /// The stack of each launch.
    pub launches: Launches,
    /// The stacks of kernels of graphs by dispatch, as far as these are not their launches'.
    by_dispatch: Launches,
    /// Where the kernels of graphs come from.
    pub(crate) graphs: Graphs,
    /// Timed work by stack. Launches without a stack have the stack 0.
    pub sums: HashMap<(u32, Work), Sum, RandomState>,
    /// The same by correlation id, for launches whose stack has not come yet.
    waiting: HashMap<u64, Vec<(Work, Sum)>, RandomState>,
    /// Whether the session takes stacks: the target says so by a stack with the number 0.
    pub is_on: bool,
    /// Launches with a stack.
    pub taken: u64,
    /// Launches that were made at a stack for which there was no room, or over the budget.
    pub left_out: u64,
    /// How many stacks are others with the frame [`code::CAPTURED_BEFORE`].
    captured_before: usize,
    /// What the stacks have cost the process, if its side says so.
    pub cost: Option<StackCost>,
}

impl Stacks {
    /// Makes an empty value that knows only the stacks of the latest launches.
    pub fn recent() -> Stacks {
        let mut stacks = Stacks::default();
        stacks.launches.keep_recent();
        stacks
    }

    /// Takes a description of a function or a stack, or the stack of a launch.
    pub fn learn(&mut self, record: &Record<'_>) {
        match record {
            Record::Code(code, file, name) => self.add_function(code, file, name),
            Record::Stack(stack, frames) => self.add_stack(stack, frames),
            Record::LaunchStack(launch) => self.add_launch(launch),
            Record::NativeCode(code) => self.add_native(code),
            Record::Module(module, path) => self.add_module(module, path),
            Record::GraphBuild(step) => self.graphs.add(step),
            _ => {}
        }
    }

    /// Returns what a reader should know about the stacks.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.is_on && self.taken + self.left_out == 0 && self.all().next().is_some() {
            let why = match self.kinds {
                (_, true) => "no call launched work",
                _ => "all work was launched outside of Python code",
            };
            notes.push(format!("no launch has a stack (--stacks): {why}"));
        }
        let cost = self.cost.unwrap_or_default();
        for (count, what) in [
            (cost.without, "have no stack"),
            (cost.python_only, "have no native frames"),
            (
                cost.reused,
                "have the native frames of an earlier launch at the same Python stack",
            ),
        ] {
            if count > 0 {
                notes.push(format!(
                    "{count} launches {what}: native stacks took their budget (--stacks-budget)"
                ));
            }
        }
        let left_out = self.left_out.saturating_sub(cost.without);
        if left_out > 0 {
            let why = match self.kinds {
                (_, true) => {
                    "there were too many different stacks, or the threads ran on stacks that the program made itself"
                }
                _ => "there were too many different stacks",
            };
            notes.push(format!("{left_out} launches have no stack: {why}"));
        }
        notes
    }

    /// Returns what the stacks have cost, if the process's side says so.
    pub fn summary(&self) -> Option<StackSummary> {
        let cost = self.cost?;
        // Calls over the budget are timed as well.
        let walks = self.taken + self.left_out;
        let mean = (cost.timed > 0).then(|| cost.time as f64 / cost.timed as f64);
        Some(StackSummary {
            calls: self.taken,
            different: self.different() as u64,
            timed: cost.timed,
            mean,
            total: mean.map(|mean| mean * walks as f64),
            over_budget: cost.reused + cost.python_only + cost.without,
        })
    }

    /// Returns the frames of a stack, the innermost first, each with its line. None where the
    /// stack's description is missing.
    pub fn frames(&self, stack: u32) -> Option<impl DoubleEndedIterator<Item = (&Function, u32)>> {
        let frames = self.stacks.get(&stack)?;
        Some(frames.iter().map(|(function, line)| {
            let function = self.functions.get(function);
            (function.unwrap_or(&UNKNOWN), *line)
        }))
    }

    /// Does the same with the numbers of the functions.
    pub fn numbered_frames(
        &self,
        stack: u32,
    ) -> Option<impl DoubleEndedIterator<Item = (u32, u32)>> {
        Some(self.stacks.get(&stack)?.iter().copied())
    }

    /// Returns all stacks that are described: for each its number and the numbers of its functions, the
    /// innermost first.
    pub fn described(&self) -> impl Iterator<Item = (u32, impl DoubleEndedIterator<Item = u32>)> {
        let functions = |frames: &'_ Vec<(u32, u32)>| frames.clone().into_iter().map(|(it, _)| it);
        self.stacks
            .iter()
            .map(move |(stack, frames)| (*stack, functions(frames)))
    }

    /// Returns how many stacks are described.
    pub fn different(&self) -> usize {
        self.stacks.len() - self.captured_before
    }

    /// Returns a function by its number.
    pub fn function(&self, number: u32) -> Option<&Function> {
        self.functions.get(&number)
    }

    /// Returns the frames of a stack that a flame graph has, the innermost first. None where the stack's
    /// description is missing.
    pub fn shown_frames(&self, stack: u32, frames: Frames) -> Option<Vec<(&Function, u32)>> {
        let mut shown: Vec<_> = self.frames(stack)?.collect();
        if frames != Frames::All {
            shown.retain(|(function, _)| function.part.is_in(frames));
            // An operator is called once, and then once for each of its dispatch keys.
            shown.dedup_by(|a, b| a.0.part == Part::Operator && a.0 == b.0);
        }
        Some(shown)
    }

    /// Returns the stack of a launch; 0 where it has none.
    pub fn of_launch(&self, correlation: u64) -> u32 {
        self.launches.stack(correlation)
    }

    /// Returns the stack of a kernel; 0 where it has none. A kernel of a graph has the stack that captured
    /// it, if that is known, or else the stack that launched the graph.
    pub fn of_kernel(&self, kernel: &Kernel) -> u32 {
        self.of_work(kernel.correlation, kernel.dispatch_id)
    }

    /// Does the same for a correlation id and the number of a dispatch, or 0 for anything else.
    pub fn of_work(&self, correlation: u64, dispatch: u64) -> u32 {
        match self.by_dispatch.stack(dispatch) {
            0 => self.of_launch(correlation),
            stack => stack,
        }
    }

    /// Takes the node of a graph that a kernel names, or 0.
    pub(super) fn add_node_of_kernel(&mut self, node: u64) {
        if self.is_on {
            self.graphs.add_node_of_kernel(node);
        }
    }

    /// Returns the stack that captured a node of a graph; 0 where it is not known, or for no node (0).
    pub fn of_node(&self, node: u64) -> u32 {
        match self.graphs.of_node(node) {
            Captured::At(stack) => stack,
            Captured::Unseen => 0,
        }
    }

    /// Returns what matches kernels with captured launches. It takes what is known of graphs.
    pub(super) fn matching(&mut self) -> Matching {
        Matching::new(std::mem::take(&mut self.graphs))
    }

    /// Finds where a kernel was captured, and kernels that wait for it, if they are of a graph. `is_own`
    /// says whether it is the program's rather than a copy of the runtime's.
    pub(super) fn match_node(
        &mut self,
        matching: &mut Matching,
        kernel: &Kernel,
        cuda: Option<&CudaLaunch>,
        is_own: bool,
    ) {
        let found = |dispatch, captured| {
            let stack = match captured {
                Captured::At(stack) => stack,
                Captured::Unseen => self.captured_before(self.of_launch(kernel.correlation)),
            };
            if stack != 0 && dispatch != 0 {
                self.by_dispatch.add(dispatch, stack);
            }
        };
        matching.add(kernel, cuda, is_own, found);
    }

    /// Returns the stack for kernels of a graph that was launched at this stack and whose capture was not
    /// seen: a frame inside of it says so. No stack stays none.
    fn captured_before(&mut self, stack: u32) -> u32 {
        let inside = MOST_NUMBERS + stack;
        if stack == 0 || self.stacks.contains_key(&inside) {
            return if stack == 0 { 0 } else { inside };
        }
        let Some(frames) = self.stacks.get(&stack) else {
            return 0;
        };
        let frames = std::iter::once((MOST_NUMBERS, 0)).chain(frames.iter().copied());
        let frames = frames.collect();
        self.stacks.insert(inside, frames);
        self.captured_before += 1;
        self.functions
            .entry(MOST_NUMBERS)
            .or_insert_with(|| Function {
                file: String::new(),
                name: code::CAPTURED_BEFORE.to_owned(),
                part: Part::Native,
            });
        inside
    }

    /// Returns the sums, also of work whose launch has no stack.
    pub fn all(&self) -> impl Iterator<Item = (u32, Work, Sum)> {
        let known = self.sums.iter();
        let waiting = self.waiting.iter();
        known
            .map(|((stack, work), sum)| (*stack, *work, *sum))
            .chain(waiting.flat_map(|(_, all)| all.iter().map(|(work, sum)| (0, *work, *sum))))
    }

    fn add_function(&mut self, code: &Code, file: &[u8], name: &[u8]) {
        if code.header.operation < MOST_NUMBERS {
            let (file, name) = (limits::text(file), limits::text(name));
            let is_module = code.header.flags & event::IS_MODULE != 0;
            let is_native = self.native.contains_key(&code.header.operation);
            let (name, part) = match (is_module, is_native) {
                (true, _) => (name.into_owned(), Part::Module),
                (_, true) => frame_names::native(&file, &name),
                _ => {
                    let part = frame_names::python(&file, &name);
                    (name.into_owned(), part)
                }
            };
            let file = file.into_owned();
            let function = Function { file, name, part };
            self.functions.insert(code.header.operation, function);
        }
    }

    fn add_module(&mut self, module: &Module, path: &[u8]) {
        if module.header.operation < MOST_NUMBERS {
            let path = path.to_vec();
            let mapped = Mapped {
                module: *module,
                path,
            };
            self.modules.insert(module.header.operation, mapped);
            let of_it = |(_, place): &(&u32, &(u32, u64))| place.0 == module.header.operation;
            let nameless: Vec<_> = self.native.iter().filter(of_it).collect();
            let nameless: Vec<_> = nameless
                .into_iter()
                .map(|(number, place)| (*number, self.nameless(*place)))
                .collect();
            self.functions.extend(nameless);
        }
    }

    /// Returns a place of which no name is known yet as a function.
    fn nameless(&self, place: (u32, u64)) -> Function {
        let mapped = self.modules.get(&place.0);
        let file = mapped.map_or_else(String::new, Mapped::name);
        let (name, part) = frame_names::native(&file, &self.place(place));
        Function { file, name, part }
    }

    fn add_native(&mut self, code: &NativeCode) {
        if code.header.operation < MOST_NUMBERS {
            if code.header.flags & event::OF_OBJECT != 0 {
                self.objects.insert(code.header.operation, code.address);
                return;
            }
            let place = (code.module, code.address);
            let nameless = self.nameless(place);
            self.native.insert(code.header.operation, place);
            self.functions.insert(code.header.operation, nameless);
        }
    }

    /// Returns the name of a place of which no symbol is known, as `libc.so.6+0x1234`.
    pub fn place(&self, (module, address): (u32, u64)) -> String {
        match self.modules.get(&module) {
            Some(mapped) => {
                let path = mapped.name();
                let name = path.rsplit('/').next().unwrap_or_default();
                format!("{name}+{address:#x}")
            }
            None => "(unknown code)".to_owned(),
        }
    }

    /// Returns the name of the outermost frame of work whose launch has no stack.
    pub fn no_stack(&self) -> &'static str {
        match self.kinds {
            (_, true) => code::UNKNOWN_STACK,
            _ => code::NO_STACK,
        }
    }

    fn add_stack(&mut self, stack: &Stack, frames: &[u8]) {
        self.is_on = true;
        if let Some(cost) = StackCost::of(stack, frames) {
            self.cost = Some(cost);
        } else if stack.header.operation == 0 {
            self.kinds = event::stacks_of(stack);
        }
        if (1..MOST_NUMBERS).contains(&stack.header.operation) {
            self.stacks
                .insert(stack.header.operation, event::frames(frames).collect());
        }
    }

    fn add_launch(&mut self, launch: &LaunchStack) {
        let stack = launch.header.operation;
        if stack == 0 || !self.launches.add(launch.correlation, stack) {
            self.left_out += 1;
            return;
        }
        self.taken += 1;
        // Its work may have come before.
        for (work, sum) in self.waiting.remove(&launch.correlation).unwrap_or_default() {
            self.sums.entry((stack, work)).or_default().merge(&sum);
        }
    }

    pub(super) fn add_kernel(&mut self, kernel: &Kernel, work: Work, added: &Added) {
        self.add(self.of_kernel(kernel), kernel.correlation, work, added);
    }

    pub(super) fn add_work(&mut self, correlation: u64, work: Work, added: &Added) {
        self.add(self.of_launch(correlation), correlation, work, added);
    }

    fn add(&mut self, stack: u32, correlation: u64, work: Work, added: &Added) {
        if !self.is_on {
            return;
        }
        let has_room = self.waiting.len() < MOST_WAITING || self.waiting.contains_key(&correlation);
        if stack == 0 && has_room {
            let all = self.waiting.entry(correlation).or_default();
            let known = all.iter().position(|(known, _)| *known == work);
            if known.is_none() && all.len() >= MOST_WORK {
                return;
            }
            let at = known.unwrap_or(all.len());
            if known.is_none() {
                all.push((work, Sum::default()));
            }
            if let Some((_, sum)) = all.get_mut(at) {
                sum.add(added);
            }
        } else if self.sums.len() < MOST_SUMS || self.sums.contains_key(&(stack, work)) {
            self.sums.entry((stack, work)).or_default().add(added);
        }
    }

    /// Removes the sums of kernels.
    pub(crate) fn forget_kernels(&mut self) {
        let is_kernel = |work: &Work| matches!(work, Work::Kernel(_));
        self.sums.retain(|(_, work), _| !is_kernel(work));
        for all in self.waiting.values_mut() {
            all.retain(|(work, _)| !is_kernel(work));
        }
        self.waiting.retain(|_, all| !all.is_empty());
    }
}

/// A function whose description is missing.
static UNKNOWN: Function = Function {
    file: String::new(),
    name: String::new(),
    part: Part::Native,
};
