//! `--stacks native`: the functions that launch kernels, in a program without Python. Each launch has
//! its function's number in grid.x and its thread's number in grid.y, so each kernel's row in the csv
//! says what its stack has to be.

use crate::launch_stacks;
use crate::rocpd::reader;
use crate::top::{Top, counts_by_function};
use midair_tests::attacher::Attacher;
use midair_tests::lab::{Lab, LabTarget};
use midair_tests::modellog::ModelLog;
use midair_tests::stage::command;
use midair_tests::stand_in::Kit;
use midair_tests::table::Csv;
use midair_tests::target::{PATIENCE, Target};
use midair_tests::{Result, cuda, workspace};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

const WORDS: [&str; 5] = [
    "--kernel-trace",
    "--stacks",
    "native",
    "-f",
    "csv,folded,pprof",
];
/// The numbers of the functions, their names, and the launches of one thread's round of each: see the
/// program.
const FUNCTIONS: [(u64, &str, u64); 6] = [
    (1, "app::first(unsigned int)", 2),
    (2, "app::Net::forward(unsigned int, int)", 1),
    (3, "app::Layer<7>::run(unsigned int)", 3),
    (4, "app::aligned(unsigned int, unsigned long)", 1),
    (5, "app::bare(unsigned int)", 1),
    (7, "app::deep(unsigned int, int)", 1),
];
const IN_THREAD: &str = "app::in_thread(unsigned int)";
const WORK: &str = "app::work(unsigned int)";
/// Threads of one round besides the first, and their own launches.
const THREADS: u64 = 3;
const BY_THREAD: u64 = 5;

/// The GPU's time by the function's number, and by whether it is a further thread's.
type Times = BTreeMap<(u64, bool), u64>;

/// Returns the times by the functions' numbers and whether it is a further thread, and the number of
/// launches.
fn from_csv(file: &Path) -> Result<(Times, u64)> {
    let (mut times, mut count) = (Times::new(), 0);
    for row in Csv::read(file)?.rows {
        let [number, thread, start, end] = [
            "Grid_Size_X",
            "Grid_Size_Y",
            "Start_Timestamp",
            "End_Timestamp",
        ]
        .map(|name| Csv::number(&row, name));
        *times.entry((number? / 64, thread? > 1)).or_default() += end? - start?;
        count += 1;
    }
    Ok((times, count))
}

/// Returns the stacks of a folded file: functions, outermost first, without their modules; and times.
fn from_folded(file: &Path) -> Result<Vec<(Vec<String>, u64)>> {
    let text = std::fs::read_to_string(file)?;
    let lines = text.lines().map(|line| {
        let (path, time) = line.rsplit_once(' ').ok_or("a line has a time")?;
        let bare = |frame: &str| {
            let bare = frame.rsplit_once(" (").map_or(frame, |(name, _)| name);
            bare.to_owned()
        };
        Ok((path.split(';').map(bare).collect(), time.parse()?))
    });
    lines.collect()
}

/// Checks what is around the function that launches.
fn check_path(number: u64, path: &[String], is_thread: bool) {
    let at = |function: &str| path.iter().filter(|frame| *frame == function).count();
    match number {
        // 128 frames are kept, the innermost ones.
        7 => {
            assert_eq!(at(FUNCTIONS[5].1), 128, "{path:?}");
            assert_eq!(path.len(), 129, "{path:?}");
            return;
        }
        2 => assert_eq!(at(FUNCTIONS[1].1), 5, "{path:?}"),
        6 => assert_eq!(at(WORK), 0, "{path:?}"),
        _ => {}
    }
    assert_eq!(at(WORK), u64::from(number != 6) as usize, "{path:?}");
    assert_eq!(at(IN_THREAD), usize::from(is_thread), "{path:?}");
    assert_eq!(at("main"), usize::from(!is_thread), "{path:?}");
}

