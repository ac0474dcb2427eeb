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
    /// It adds a node to the second argument: a kernel, any kind of node, or a graph (the fifth argument).
    AddKernel,
    AddAny,
    AddChild,
    /// It changes a node of the first argument, an executable graph: a kernel, or any kind of node.
    SetKernel,
    SetAny,
    /// It changes nodes of the first argument, or of something else.
    ChangeFirst,
    ChangeAny,
    /// It launches a kernel. Blocks and threads are two structs of three words of 32 bits.
    LaunchByDim3,
    /// The same with blocks and threads in six arguments.
    LaunchByBlocks,
    /// The same with work items instead of blocks.
    LaunchByItems,
    /// The same with blocks, threads and stream where the first argument points.
    LaunchByConfig,
    /// The same with sizes elsewhere.
    LaunchUnknown,
}

impl Step {
    pub(super) fn is_launch(self) -> bool {
        matches!(
            self,
            Step::LaunchByDim3
                | Step::LaunchByBlocks
                | Step::LaunchByItems
                | Step::LaunchByConfig
                | Step::LaunchUnknown
        )
    }
}

/// Reads a word to which an argument of the program's points.
///
/// # Safety
/// The word is within what the call has read or stored through this argument. The call has returned success to
/// its wrapper and not to its caller.
pub(super) unsafe fn word(pointer: u64, offset: usize) -> u64 {
    let pointer = std::ptr::with_exposed_provenance::<u8>(pointer as usize);
    // SAFETY: HIP has read or stored eight bytes there, and the caller waits for the call.
    unsafe { pointer.add(offset).cast::<u64>().read_unaligned() }
}

/// Returns the six words of 32 bits in three words, of which the first has the lower half in front.
fn six([first, second, third]: [u64; 3]) -> [[u32; 3]; 2] {
    let high = |word: u64| (word >> 32) as u32;
    [
        [first as u32, high(first), second as u32],
        [high(second), third as u32, high(third)],
    ]
}

/// Returns grid in work items, and workgroup.
fn in_items([mut grid, workgroup]: [[u32; 3]; 2]) -> [[u32; 3]; 2] {
    for (items, threads) in grid.iter_mut().zip(workgroup) {
        *items = items.wrapping_mul(threads);
    }
    [grid, workgroup]
}

/// Returns the stream in a launch's configuration. `hipLaunchConfig_t` and `HIP_LAUNCH_CONFIG` both have
/// blocks, threads, the size of local memory, padded to eight bytes, and the stream.
///
/// # Safety
/// It is an argument of that type, of a call as for [`word`].
pub(super) unsafe fn stream_of_config(config: u64) -> u64 {
    // SAFETY: see above.
    unsafe { word(config, 32) }
}

/// Returns grid in work items, and workgroup, of a launch with these arguments.
///
/// # Safety
/// They are the arguments of a call as for [`word`] that is this step.
pub(super) unsafe fn sizes(step: Step, arguments: &[u64]) -> [[u32; 3]; 2] {
    let argument = |at: usize| arguments.get(at).copied().unwrap_or(0);
    let low = |at: usize| argument(at) as u32;
    match step {
        Step::LaunchByDim3 => in_items([
            [low(1), (argument(1) >> 32) as u32, low(2)],
            [low(3), (argument(3) >> 32) as u32, low(4)],
        ]),
        Step::LaunchByBlocks => in_items([[low(1), low(2), low(3)], [low(4), low(5), low(6)]]),
        Step::LaunchByItems => [[low(1), low(2), low(3)], [low(4), low(5), low(6)]],
        Step::LaunchByConfig => {
            // SAFETY: the configuration starts with these 24 bytes, and see above.
            let at = |offset: usize| unsafe { word(argument(0), offset) };
            in_items(six([at(0), at(8), at(16)]))
        }
        _ => [[0; 3]; 2],
    }
}

/// Returns the same of a `hipKernelNodeParams`: threads, a pointer, the function, blocks.
///
/// # Safety
/// It is an argument of that type, of a call as for [`word`].
pub(super) unsafe fn node_sizes(parameters: u64) -> [[u32; 3]; 2] {
    // SAFETY: see above.
    let at = |offset: usize| unsafe { word(parameters, offset) };
    let three = |offset: usize| {
        [
            at(offset) as u32,
            (at(offset) >> 32) as u32,
            at(offset + 8) as u32,
        ]
    };
    in_items([three(32), three(0)])
}

