use super::*;
use crate::index::Stacks;
use midair_record::event::{CudaLaunch, Header, Kernel, LaunchStack, Record, Stack, kind};

/// Records of a process's graphs, each a microsecond after the one before, and the kernels of its launches.
#[derive(Default)]
struct Process {
    stacks: Stacks,
    live: LiveGraphs,
    now: u64,
    dispatch: u64,
    kernels: Vec<Kernel>,
}

const STREAM: u64 = 0x100;
const SIDE: u64 = 0x200;
const GRAPH: u64 = 0x300;
const EXEC: u64 = 0x400;

impl Process {
    /// A process that launches its graphs at stack 9.
    fn new() -> Process {
        let mut process = Process::default();
        for number in [0, 9] {
            let stack = Stack {
                header: header(kind::STACK, number),
                ..Stack::default()
            };
            process.stacks.learn(&Record::Stack(stack, &[]));
        }
        process
    }

    fn step(&mut self, operation: u32, subject: u64, made: u64) -> GraphBuild {
        self.now += 1_000;
        GraphBuild {
            header: header(kind::GRAPH_BUILD, operation),
            start: self.now,
            end: self.now + 10,
            subject,
            made,
            ..GraphBuild::default()
        }
    }

    fn take(&mut self, step: GraphBuild) {
        self.stacks.learn(&Record::GraphBuild(step));
        self.live.add(&step);
    }

    fn learn(&mut self, operation: u32, subject: u64, made: u64) {
        let step = self.step(operation, subject, made);
        self.take(step);
    }

    /// A kernel of this many work items that the program adds to a graph, after another one.
    fn added(&mut self, graph: u64, (node, after): (u64, u64), items: u32, stack: u32) {
        let step = GraphBuild {
            grid: [items, 1, 1],
            stack,
            after,
            ..self.step(graph_build::ADD, graph, node)
        };
        self.take(step);
    }

    /// A captured launch of this many work items.
    fn captured(&mut self, stream: u64, items: u32, stack: u32) {
        let step = GraphBuild {
            grid: [items, 1, 1],
            stack,
            ..self.step(graph_build::LAUNCH, stream, 0)
        };
        self.take(step);
    }

    /// A capture of launches of these items at these stacks, and an executable graph of it.
    fn capture(&mut self, launches: &[(u64, u32, u32)]) {
        self.learn(graph_build::BEGIN, STREAM, 0);
        for (stream, items, stack) in launches {
            self.captured(*stream, *items, *stack);
        }
        self.learn(graph_build::END, STREAM, GRAPH);
        self.learn(graph_build::INSTANTIATE, GRAPH, EXEC);
    }

    /// A launch of an executable graph with kernels of these queues and items. Returns their dispatches.
    fn replay(&mut self, exec: u64, kernels: &[(u32, u32)]) -> Vec<u64> {
        let correlation = 1_000 + self.now;
        let step = GraphBuild {
            correlation,
            ..self.step(graph_build::REPLAY, exec, 0)
        };
        self.take(step);
        let launch = LaunchStack {
            header: header(kind::LAUNCH_STACK, 9),
            correlation,
        };
        self.stacks.learn(&Record::LaunchStack(launch));
        let dispatch = |(queue_id, items): &(u32, u32)| {
            self.dispatch += 1;
            self.kernels.push(Kernel {
                correlation,
                dispatch_id: self.dispatch,
                queue_id: *queue_id,
                grid: [*items, 1, 1],
                end: self.now,
                ..Kernel::default()
            });
            self.dispatch
        };
        kernels.iter().map(dispatch).collect()
    }

    /// Returns the stacks of dispatches, whose records come in any order. While a session continues they are
    /// the same, but for those that are not known.
    fn stacks(mut self, dispatches: &[u64]) -> Vec<u32> {
        let mut matching = self.stacks.matching();
        self.kernels.reverse();
        let mut live = HashMap::new();
        for kernel in &self.kernels {
            assert!(self.live.take(kernel, true));
        }
        let mut found = |kernel: &Kernel, stack| {
            assert_eq!(live.insert(kernel.dispatch_id, stack), None);
        };
        let later = self.now + LATE + 1;
        for now in [self.now, later, later + 30_000_000_000] {
            self.live.pulse(now, &mut found);
        }
        for kernel in &self.kernels {
            self.stacks.match_node(&mut matching, kernel, None, true);
        }
        let kernel = |id: &u64| self.kernels.iter().find(|it| it.dispatch_id == *id);
        let kernels = dispatches.iter().filter_map(kernel);
        let stacks: Vec<u32> = kernels.map(|it| self.stacks.of_kernel(it)).collect();
        for (id, stack) in dispatches.iter().zip(&stacks) {
            let known = if [9, BEFORE].contains(stack) {
                0
            } else {
                *stack
            };
            assert_eq!(live.get(id), Some(&known), "{id}");
        }
        stacks
    }
}

