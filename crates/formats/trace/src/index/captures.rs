//! Kernels of graphs, and the times of the stacks that captured them.

use super::stacks::{Added, Matching, Work};
use super::{Index, ROCCLR_KERNEL, known_id, untimed};
use midair_record::event::{CudaLaunch, Kernel};

impl Index {
    /// Returns what matches kernels with captured launches; None where no graph was launched.
    pub(crate) fn matching(&mut self) -> Option<Matching> {
        let is_needed = !self.stacks.graphs.is_empty();
        is_needed.then(|| self.stacks.matching())
    }

    /// Matches a kernel with the node of the graph that it is of ([`super::Stacks::of_kernel`]), if it is of one.
    pub(crate) fn match_node(
        &mut self,
        matching: &mut Matching,
        kernel: &Kernel,
        cuda: Option<&CudaLaunch>,
    ) {
        let symbol = self.symbols.get(&kernel.kernel_id);
        let is_own = !symbol.is_some_and(|symbol| symbol.name.starts_with(ROCCLR_KERNEL));
        self.stacks.match_node(matching, kernel, cuda, is_own);
    }

    /// Adds a kernel's time to its stack's, after [`super::Stacks::forget_kernels`].
    pub(crate) fn add_to_stack(&mut self, kernel: &Kernel) {
        if untimed(kernel.header.flags, kernel.untimed).is_none() {
            let id = known_id(kernel);
            self.stacks
                .add_kernel(kernel, Work::Kernel(id), &Added::by_kernel(kernel));
        }
    }
}
