use super::*;
use midair_record::event::{Code, Header, Kernel, LaunchStack, NativeCode, Record, Stack, kind};

const MS: u64 = 1_000_000;

/// A program whose kernels follow one another, 1 ms after the launch before.
#[derive(Default)]
struct Program {
    stacks: Stacks,
    launched: Launched,
    numbers: HashMap<Path, u32>,
    correlation: u64,
    time: u64,
}

fn header(kind: u8, operation: u32) -> Header {
    Header {
        kind,
        operation,
        ..Header::default()
    }
}

impl Program {
    /// The function of each number is `fN` in `N.py`.
    fn new() -> Program {
        let mut program = Program::default();
        for number in 1..=9_u32 {
            let (file, name) = (format!("/job/{number}.py"), format!("f{number}"));
            let code = Code {
                header: header(kind::CODE, number),
                file_len: file.len() as u32,
                name_len: name.len() as u32,
            };
            let record = Record::Code(code, file.as_bytes(), name.as_bytes());
            program.stacks.learn(&record);
        }
        program
    }

    /// Launches a kernel of so many ms at a stack, the outermost frame first. Without frames it has
    /// none, and comes from another thread.
    fn launch(&mut self, path: &[(u32, u32)], ms: u64) {
        self.correlation += 1;
        if !path.is_empty() {
            let next = self.numbers.len() as u32 + 1;
            let number = *self.numbers.entry(path.to_vec()).or_insert(next);
            let frames: Vec<u8> = path
                .iter()
                .rev()
                .flat_map(|(function, line)| [function.to_ne_bytes(), line.to_ne_bytes()].concat())
                .collect();
            let stack = Stack {
                header: header(kind::STACK, number),
                frames: path.len() as u32,
                is_cut: 0,
            };
            self.stacks.learn(&Record::Stack(stack, &frames));
            self.stacks.learn(&Record::LaunchStack(LaunchStack {
                header: header(kind::LAUNCH_STACK, number),
                correlation: self.correlation,
            }));
        }
        self.time += MS;
        self.launched.add(&Kernel {
            correlation: self.correlation,
            start: self.time,
            end: self.time + ms * MS,
            tid: if path.is_empty() { 2 } else { 1 },
            ..Kernel::default()
        });
        self.time += ms * MS;
    }

    fn found(&self) -> Option<MainLoop> {
        main_loop(&self.launched, &self.stacks)
    }
}

/// Forward (with three layers of one line), backward on another thread, optimizer; a logging line in
/// every tenth iteration.
fn train(steps: u64) -> Program {
    let mut program = Program::new();
    program.launch(&[(1, 3)], 9);
    for step in 0..steps {
        for _ in 0..3 {
            program.launch(&[(1, 70), (2, 20), (3, 40), (4, 5)], 1);
            program.launch(&[(1, 70), (2, 20), (3, 40), (4, 6)], 1);
        }
        program.launch(&[(1, 70), (2, 20), (3, 42)], 1);
        program.launch(&[(1, 70), (2, 21)], 1);
        program.launch(&[], 4);
        program.launch(&[(1, 70), (2, 23), (5, 9)], if step == 7 { 20 } else { 2 });
        if step % 10 == 9 {
            program.launch(&[(1, 70), (2, 30)], 1);
        }
    }
    program
}

#[test]
fn a_training_loop_is_found_with_its_steps_and_lines() {
    let found = train(40).found().unwrap();
    assert_eq!((found.function.name.as_str(), found.tid), ("f2", 1));
    assert!(!found.is_native);
    // Two bounds are missing: what came before the first jump back, and the iteration under way.
    assert_eq!(found.steps.len(), 38);
    // Ten kernels and the time before each.
    assert_eq!((found.median(), found.steps[0].kernels), (24 * MS, 10));
    let (number, slowest) = found.slowest().unwrap();
    assert_eq!((number, slowest.duration), (7, 42 * MS));
    let calls = [(20, "f3"), (23, "f5")].map(|(line, name)| (line, name.to_owned()));
    assert_eq!(found.calls, BTreeMap::from(calls));
    let first: Vec<_> = found.phases[..4]
        .iter()
        .map(|it| (it.line, it.start - found.steps[0].start, it.duration))
        .collect();
    // The kernels of another thread belong to the line before.
    let wanted = [(20, 0, 14), (21, 14, 7), (23, 21, 3), (20, 24, 14)];
    assert_eq!(
        first,
        wanted.map(|(line, start, time)| (line, start * MS, time * MS))
    );
    assert!((slowest.idle() - 10.0 / 42.0).abs() < 1e-9);
    assert!(
        found.idle() > 0.3 && found.idle() < 0.45,
        "{}",
        found.idle()
    );
    let lines: Vec<u32> = found.lines.iter().map(|line| line.line).collect();
    assert_eq!(lines, [20, 21, 23, 30]);
    // The other thread's kernels were launched during the backward call.
    let backward = found.lines[1];
    assert_eq!(backward.kernels, 2 * found.lines[2].kernels);
    assert_eq!(backward.time, found.lines[2].kernels * 5 * MS);
}

/// Arguments of a call on several lines are evaluated before it, so the line jumps back there, too.
#[test]
fn a_statement_on_several_lines_is_no_loop_of_its_own() {
    let mut program = Program::new();
    for _ in 0..30 {
        for line in [11, 10, 14, 18] {
            program.launch(&[(1, 5), (2, line)], 1);
        }
    }
    let found = program.found().unwrap();
    assert_eq!((found.steps.len(), found.steps[0].kernels), (28, 4));
    assert_eq!(found.steps[0].duration, 8 * MS);
}