fn header(kind: u8, operation: u32) -> Header {
    Header {
        kind,
        operation,
        ..Header::default()
    }
}

/// The stack 9 with the frame that the graph's capture was not seen.
const BEFORE: u32 = crate::index::stacks::MOST_NUMBERS + 9;

#[test]
fn launches_of_the_same_sizes_on_one_stream_keep_their_order() {
    let mut process = Process::new();
    process.capture(&[
        (STREAM, 64, 1),
        (STREAM, 64, 2),
        (STREAM, 128, 3),
        (STREAM, 64, 1),
    ]);
    let kernels = [(1, 64), (1, 64), (1, 128), (1, 64)];
    let mut all = process.replay(EXEC, &kernels);
    all.extend(process.replay(EXEC, &kernels));
    assert_eq!(process.stacks(&all), [1, 2, 3, 1, 1, 2, 3, 1]);
}

#[test]
fn branches_are_matched_by_what_is_in_one_of_them_alone() {
    let mut process = Process::new();
    process.capture(&[
        (STREAM, 64, 1),
        (SIDE, 64, 2),
        (SIDE, 128, 3),
        (SIDE, 128, 4),
        (STREAM, 256, 5),
        (SIDE, 256, 5),
    ]);
    let kernels = [(1, 64), (2, 64), (2, 128), (1, 256), (2, 128), (2, 256)];
    let all = process.replay(EXEC, &kernels);
    assert_eq!(process.stacks(&all), [9, 9, 3, 5, 4, 5]);
}

#[test]
fn a_chain_on_several_queues_has_no_known_order() {
    let mut process = Process::new();
    process.capture(&[(STREAM, 64, 1), (STREAM, 64, 2), (STREAM, 128, 3)]);
    let all = process.replay(EXEC, &[(1, 64), (2, 64), (2, 128)]);
    assert_eq!(process.stacks(&all), [9, 9, 3]);
}

#[test]
fn a_graph_without_a_capture_says_so() {
    let mut process = Process::new();
    // The end of a capture that started before the attach.
    process.captured(STREAM, 64, 1);
    process.learn(graph_build::END, STREAM, GRAPH);
    process.learn(graph_build::INSTANTIATE, GRAPH, EXEC);
    let mut all = process.replay(EXEC, &[(1, 64)]);
    all.extend(process.replay(0x500, &[(1, 64)]));
    assert_eq!(process.stacks(&all), [BEFORE, BEFORE]);
}

#[test]
fn a_handle_is_each_of_its_graphs_in_its_time() {
    let mut process = Process::new();
    let mut all = process.replay(EXEC, &[(1, 64)]);
    process.learn(graph_build::DESTROY, EXEC, 0);
    for stack in [1, 2] {
        process.capture(&[(STREAM, 64, stack)]);
        process.learn(graph_build::DESTROY, GRAPH, 0);
        all.extend(process.replay(EXEC, &[(1, 64)]));
        process.learn(graph_build::DESTROY, EXEC, 0);
    }
    assert_eq!(process.stacks(&all), [BEFORE, 1, 2]);
}

#[test]
fn a_graph_that_was_changed_has_no_known_nodes() {
    for change in [GRAPH, STREAM, 0] {
        let mut process = Process::new();
        process.learn(graph_build::BEGIN, STREAM, 0);
        process.captured(STREAM, 64, 1);
        if change == STREAM {
            process.learn(graph_build::CHANGE, change, 0);
        }
        process.learn(graph_build::END, STREAM, GRAPH);
        if change != STREAM {
            process.learn(graph_build::CHANGE, change, 0);
        }
        process.learn(graph_build::INSTANTIATE, GRAPH, EXEC);
        let all = process.replay(EXEC, &[(1, 64)]);
        assert_eq!(process.stacks(&all), [9], "{change:#x}");
    }
    let mut process = Process::new();
    process.capture(&[(STREAM, 64, 1)]);
    let mut all = process.replay(EXEC, &[(1, 64)]);
    process.learn(graph_build::CHANGE, EXEC, 0);
    all.extend(process.replay(EXEC, &[(1, 64)]));
    // It is made of another graph.
    process.learn(graph_build::INSTANTIATE, GRAPH, EXEC);
    all.extend(process.replay(EXEC, &[(1, 64)]));
    assert_eq!(process.stacks(&all), [1, 9, 1]);
}