/// Checks the files of some rounds of the program.
fn check_files(rounds: u64, csv: &Path, folded: &Path) -> Result<()> {
    let numbers: BTreeMap<&str, u64> = FUNCTIONS
        .iter()
        .map(|(number, name, _)| (*name, *number))
        .chain([(IN_THREAD, 6)])
        .collect();
    let each: u64 = FUNCTIONS.iter().map(|(_, _, launches)| launches).sum();
    let (wanted, count) = from_csv(csv)?;
    assert_eq!(count, rounds * ((1 + THREADS) * each + THREADS * BY_THREAD));
    let mut times = Times::new();
    for (path, time) in from_folded(folded)? {
        let [.., function, kernel] = path.as_slice() else {
            return Err(format!("{path:?}").into());
        };
        assert!(kernel.contains("scale"), "{path:?}");
        let number = *numbers
            .get(function.as_str())
            .ok_or_else(|| format!("{path:?}"))?;
        let is_thread = path.iter().any(|frame| frame == IN_THREAD);
        check_path(number, &path, is_thread);
        // Of the deep stack only the inner frames are known.
        *times.entry((number, is_thread && number != 7)).or_default() += time;
    }
    let mut merged = Times::new();
    for ((number, is_thread), time) in wanted {
        *merged
            .entry((number, is_thread && number != 7))
            .or_default() += time;
    }
    assert_eq!(times, merged);
    Ok(())
}

/// Checks a session of some rounds of the program, which has said that it is ready.
fn check(target: &mut LabTarget) -> Result<()> {
    for rounds in [1, 20] {
        let attacher = Attacher::midair(target.target.pid(), &WORDS)?;
        target.target.send(&format!("work {rounds}"))?;
        target.target.expect("work")?;
        let traced = attacher.detach()?;
        let (csv, folded) = (
            traced.file("kernel_trace.csv"),
            traced.file("results.folded"),
        );
        check_files(rounds, &csv, &folded)?;
        let said = traced.exit.stdout.join("\n");
        assert!(said.contains("CODE"), "{said}");
        assert!(said.contains("launch_functions"), "{said}");
    }
    Ok(())
}

fn end(mut target: LabTarget) -> Result<()> {
    target.target.send("quit")?;
    let log = target.log.clone();
    target.target.wait(PATIENCE)?.success()?;
    ModelLog::read(&log)?.check()
}

#[test]
fn each_function_has_the_times_of_its_own_launches() -> Result<()> {
    let forms = [
        ("launch_functions", "-fomit-frame-pointer"),
        ("launch_functions_fp", "-fno-omit-frame-pointer"),
    ];
    for (name, flag) in forms {
        let kit = Kit::new()?;
        let program = kit.program_by(&["gcc"], "launch_functions", name, &[flag])?;
        let mut target = kit.start_command(Command::new(program), "model.log", &[])?;
        target.expect("ready")?;
        check(&mut target).map_err(|error| format!("{flag}: {error}"))?;
        end(target)?;
    }
    Ok(())
}

#[test]
fn each_function_has_the_times_of_its_own_launches_on_amds_runtimes() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let kernels = lab.kernels()?;
    let mut target = lab
        .run(&lab.program("launch_functions")?)
        .arg(&kernels)
        .spawn()?;
    target.target.expect("ready")?;
    check(&mut target)?;
    end(target)
}

/// The functions of the Rust program, their launches in a round, and a function around them.
const RUST: [(u64, &str, u64, &str); 5] = [
    (1, "app::first", 1, "app::work"),
    (2, "app::layers::<3>", 3, "app::work"),
    (3, "<app::Net as app::Forward>::forward", 1, "app::work"),
    (4, "app::in_thread", 1, "thread_start"),
    (5, "app::panics", 1, "app::work"),
];

#[test]
fn each_function_of_rust_has_the_times_of_its_own_launches() -> Result<()> {
    let kit = Kit::new()?;
    let program = kit.rust_program("launch_functions")?;
    let mut target = kit.start_command(Command::new(program), "model.log", &[])?;
    target.expect("ready")?;
    let attacher = Attacher::midair(target.target.pid(), &WORDS)?;
    let rounds = 20;
    target.send(&format!("work {rounds}"))?;
    target.expect("work")?;
    let traced = attacher.detach()?;
    let (wanted, count) = from_csv(&traced.file("kernel_trace.csv"))?;
    let each: u64 = RUST.iter().map(|(_, _, launches, _)| launches).sum();
    assert_eq!(count, rounds * each);
    let mut times = Times::new();
    for (path, time) in from_folded(&traced.file("results.folded"))? {
        let [around @ .., function, _] = path.as_slice() else {
            return Err(format!("{path:?}").into());
        };
        let known = RUST.iter().find(|(_, name, ..)| name == function);
        let (number, _, _, outer) = known.ok_or_else(|| format!("{path:?}"))?;
        assert!(around.iter().any(|it| it.contains(outer)), "{path:?}");
        *times.entry((*number, false)).or_default() += time;
    }
    assert_eq!(times, wanted);
    end(target)
}

