//! Stacks of calls that launch work (`--stacks`), and of launches into captures.

use super::graph_steps::{Node, Step, node, node_sizes, sizes, stream_of_config, word};
use super::{Busy, fresh};
use crate::threads::OpenCall;
use crate::wrappers::hip_runtime::GRAPH_STEPS;
use midair_domain::sets;
use midair_record::event::{GraphBuild, Header, Plain, graph_build, kind};
use std::sync::atomic::Ordering::Relaxed;

impl Busy {
    /// Takes the calling thread's stack for its open call with this correlation id, once for each
    /// call. Does nothing in a session without stacks.
    #[inline]
    pub fn take_stack(&mut self, correlation: u64) {
        if midair_stacks::is_on() {
            self.take_stack_once(correlation);
        }
    }

    fn take_stack_once(&mut self, correlation: u64) {
        let owned = self.owned();
        let mut open = owned.open.iter_mut().take(owned.depth);
        let call = open.find(|call| call.correlation == correlation);
        if let Some(call) = call.filter(|call| !call.has_stack) {
            call.has_stack = true;
            midair_stacks::take(correlation, &mut |kind, parts| self.store(kind, parts));
        }
    }

    /// Returns which step a call is that has returned, if it has a record. A launch is one if it has
    /// launched nothing while something is captured.
    #[inline]
    pub(super) fn step(&self, open: &OpenCall) -> Step {
        if !midair_stacks::is_on() || open.kind != kind::HIP_RUNTIME_API_EXT {
            return Step::None;
        }
        let captures = || self.control.captures.load(Relaxed);
        match GRAPH_STEPS.get(open.operation as usize) {
            Some(step) if !step.is_launch() => *step,
            Some(step) if !open.has_stack && captures() != 0 => *step,
            _ => Step::None,
        }
    }

    /// Stores the record of a call at `depth` that has just returned `result`, from its wrapper.
    #[cold]
    pub(super) fn store_step(
        &mut self,
        step: Step,
        (open, depth): (&OpenCall, usize),
        end: u64,
        arguments: &[u64],
        result: u64,
    ) {
        let argument = |at: usize| arguments.get(at).copied().unwrap_or(0);
        let (first, second) = (argument(0), argument(1));
        // What a HIP call of the program's calls itself is a part of that.
        let owned = self.owned();
        let outer = owned.open.get(..depth).unwrap_or_default();
        let is_inner = outer.iter().any(|call| sets::HIP_CALLS.contains(call.kind));
        if result as u32 != 0 || is_inner || !self.accepts() {
            return;
        }
        let stored = |pointer: u64| match pointer {
            0 => 0,
            // SAFETY: these calls store a handle through this argument, and have returned success.
            pointer => unsafe { word(pointer, 0) },
        };
        let described = |pointer: u64| match step {
            // SAFETY: it is the argument of a call that describes a node, which has returned success.
            Step::AddAny | Step::SetAny => unsafe { node(pointer) },
            _ => Node::Kernel(pointer),
        };
        // The last dependency of a node that was added.
        let after = || match (argument(2), argument(3) as usize) {
            (0, _) | (_, 0) => 0,
            // SAFETY: the call has read this many handles there, and has returned success.
            (first, count) => unsafe { word(first, (count - 1).wrapping_mul(8)) },
        };
        let mut build = GraphBuild {
            tid: self.tid(),
            start: open.start,
            end,
            correlation: open.correlation,
            ..GraphBuild::default()
        };
        let captures = &self.control.captures;
        let (operation, subject, made) = match step {
            Step::None => return,
            Step::Begin => (graph_build::BEGIN, first, 0),
            Step::BeginToGraph => (graph_build::BEGIN, first, second),
            Step::End => (graph_build::END, first, stored(second)),
            Step::Instantiate => (graph_build::INSTANTIATE, second, stored(first)),
            Step::Copy => (graph_build::COPY, second, stored(first)),
            Step::Update => (graph_build::INSTANTIATE, second, first),
            Step::Create => (graph_build::CREATE, 0, stored(first)),
            Step::Destroy => (graph_build::DESTROY, first, 0),
            Step::Replay => (graph_build::REPLAY, first, 0),
            Step::AddKernel | Step::AddAny => match described(argument(4)) {
                Node::Kernel(parameters) => {
                    // SAFETY: they are the parameters of the call's kernel.
                    [build.grid, build.workgroup] = unsafe { node_sizes(parameters) };
                    build.after = after();
                    (graph_build::ADD, second, stored(first))
                }
                Node::Graph(graph) => (graph_build::ADD_CHILD, second, graph),
                Node::Other => return,
            },
            Step::AddChild => (graph_build::ADD_CHILD, second, argument(4)),
            Step::SetKernel | Step::SetAny => match described(argument(2)) {
                Node::Kernel(parameters) => {
                    // SAFETY: they are the parameters of the call's kernel.
                    [build.grid, build.workgroup] = unsafe { node_sizes(parameters) };
                    (graph_build::SET, first, second)
                }
                Node::Graph(_) => (graph_build::CHANGE, first, 0),
                Node::Other => return,
            },
            Step::ChangeFirst => (graph_build::CHANGE, first, 0),
            Step::ChangeAny => (graph_build::CHANGE, 0, 0),
            Step::LaunchByConfig => {
                // SAFETY: it is a configuration that the call has read.
                let stream = unsafe { stream_of_config(first) };
                (graph_build::LAUNCH, stream, 0)
            }
            Step::LaunchByDim3
            | Step::LaunchByBlocks
            | Step::LaunchByItems
            | Step::LaunchUnknown => (graph_build::LAUNCH, open.stream, 0),
        };
        build.header = Header {
            size: size_of::<GraphBuild>() as u16,
            kind: kind::GRAPH_BUILD,
            flags: 0,
            operation,
        };
        (build.subject, build.made) = (subject, made);
        match step {
            Step::Begin | Step::BeginToGraph => {
                captures.fetch_add(1, Relaxed);
            }
            Step::End => {
                // A capture that started before the session is not counted.
                let less = |captures: u64| captures.checked_sub(1);
                let _ = captures.fetch_update(Relaxed, Relaxed, less);
            }
            _ => {}
        }
        let control = self.control;
        if step.is_launch() {
            let id = self.owned().identify(depth, || fresh(control));
            build.correlation = id.unwrap_or(0);
            // SAFETY: they are the arguments of this launch, which has returned success.
            [build.grid, build.workgroup] = unsafe { sizes(step, arguments) };
            build.stack = midair_stacks::take(build.correlation, &mut |kind, parts| {
                self.store(kind, parts)
            });
        } else if operation == graph_build::ADD {
            build.stack = midair_stacks::take(0, &mut |kind, parts| self.store(kind, parts));
        } else if step == Step::Replay && build.correlation == 0 {
            // No dispatch of it was seen.
            return;
        }
        self.store(kind::GRAPH_BUILD, [build.bytes(), &[]]);
    }
}