#[test]
fn gradients_are_accumulated_within_a_step() {
    let mut program = Program::new();
    for _ in 0..20 {
        for _ in 0..4 {
            program.launch(&[(1, 11)], 1);
            program.launch(&[(1, 12)], 1);
        }
        program.launch(&[(1, 14)], 1);
    }
    assert_eq!(program.found().unwrap().steps[0].kernels, 9);
}

/// Three epochs do not count as iterations, and their steps do.
#[test]
fn steps_of_some_epochs() {
    let mut program = Program::new();
    for _ in 0..3 {
        for _ in 0..50 {
            for line in [20, 22, 24] {
                program.launch(&[(1, 5), (2, line)], 1);
            }
        }
        program.launch(&[(1, 6), (3, 8)], 1);
    }
    let found = program.found().unwrap();
    assert_eq!(found.function.name, "f2");
    assert_eq!((found.steps.len(), found.steps[0].kernels), (148, 3));
    assert_eq!(found.median(), 6 * MS);
}

/// Times come from the target.
#[test]
fn impossible_times_overflow_nothing() {
    let mut program = Program::new();
    for _ in 0..40 {
        for line in [20, 22, 24] {
            program.launch(&[(1, line)], 1);
        }
    }
    for (at, kernel) in program.launched.kernels.iter_mut().enumerate() {
        kernel.start = if at / 3 % 2 == 0 { 0 } else { u64::MAX - 1 };
        kernel.end = u64::MAX;
    }
    let found = program.found().unwrap();
    assert!(found.steps.iter().all(|step| step.duration == u64::MAX - 1));
    assert!((0.0..=1.0).contains(&found.idle()), "{}", found.idle());
    assert_eq!(found.lines[0].time, u64::MAX);
}

#[test]
fn iterations_end_at_different_lines() {
    let mut program = Program::new();
    for step in 0..40 {
        program.launch(&[(1, 10)], 1);
        program.launch(&[(1, if step % 2 == 0 { 12 } else { 15 })], 1);
    }
    let found = program.found().unwrap();
    assert_eq!((found.steps.len(), found.steps[0].kernels), (38, 2));
}

#[test]
fn nothing_is_said_where_nothing_repeats() {
    assert!(Program::new().found().is_none());
    // Too few.
    assert!(train(5).found().is_none());
    // One line launches everything.
    let mut program = Program::new();
    (0..100).for_each(|_| program.launch(&[(1, 7), (2, 9)], 1));
    assert!(program.found().is_none());
    // Lines in no order.
    let mut program = Program::new();
    let mut state = 1_u32;
    for _ in 0..400 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        program.launch(&[(1, 10 + (state >> 20) % 40)], 1);
    }
    assert!(program.found().is_none());
    // No kernel has a stack.
    let mut program = Program::new();
    (0..100).for_each(|_| program.launch(&[], 1));
    assert!(program.found().is_none());
}

/// A program without Python: `main` runs `step` again and again, which calls so many functions in an order of its
/// own. The last function is called at the lowest address.
fn native(functions: u32, order: impl Fn(u32) -> Vec<u32>) -> Program {
    let mut program = Program::default();
    let mut add = |number: u32, address: u32, name: &str| {
        let place = NativeCode {
            header: header(kind::NATIVE_CODE, number),
            module: 1,
            reserved: 0,
            address: u64::from(address),
        };
        program.stacks.learn(&Record::NativeCode(place));
        let code = Code {
            header: header(kind::CODE, number),
            file_len: 8,
            name_len: name.len() as u32,
        };
        let record = Record::Code(code, b"/job/app", name.as_bytes());
        program.stacks.learn(&record);
    };
    add(1, 0x10, "main");
    for function in 0..functions {
        add(100 + function, 0x1_000 - 8 * function, "step");
        add(200 + function, 0x2_000, &format!("f{function}"));
    }
    for step in 0..40 {
        for function in order(step) {
            program.launch(&[(1, 0), (100 + function, 0), (200 + function, 0)], 2);
        }
    }
    program
}

#[test]
fn a_loop_in_native_code_has_its_calls_as_phases() {
    let found = native(3, |_| vec![2, 2, 1, 0]).found().unwrap();
    assert!(found.is_native);
    assert_eq!(found.function.name, "step");
    assert_eq!(found.steps.len(), 38);
    assert!(found.steps.iter().all(|step| step.kernels == 4));
    let calls = [(1, "f2"), (2, "f1"), (3, "f0")].map(|(call, name)| (call, name.to_owned()));
    assert_eq!(found.calls, BTreeMap::from(calls));
    let lines: Vec<_> = found.lines.iter().map(|it| (it.line, it.kernels)).collect();
    assert_eq!(lines, [(1, 76), (2, 38), (3, 38)]);
    let phases: Vec<u32> = found.phases.iter().map(|phase| phase.line).collect();
    assert_eq!(phases, [1, 2, 3].repeat(38));
}

#[test]
fn nothing_is_said_where_native_code_does_not_repeat() {
    let random = |at: u32| {
        at.wrapping_mul(0x9e37_79b9)
            .rotate_left(15)
            .wrapping_mul(0x85eb_ca6b)
            >> 16
    };
    let order = |step: u32| (0..10).map(|at| random(10 * step + at + 1) % 40).collect();
    assert!(native(40, order).found().is_none());
}