#[test]
fn nodes_that_the_program_adds_have_their_lines() {
    let mut process = Process::new();
    process.learn(graph_build::CREATE, 0, GRAPH);
    // Two chains. Of nodes with the same sizes in both it is not known which is which.
    for (node, after, items, stack) in [
        (1, 0, 64, 1),
        (2, 1, 64, 2),
        (3, 2, 128, 3),
        (4, 3, 64, 4),
        (5, 0, 256, 5),
        (6, 1, 256, 6),
        (7, 0, 512, 7),
        (8, 4, 512, 7),
    ] {
        process.added(GRAPH, (node, after), items, stack);
    }
    process.learn(graph_build::INSTANTIATE, GRAPH, EXEC);
    // The executable graph stays as it is.
    process.added(GRAPH, (9, 8), 1_024, 8);
    process.learn(graph_build::INSTANTIATE, GRAPH, EXEC + 1);
    let mut kernels = vec![
        (1, 64),
        (1, 256),
        (1, 64),
        (1, 512),
        (1, 128),
        (1, 64),
        (1, 256),
        (1, 512),
    ];
    let mut all = process.replay(EXEC, &kernels);
    kernels.push((1, 1_024));
    all.extend(process.replay(EXEC + 1, &kernels));
    let first = [1, 9, 2, 7, 3, 4, 9, 7];
    let wanted = [&first[..], &first, &[8]].concat();
    assert_eq!(process.stacks(&all), wanted);
}

#[test]
fn graphs_in_graphs_and_copies_have_the_lines_of_their_nodes() {
    let (child, copy) = (GRAPH + 1, GRAPH + 2);
    let mut process = Process::new();
    process.capture(&[(STREAM, 64, 1), (STREAM, 64, 2)]);
    process.learn(graph_build::CREATE, 0, child);
    process.added(child, (1, 0), 128, 3);
    process.learn(graph_build::ADD_CHILD, child, GRAPH);
    process.learn(graph_build::COPY, child, copy);
    // Its nodes have other handles: this one is of no chain.
    process.added(copy, (2, 1), 128, 4);
    // The copy within the other graph stays as it is.
    process.added(GRAPH, (3, 0), 256, 5);
    process.learn(graph_build::INSTANTIATE, child, EXEC);
    process.learn(graph_build::INSTANTIATE, copy, EXEC + 1);
    process.learn(graph_build::ADD_CHILD, child, 0x999);
    process.learn(graph_build::INSTANTIATE, child, EXEC + 2);
    let mut all = process.replay(EXEC, &[(1, 128), (1, 64), (1, 64)]);
    all.extend(process.replay(EXEC + 1, &[(1, 128), (1, 64), (1, 64), (1, 128)]));
    all.extend(process.replay(EXEC + 2, &[(1, 128)]));
    assert_eq!(process.stacks(&all), [3, 1, 2, 9, 1, 2, 9, 9]);
}

#[test]
fn a_node_that_keeps_its_sizes_stays_where_it_was_added() {
    let mut process = Process::new();
    process.learn(graph_build::CREATE, 0, GRAPH);
    process.added(GRAPH, (1, 0), 64, 1);
    process.learn(graph_build::INSTANTIATE, GRAPH, EXEC);
    let mut all = Vec::new();
    for items in [64, 65] {
        let set = GraphBuild {
            grid: [items, 1, 1],
            ..process.step(graph_build::SET, EXEC, 1)
        };
        process.take(set);
        all.extend(process.replay(EXEC, &[(1, items)]));
    }
    // A graph from before the attach.
    process.added(0x999, (1, 0), 64, 1);
    process.learn(graph_build::INSTANTIATE, 0x999, EXEC);
    all.extend(process.replay(EXEC, &[(1, 64)]));
    assert_eq!(process.stacks(&all), [1, 9, 9]);
}