/// A started program writes its files itself.
#[test]
fn each_function_has_the_times_of_its_own_launches_in_a_started_program() -> Result<()> {
    let kit = Kit::new()?;
    let program = kit.program_by(&["gcc"], "launch_functions", "launch_functions", &[])?;
    let out = kit.scratch().join("out");
    let mut run = command("midair")?;
    run.arg("run").args(WORDS).args(["-o", "out", "-d"]);
    run.arg(&out).arg("--").arg(program);
    let runtime = kit.dir().join("libamdhip64.so.7").display().to_string();
    let directory = kit.dir().display().to_string();
    // The stand-in does not register itself when it is loaded, as AMD's runtime does.
    let variables = [("LD_LIBRARY_PATH", &*directory), ("LD_PRELOAD", &*runtime)];
    let mut target = kit.start_command(run, "model.log", &variables)?;
    target.expect("ready")?;
    target.send("work 5")?;
    target.expect("work")?;
    end(target)?;
    let file = |name: &str| out.join(format!("out_{name}"));
    // One round comes before "ready".
    check_files(6, &file("kernel_trace.csv"), &file("results.folded"))
}

/// The screen has the functions' names while the session continues.
#[test]
fn top_has_the_functions_that_launch() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = kit.start("launch_functions", "model.log", &[])?;
    target.expect("ready")?;
    let words = ["--by", "code", "--stacks", "native", "--interval", "250ms"];
    let mut top = Top::start(target.target.pid(), &words)?;
    top.until("the first look", |_| true)?;
    let mut rounds = 0;
    let wanted = |rounds: u64| -> BTreeMap<&str, u64> {
        let by = |(_, name, launches): &(u64, &'static str, u64)| {
            (*name, rounds * (1 + THREADS) * launches)
        };
        let in_threads = (IN_THREAD, rounds * THREADS * BY_THREAD);
        FUNCTIONS.iter().map(by).chain([in_threads]).collect()
    };
    // The second time all names are known.
    for more in [2, 3] {
        rounds += more;
        target.send(&format!("work {more}"))?;
        target.expect("work")?;
        top.until("all launches", |document| {
            counts_by_function(document) == wanted(rounds)
        })?;
    }
    top.end()?;
    end(target)
}

/// The functions that `app::work` calls, in order, and the kernels of each call. The last one is without unwind tables;
/// the stack of the deep function behind it does not reach to `app::work`.
const CALLS: [(&str, u64); 6] = [
    (FUNCTIONS[0].1, 1),
    (FUNCTIONS[0].1, 1),
    (FUNCTIONS[1].1, 1),
    (FUNCTIONS[2].1, 3),
    (FUNCTIONS[3].1, 1),
    ("with_frame", 2),
];

/// The main loop of a program without Python, and its phases; nothing where no two calls repeat each other.
#[test]
fn the_main_loop_has_its_calls_as_phases() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = kit.start("launch_functions", "model.log", &[])?;
    target.expect("ready")?;
    let words = [&WORDS[..3], &["--json", "-f", "csv"]].concat();
    let mut record = |what: &str| -> Result<Value> {
        let attacher = Attacher::midair(target.target.pid(), &words)?;
        target.target.send(what)?;
        target
            .target
            .expect(what.split(' ').next().unwrap_or_default())?;
        let exit = attacher.detach()?.exit;
        let mut document: Value = serde_json::from_str(&exit.stdout.join(""))?;
        Ok(document["processes"][0]["main_loop"].take())
    };
    let rounds = 40;
    let found = record(&format!("steps {rounds}"))?;
    assert_eq!(found["function"], WORK, "{found}");
    // The first and the last iteration have no bounds.
    let whole = rounds - 2;
    let kernels: u64 = CALLS.iter().map(|(_, kernels)| kernels).sum();
    let iterations = found["iterations"].as_array().ok_or("iterations")?;
    assert_eq!(iterations.len() as u64, whole, "{found}");
    assert!(iterations.iter().all(|it| it["kernels"] == kernels));
    let calls: Vec<(u64, &str, u64)> = found["lines"]
        .as_array()
        .ok_or("calls")?
        .iter()
        .map(|call| {
            let number = |key: &str| call[key].as_u64().unwrap_or(0);
            let name = call["calls"].as_str().unwrap_or_default();
            (number("call"), name, number("kernels"))
        })
        .collect();
    let wanted: Vec<(u64, &str, u64)> = (1..)
        .zip(CALLS)
        .map(|(number, (name, kernels))| (number, name, whole * kernels))
        .collect();
    assert_eq!(calls, wanted, "{found}");
    assert_eq!(record("small 500")?, Value::Null);
    end(target)
}

