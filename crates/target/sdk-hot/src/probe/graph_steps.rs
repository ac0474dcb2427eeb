//! Calls on the way to the kernels of a graph, in sessions with stacks: captures, launches into them, and
//! what becomes of the graphs. They become records in addition to the records of calls, so that the
//! attacher can find the stack that captured a kernel.

/// What a function of HIP does for graphs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing.
    None,
    /// It starts a capture on the first argument.
    Begin,
    /// The same, into the graph that is the second one.
    BeginToGraph,
    /// It ends a capture on the first argument, and stores the graph through the second one.
    End,
    /// It stores an executable graph of the second argument through the first one.
    Instantiate,
    /// The same for a copy of a graph.
    Copy,
    /// It makes the first argument, an executable graph, one of the second.
    Update,
    /// It stores an empty graph through the first argument.
    Create,
    /// It destroys the first argument.
    Destroy,
    /// It launches the first argument, an executable graph.
    Replay,
    /// It changes nodes of the first argument, of the second, or of something else.
    ChangeFirst,
    ChangeSecond,
    ChangeAny,
    /// It launches a kernel. Blocks and threads are two structs of three words of 32 bits.
    LaunchByDim3,
    /// The same with blocks and threads in six arguments.
    LaunchByBlocks,
    /// The same with work items instead of blocks.
    LaunchByItems,
    /// The same with sizes elsewhere.
    LaunchUnknown,
}

impl Step {
    pub(super) fn is_launch(self) -> bool {
        matches!(
            self,
            Step::LaunchByDim3 | Step::LaunchByBlocks | Step::LaunchByItems | Step::LaunchUnknown
        )
    }
}

/// Reads the handle that HIP has stored through a pointer of the caller's.
///
/// # Safety
/// The pointer is an argument of a call that has returned success to its wrapper and not to its caller,
/// and that stores a handle through it.
pub(super) unsafe fn stored(pointer: u64) -> u64 {
    // SAFETY: HIP has stored eight bytes there, and the caller waits for the call.
    unsafe { std::ptr::with_exposed_provenance::<u64>(pointer as usize).read_unaligned() }
}

/// Returns grid in work items, and workgroup, of a launch with these arguments.
pub(super) fn sizes(step: Step, arguments: &[u64]) -> [[u32; 3]; 2] {
    let word = |at: usize| arguments.get(at).copied().unwrap_or(0);
    let low = |at: usize| word(at) as u32;
    let (grid, workgroup) = match step {
        Step::LaunchByDim3 => (
            [low(1), (word(1) >> 32) as u32, low(2)],
            [low(3), (word(3) >> 32) as u32, low(4)],
        ),
        Step::LaunchByBlocks | Step::LaunchByItems => {
            ([low(1), low(2), low(3)], [low(4), low(5), low(6)])
        }
        _ => ([0; 3], [0; 3]),
    };
    if step == Step::LaunchByItems {
        return [grid, workgroup];
    }
    let mut items = grid;
    for (items, threads) in items.iter_mut().zip(workgroup) {
        *items = items.wrapping_mul(threads);
    }
    [items, workgroup]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wrappers::hip_runtime::GRAPH_STEPS;
    use midair_abi::tables::{ALL, TableId};

    #[test]
    fn sizes_are_those_of_the_packet() {
        let word = |low: u64, high: u64| low | high << 32;
        let by_dim3 = [9, word(2, 3), 4, word(64, 2), 1, 9, 9];
        assert_eq!(
            sizes(Step::LaunchByDim3, &by_dim3),
            [[128, 6, 4], [64, 2, 1]]
        );
        let six = [9, 2, 3, 4, 64, 2, 1, 9, 9];
        assert_eq!(sizes(Step::LaunchByBlocks, &six), [[128, 6, 4], [64, 2, 1]]);
        assert_eq!(sizes(Step::LaunchByItems, &six), [[2, 3, 4], [64, 2, 1]]);
        assert_eq!(sizes(Step::LaunchUnknown, &six), [[0; 3]; 2]);
    }

    #[test]
    fn each_function_is_the_step_that_its_name_says() {
        let table = ALL.iter().find(|table| table.id == TableId::HipRuntime);
        let functions = table.map_or(&[][..], |table| table.functions);
        let step = |name: &str| {
            let mut all = functions.iter();
            let function = all.find(|function| function.name.as_str() == name)?;
            GRAPH_STEPS.get(function.operation as usize).copied()
        };
        for (name, wanted) in [
            ("hipLaunchKernel", Step::LaunchByDim3),
            ("hipLaunchCooperativeKernel", Step::LaunchByDim3),
            ("hipExtLaunchKernel", Step::LaunchByDim3),
            ("hipModuleLaunchKernel", Step::LaunchByBlocks),
            ("hipModuleLaunchCooperativeKernel", Step::LaunchByBlocks),
            ("hipExtModuleLaunchKernel", Step::LaunchByItems),
            ("hipHccModuleLaunchKernel", Step::LaunchByItems),
            ("hipLaunchKernelExC", Step::LaunchUnknown),
            ("hipDrvLaunchKernelEx", Step::LaunchUnknown),
            ("hipExtLaunchMultiKernelMultiDevice", Step::None),
            ("hipLaunchHostFunc", Step::None),
            ("hipGraphLaunch", Step::Replay),
            ("hipStreamEndCapture_spt", Step::End),
            ("hipGraphInstantiateWithParams", Step::Instantiate),
            ("hipMemcpyAsync", Step::None),
        ] {
            assert_eq!(step(name), Some(wanted), "{name}");
        }
    }
}
