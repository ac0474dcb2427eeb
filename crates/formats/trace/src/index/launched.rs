//! Kernels in the order of their records, for what needs more of them than sums.

use midair_record::event::Kernel;

/// The most kernels that are kept, 32 bytes each.
const MOST_KERNELS: usize = 1 << 20;

/// One kernel.
#[derive(Debug, Clone, Copy)]
pub struct TimedKernel {
    /// The correlation id of the launch.
    pub correlation: u64,
    /// Its start, ns.
    pub start: u64,
    /// Its end, ns; not before the start.
    pub end: u64,
    /// The launching thread.
    pub tid: u32,
}

/// The kernels of a session that takes stacks.
#[derive(Debug, Clone, Default)]
pub struct Launched {
    /// In the order of their records.
    pub kernels: Vec<TimedKernel>,
    /// How many came after the most that are kept.
    pub left_out: u64,
}

impl Launched {
    /// Adds a kernel with times.
    pub(crate) fn add(&mut self, kernel: &Kernel) {
        if self.kernels.len() == MOST_KERNELS {
            self.left_out += 1;
            return;
        }
        self.kernels.push(TimedKernel {
            correlation: kernel.correlation,
            start: kernel.start,
            end: kernel.end.max(kernel.start),
            tid: kernel.tid,
        });
    }

    /// Forgets all kernels.
    pub(crate) fn clear(&mut self) {
        *self = Launched::default();
    }
}