/// A frame pointer that is garbage, in code without unwind tables, ends the stack: what is inside of
/// it is there, the program runs on, and other stacks are whole.
#[test]
fn a_broken_stack_has_its_inner_frames() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = kit.start("launch_functions", "model.log", &[])?;
    target.expect("ready")?;
    let attacher = Attacher::midair(target.target.pid(), &WORDS)?;
    for _ in 0..20 {
        target.target.send("corrupt 100")?;
        target.target.expect("corrupt")?;
    }
    // No walk leads out of a stack that the program has made itself.
    target.target.send("context 50")?;
    target.target.expect("context")?;
    let traced = attacher.detach()?;
    let (wanted, count) = from_csv(&traced.file("kernel_trace.csv"))?;
    assert_eq!((count, wanted.len()), (2_050, 2));
    let said = traced.exit.stderr.join("\n");
    assert!(said.contains("50 launches have no stack"), "{said}");
    let mut sum = 0;
    for (path, time) in from_folded(&traced.file("results.folded"))? {
        if path.first().is_some_and(|it| it == "(stack not recorded)") {
            assert_eq!(Some(&time), wanted.get(&(11, false)));
            continue;
        }
        let [.., caller, function, _] = path.as_slice() else {
            return Err(format!("{path:?}").into());
        };
        let wanted = ["with_garbage", "app::corrupt(unsigned int)"];
        assert_eq!([caller, function], wanted, "{path:?}");
        sum += time;
    }
    assert_eq!(Some(&sum), wanted.get(&(8, false)));
    end(target)
}

/// What is launched by each function around `launch_number`, by the function's number.
const BY_FUNCTION: &str =
    "SELECT k.grid_x / 64 AS number, c.function AS function, COUNT(*) AS launches
    FROM kernels AS k JOIN call_stacks AS c USING (guid, event_id)
    WHERE c.depth = 1 GROUP BY number, function";

