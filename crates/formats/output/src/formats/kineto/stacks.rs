//! Stacks at which work was launched (`--stacks`): the argument `Call stack` of kernels and copies, as
//! PyTorch's profiler writes it for operators.
//!
//! There are no events `python_function`: these say when a function started and ended, and a stack at a
//! launch says neither.

use super::Session;
use midair_trace::code::one_line;
use std::rc::Rc;

impl Session<'_> {
    /// Returns the stack of a launch, or of a dispatch where it has one of its own: its frames, the innermost first, with semicolons between them.
    pub(super) fn call_stack(&mut self, correlation: u64, dispatch: u64) -> Option<Rc<str>> {
        let stacks = &self.job.index.stacks;
        let stack = stacks.of_work(correlation, dispatch);
        if let Some(known) = self.stacks.get(&stack) {
            return Some(Rc::clone(known));
        }
        let frames = stacks.frames(stack)?.map(|(function, line)| {
            let [file, name] =
                [&function.file, &function.name].map(|text| one_line(text).replace(';', ","));
            format!("{file}({line}): {name}")
        });
        let text: Rc<str> = frames.collect::<Vec<_>>().join(";").into();
        self.stacks.insert(stack, Rc::clone(&text));
        Some(text)
    }
}