/// Kinds of nodes in a `hipGraphNodeParams`: a kernel, and a graph.
const KERNEL: u32 = 0;
const GRAPH: u32 = 4;

/// What a `hipGraphNodeParams` describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    /// A kernel, with its `hipKernelNodeParams`.
    Kernel(u64),
    /// A graph.
    Graph(u64),
    /// Something else.
    Other,
}

/// Returns what a `hipGraphNodeParams` describes. Its kind is in front of the rest, 16 bytes.
///
/// # Safety
/// It is an argument of that type, of a call as for [`word`].
pub(super) unsafe fn node(parameters: u64) -> Node {
    // SAFETY: see above.
    match unsafe { word(parameters, 0) } as u32 {
        KERNEL => Node::Kernel(parameters.wrapping_add(16)),
        // SAFETY: see above.
        GRAPH => Node::Graph(unsafe { word(parameters, 16) }),
        _ => Node::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wrappers::hip_runtime::GRAPH_STEPS;
    use midair_abi::tables::{ALL, TableId};

    #[test]
    fn sizes_are_those_of_the_packet() {
        let word = |low: u64, high: u64| low | high << 32;
        // SAFETY: pointers among the arguments point to the arrays below.
        let sizes = |step, arguments: &[u64]| unsafe { sizes(step, arguments) };
        let wanted = [[128, 6, 4], [64, 2, 1]];
        let by_dim3 = [9, word(2, 3), 4, word(64, 2), 1, 9, 9];
        assert_eq!(sizes(Step::LaunchByDim3, &by_dim3), wanted);
        let six = [9, 2, 3, 4, 64, 2, 1, 9, 9];
        assert_eq!(sizes(Step::LaunchByBlocks, &six), wanted);
        assert_eq!(sizes(Step::LaunchByItems, &six), [[2, 3, 4], [64, 2, 1]]);
        assert_eq!(sizes(Step::Replay, &six), [[0; 3]; 2]);
        let config = [word(2, 3), word(4, 64), word(2, 1), 9, 0x500];
        let pointer = (&raw const config).expose_provenance() as u64;
        assert_eq!(sizes(Step::LaunchByConfig, &[pointer, 7]), wanted);
        // SAFETY: the arrays are a configuration, and the parameters of nodes.
        unsafe {
            assert_eq!(stream_of_config(pointer), 0x500);
            let any = [
                u64::from(KERNEL),
                0,
                word(64, 2),
                word(1, 9),
                0x600,
                0x700,
                word(2, 3),
                word(4, 9),
            ];
            let pointer = (&raw const any).expose_provenance() as u64;
            assert_eq!(node(pointer), Node::Kernel(pointer + 16));
            assert_eq!(node_sizes(pointer + 16), wanted);
            let any = [u64::from(GRAPH), 0, 0x800];
            let pointer = (&raw const any).expose_provenance() as u64;
            assert_eq!(node(pointer), Node::Graph(0x800));
            let any = [1, 0, 0x800];
            let pointer = (&raw const any).expose_provenance() as u64;
            assert_eq!(node(pointer), Node::Other);
        }
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
            ("hipLaunchKernelExC", Step::LaunchByConfig),
            ("hipDrvLaunchKernelEx", Step::LaunchByConfig),
            ("hipExtLaunchMultiKernelMultiDevice", Step::None),
            ("hipLaunchHostFunc", Step::None),
            ("hipGraphLaunch", Step::Replay),
            ("hipStreamEndCapture_spt", Step::End),
            ("hipGraphInstantiateWithParams", Step::Instantiate),
            ("hipLaunchByPtr", Step::LaunchUnknown),
            ("hipGraphAddKernelNode", Step::AddKernel),
            ("hipGraphAddMemcpyNode", Step::None),
            ("hipGraphRemoveDependencies", Step::ChangeFirst),
            ("hipMemcpyAsync", Step::None),
        ] {
            assert_eq!(step(name), Some(wanted), "{name}");
        }
    }
}