/// Libraries come, launch and go while a session runs, one where another one was. No launch counts as
/// another library's, and the process runs on.
#[test]
fn libraries_that_come_and_go_are_told_apart() -> Result<()> {
    let kit = Kit::new()?;
    let forms = [(9, "by_nine", ""), (10, "by_ten", "-DPADDING")];
    let mut libraries = Vec::new();
    for (number, function, more) in forms {
        let flags = [
            format!("-DNUMBER={number}"),
            format!("-DNAME={function}"),
            "-shared".to_owned(),
            "-fPIC".to_owned(),
            more.to_owned(),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let flags = flags.strip_suffix(&[""]).unwrap_or(&flags);
        let file = format!("liblaunch_{number}.so");
        libraries.push(kit.program_by(&["gcc"], "launch_library", &file, flags)?);
    }
    let mut target = kit.start("launch_functions", "model.log", &[])?;
    target.expect("ready")?;
    let [first, _] = libraries.as_slice() else {
        return Err("two".into());
    };
    let pid = target.target.pid();
    let mut ask = |words: &str| -> Result<()> {
        target.target.send(words)?;
        let word = words.split(' ').next().unwrap_or_default();
        target.target.expect(word).map(drop)
    };
    ask(&format!("open {}", first.display()))?;
    let words = ["--kernel-trace", "--stacks", "native", "-f", "rocpd"];
    let attacher = Attacher::midair(pid, &words)?;
    // This one was there when the session started.
    let known = 7;
    for _ in 0..known {
        ask("call")?;
    }
    ask("close")?;
    let rounds = 60;
    for _ in 0..rounds {
        for library in &libraries {
            ask(&format!("library {}", library.display()))?;
        }
    }
    let traced = attacher.detach()?;
    let read = reader(&traced.file("results.db"), &[BY_FUNCTION])?;
    let rows = read["answers"][0].as_array().ok_or("rows")?;
    let mut named = 0;
    let mut all = 0;
    for row in rows {
        let launches = row["launches"].as_u64().ok_or("a number")?;
        let function = row["function"].as_str().ok_or("a name")?;
        all += launches;
        let wanted = forms.iter().find(|form| row["number"] == form.0);
        let (_, name, _) = wanted.ok_or_else(|| format!("{row}"))?;
        // A library that came a moment ago is not known yet.
        if function != "(unknown code)" {
            assert_eq!(function, *name, "{rows:?}");
            named += launches;
        }
    }
    assert_eq!(all, known + 2 * rounds, "{rows:?}");
    assert!(named >= known, "{rows:?}");
    end(target)
}

/// What a recording of a library with functions of PyTorch's names has for it, by `--stacks-by`: the frames
/// between `main` and the kernel.
const OPERATORS: [(&str, &[&str]); 3] = [
    (
        "frame",
        &[
            "launch_by",
            "MmBackward0",
            "aten::mm",
            "c10::Dispatcher::call()",
            "aten::mm",
            "at::native::mm_cuda(at::Tensor const&, at::Tensor const&)",
            "launch_number",
        ],
    ),
    ("operator", &["MmBackward0", "aten::mm", "launch_number"]),
    ("kernel", &[]),
];

/// PyTorch's operators and backward nodes have their names, and `--stacks-by` leaves out what is between them.
#[test]
fn functions_of_pytorch_are_its_operators() -> Result<()> {
    let kit = Kit::new()?;
    let flags = ["-shared", "-fPIC"];
    let library = kit.program_by(&["gcc"], "launch_operators", "libtorch_cpu.so", &flags)?;
    let mut target = kit.start("launch_functions", "model.log", &[])?;
    target.expect("ready")?;
    target.send(&format!("open {}", library.display()))?;
    target.expect("open")?;
    for (by, wanted) in OPERATORS {
        let words = [&WORDS[..3], &["--stacks-by", by, "-f", "folded"]].concat();
        let attacher = Attacher::midair(target.target.pid(), &words)?;
        target.send("call")?;
        target.expect("call")?;
        let traced = attacher.detach()?.code(0)?;
        let [(path, _)] = from_folded(&traced.file("results.folded"))?
            .try_into()
            .map_err(|all| format!("{all:?}"))?;
        let main = path.iter().position(|frame| frame == "main");
        let inside = path.get(main.map_or(0, |at| at + 1)..path.len() - 1);
        let inside = inside.unwrap_or_default().iter();
        let inside: Vec<&str> = inside.map(String::as_str).collect();
        // The program's own functions around the library's are as the compiler inlines them.
        let own = inside.len().saturating_sub(wanted.len());
        assert_eq!(inside.get(own..), Some(wanted), "{by}: {path:?}");
    }
    end(target)
}

/// Checks `--stacks both` of a Python program: Python's frames match
/// `--stacks python`, and the native frames inside of them are ctypes'.
fn check_both(target: &mut Target) -> Result<()> {
    let words = ["--kernel-trace", "--stacks", "both", "-f", "csv,folded"];
    let attacher = Attacher::midair(target.pid(), &words)?;
    target.send("work 3")?;
    target.expect("work")?;
    let traced = attacher.detach()?;
    let (csv, folded) = (
        traced.file("kernel_trace.csv"),
        traced.file("results.folded"),
    );
    check_both_files(&csv, &folded, false)?;
    target.send("quit")
}

/// Checks the files of `--stacks both`. A started program may launch before its libraries are known: then each Python
/// stack is there with its native frames as well, below another line of the module.
fn check_both_files(csv: &Path, folded: &Path, is_started: bool) -> Result<()> {
    let (by_grid, _) = launch_stacks::from_rows(csv)?;
    let folded = std::fs::read_to_string(folded)?;
    let mut stacks = Vec::new();
    let (mut known, mut unknown) = (BTreeSet::new(), BTreeSet::new());
    for line in folded.lines() {
        let (path, time) = line.rsplit_once(' ').ok_or("a time")?;
        let all: Vec<String> = path.split(';').map(str::to_owned).collect();
        let (kernel, frames) = all.split_last().ok_or("a kernel")?;
        let is_python = |frame: &String| frame.contains(".py:") || frame.contains("<string>");
        let python = frames.iter().take_while(|frame| is_python(frame));
        let mut path: Vec<String> = python.cloned().collect();
        let native = frames.get(path.len()..).unwrap_or_default();
        assert!(!native.is_empty(), "{line}");
        assert!(!native.iter().any(is_python), "{line}");
        if native.iter().any(|it| it.contains("ffi")) {
            known.insert(path[1..].to_vec());
        } else {
            let is_new = native
                .last()
                .is_some_and(|it| it.starts_with("(unknown code)"));
            assert!(is_started && is_new, "{line}");
            unknown.insert(path[1..].to_vec());
        }
        assert!(
            !line.contains("PyEval") && !line.contains("midair"),
            "{line}"
        );
        path.push(kernel.clone());
        stacks.push((path, time.parse()?));
    }
    assert!(unknown.is_subset(&known), "{folded}");
    let times = launch_stacks::from_stacks(stacks.into_iter())?;
    assert_eq!(times, launch_stacks::threads_as_one(&by_grid), "{folded}");
    Ok(())
}

/// Each launch has a stack, or is counted as one over the budget. How many are depends on the machine.
#[test]
fn launches_over_the_budget_are_counted() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = kit.start("launch_functions", "model.log", &[])?;
    target.expect("ready")?;
    let words = [
        &WORDS[..3],
        &["--stacks-budget", "1", "--json", "-f", "folded"],
    ]
    .concat();
    let attacher = Attacher::midair(target.target.pid(), &words)?;
    target.send("small 4000")?;
    target.expect("small")?;
    let exit = attacher.detach()?.exit;
    let document: Value = serde_json::from_str(&exit.stdout.join(""))?;
    let stacks = &document["processes"][0]["stacks"];
    let number = |name: &str| stacks[name].as_u64().ok_or_else(|| format!("{exit}"));
    // The program waits by a packet of its own at the end.
    let all = number("calls")? + number("over_budget")?;
    assert!((4000..=4001).contains(&all), "{exit}");
    assert!((20..120).contains(&number("timed_walks")?), "{exit}");
    assert!(number("mean_walk_ns")? > 0, "{exit}");
    let notes = document["warnings"].to_string();
    let says = notes.contains("took their budget (--stacks-budget)");
    assert_eq!(says, number("over_budget")? > 0, "{exit}");
    end(target)
}