#[test]
fn what_a_process_invents_about_graphs_is_limited_while_a_session_continues() {
    let mut live = LiveGraphs::default();
    let step = |operation, subject, made, end| GraphBuild {
        header: header(kind::GRAPH_BUILD, operation),
        subject,
        made,
        end,
        ..GraphBuild::default()
    };
    let mut now = 0;
    let mut counted = 0;
    // Captures without an end, graphs that are copied again and again, and launches without kernels.
    for round in 0..40_u64 {
        for at in 0..20_000 {
            now += 1_000;
            let number = round * 20_000 + at;
            live.add(&step(graph_build::BEGIN, number % 50, 0, now));
            live.add(&step(graph_build::LAUNCH, number % 50, 0, now));
            live.add(&step(graph_build::END, number % 50, number, now));
            live.add(&step(graph_build::COPY, number, number + 1, now));
            let replay = GraphBuild {
                correlation: number,
                ..step(graph_build::REPLAY, 7, 0, now)
            };
            live.add(&replay);
        }
        for id in 0..20_000 {
            let kernel = Kernel {
                dispatch_id: id,
                end: now,
                ..Kernel::default()
            };
            counted += u64::from(live.take(&kernel, true));
        }
        let mut found = 0;
        live.pulse(now + 2 * LATE, |_, _| found += 1);
        counted -= found;
        assert!(
            live.held() < 3 * MOST_STEPS + MOST_REPLAYS,
            "{}",
            live.held()
        );
    }
    assert_eq!(counted, 0);
    assert!(live.held() < MOST_STEPS, "it has given up: {}", live.held());
}

#[test]
fn launches_into_one_of_several_captures_are_no_ones() {
    let mut process = Process::new();
    process.learn(graph_build::BEGIN, 0x600, 0);
    process.capture(&[(STREAM, 64, 1), (SIDE, 64, 1)]);
    let all = process.replay(EXEC, &[(1, 64), (1, 64)]);
    assert_eq!(process.stacks(&all), [9, 9]);

    let mut process = Process::new();
    process.learn(graph_build::BEGIN, 0x600, 0);
    process.capture(&[(STREAM, 64, 1), (0x600, 64, 2)]);
    let all = process.replay(EXEC, &[(1, 64)]);
    assert_eq!(process.stacks(&all), [1]);
}

#[test]
fn other_numbers_of_kernels_are_not_matched() {
    let mut process = Process::new();
    process.capture(&[(STREAM, 64, 1), (STREAM, 64, 1), (STREAM, 128, 3)]);
    let mut all = process.replay(EXEC, &[(1, 64), (1, 128)]);
    all.extend(process.replay(EXEC, &[(1, 64), (1, 128), (1, 128)]));
    assert_eq!(process.stacks(&all), [9; 5]);
}

/// Returns the stacks of kernels that name these nodes. Each is launched at stack 9.
fn stacks_of_nodes(process: &mut Process, nodes: &[u64]) -> Vec<u32> {
    let launch = LaunchStack {
        header: header(kind::LAUNCH_STACK, 9),
        correlation: 5,
    };
    process.stacks.learn(&Record::LaunchStack(launch));
    let mut matching = process.stacks.matching();
    let stack = |(node, at): (&u64, u64)| {
        let kernel = Kernel {
            dispatch_id: at,
            correlation: 5,
            ..Kernel::default()
        };
        let cuda = CudaLaunch {
            graph_node: *node,
            ..CudaLaunch::default()
        };
        process
            .stacks
            .match_node(&mut matching, &kernel, Some(&cuda), true);
        process.stacks.of_kernel(&kernel)
    };
    nodes.iter().zip(1..).map(stack).collect()
}

/// Also by copies of copies. Of some that were lost, it is not known whether they are from before the attach.
#[test]
fn kernels_that_name_their_nodes_have_the_nodes_stacks() {
    for loses_nodes in [false, true] {
        let mut process = Process::new();
        let node = GraphBuild {
            stack: 4,
            ..process.step(graph_build::NODE, 70, 0)
        };
        process.stacks.learn(&Record::GraphBuild(node));
        // CUPTI reports a copy as a new node first, at the stack of the call that copies.
        let made = GraphBuild {
            stack: 5,
            ..process.step(graph_build::NODE, 71, 0)
        };
        process.stacks.learn(&Record::GraphBuild(made));
        for (original, copy) in [(70, 71), (71, 80), (91, 90), (90, 91)] {
            process.learn(graph_build::NODE_COPY, original, copy);
        }
        let mut unseen = BEFORE;
        if loses_nodes {
            process.learn(graph_build::CHANGE, 0, 0);
            unseen = 9;
        }
        let found = stacks_of_nodes(&mut process, &[70, 71, 80, 72, 90, 0]);
        assert_eq!(found, [4, 4, 4, unseen, 9, 9]);
    }
}