fn lines() -> Command {
    let mut command = Command::new("/usr/bin/python3");
    command.arg(workspace().join("tests/python/launch_lines.py"));
    command
}

#[test]
fn native_frames_inside_of_pythons() -> Result<()> {
    let kit = Kit::new()?;
    let mut command = lines();
    command.arg(kit.dir().join("libamdhip64.so.7"));
    let library = kit.dir().display().to_string();
    let mut target = kit.start_command(command, "model.log", &[("LD_LIBRARY_PATH", &library)])?;
    target.expect("ready")?;
    check_both(&mut target.target)?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

#[test]
fn native_frames_inside_of_pythons_in_a_started_program() -> Result<()> {
    let kit = Kit::new()?;
    let out = kit.scratch().join("out");
    let mut run = command("midair")?;
    run.args(["run", "--kernel-trace", "--stacks", "both"]);
    run.args(["-f", "csv,folded", "-o", "out", "-d"]);
    run.arg(&out).args(["--", "/usr/bin/python3"]);
    run.arg(workspace().join("tests/python/launch_lines.py"));
    let runtime = kit.dir().join("libamdhip64.so.7").display().to_string();
    let directory = kit.dir().display().to_string();
    run.arg(&runtime);
    // The stand-in does not register itself when it is loaded, as AMD's runtime does.
    let variables = [("LD_LIBRARY_PATH", &*directory), ("LD_PRELOAD", &*runtime)];
    let mut target = kit.start_command(run, "model.log", &variables)?;
    target.expect("ready")?;
    // Libraries are known 10 ms after the first launch that meets them.
    target.send("work 60")?;
    target.expect("work")?;
    end(target)?;
    let file = |name: &str| out.join(format!("out_{name}"));
    check_both_files(&file("kernel_trace.csv"), &file("results.folded"), true)
}

#[test]
fn native_frames_inside_of_pythons_in_a_cuda_process() -> Result<()> {
    let kit = cuda::Kit::new()?;
    let mut command = lines();
    command.arg(kit.stand_in.runtime(13));
    let mut target = kit.start_command(command, &[("CUPTI_MODEL", "version=130500")])?;
    target.expect("ready")?;
    check_both(&mut target.target)?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}
