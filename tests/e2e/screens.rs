//! Screens as people see them: what `midair run` prints, and every command's screen on a narrow
//! terminal without colours and without UTF-8. Top's own screen is in `top.rs`, and with ratatui's
//! test backend in its crate.

use crate::terminal::{Terminal, plain};
use midair_sim_cuda::Toolkit;
use midair_tests::cuda;
use midair_tests::stage::{command, stage, workload};
use midair_tests::target::{Exit, PATIENCE, Target, run};
use midair_tests::{Result, program};
use std::path::Path;

/// Runs the demo's program for three rounds on two GPUs with this command in front of it.
fn three_rounds(program: &str, words: &[&str]) -> Result<Exit> {
    let demo = stage()?.join("lib/midair-demo");
    let mut front = command(program)?;
    front.env("LD_LIBRARY_PATH", &demo);
    front.env("LC_ALL", "C.UTF-8");
    front.env("HSA_MODEL_TOPOLOGY", demo.join("topology"));
    front.args(words).arg("--").arg(demo.join("workload"));
    front.args(["3", "1000"]);
    run(front, PATIENCE)?.success()
}

/// Returns the rows of a table as their name and their calls.
fn rows(lines: &[String], head: &str) -> Vec<(String, u64)> {
    let table = lines.iter().skip_while(|line| !line.starts_with(head));
    let table = table.skip(1).take_while(|line| !line.is_empty());
    let mut rows: Vec<_> = table
        .filter_map(|line| {
            // Two spaces and more lie between columns.
            let mut columns = line.split("  ").filter(|column| !column.is_empty());
            let name = columns.next()?.trim().to_owned();
            Some((name, columns.next()?.trim().parse().ok()?))
        })
        .collect();
    rows.sort();
    rows
}

/// The screen after the program's end has exactly the program's work, and names the file.
#[test]
fn a_started_program_s_table() -> Result<()> {
    let results = tempfile::tempdir()?;
    let at = results.path().display().to_string();
    let exit = three_rounds("midair", &["run", "-f", "csv", "-d", &at, "-o", "out"])?;
    let lines = &exit.stderr;
    // Bars are as in an attach: blocks in a UTF-8 locale.
    assert!(lines.iter().any(|line| line.contains('█')), "{exit}");
    let line = |start: &str| lines.iter().find(|line| line.starts_with(start));
    assert!(
        line("PROCESS").is_some_and(|it| it.ends_with("workload 3 1000")),
        "{exit}"
    );
    assert!(
        line("RECORDS").is_some_and(|it| it.ends_with("none lost")),
        "{exit}"
    );
    assert!(line("RESULTS").is_some_and(|it| it.contains(&at)), "{exit}");
    let gpus = lines.iter().filter(|line| line.starts_with("GPU "));
    let gpus: Vec<&str> = gpus.map(|line| &line[..line.len().min(12)]).collect();
    assert_eq!(gpus, ["GPU         ", "GPU 0 gfx942", "GPU 1 gfx942"]);
    // Three rounds of three layers on two GPUs.
    let kernels = [
        ("gemm<128, 64>", 18),
        ("layerNorm", 18),
        ("relu<float>", 18),
        ("sgd_step", 6),
        ("softmax", 6),
    ];
    let owned = |all: &[(&str, u64)]| -> Vec<(String, u64)> {
        let mut all: Vec<_> = all.iter().map(|it| (it.0.to_owned(), it.1)).collect();
        all.sort();
        all
    };
    assert_eq!(rows(lines, "KERNEL "), owned(&kernels), "{exit}");
    let copies = [
        ("device to device", 3),
        ("device to host", 6),
        ("host to device", 6),
    ];
    assert_eq!(rows(lines, "COPY "), owned(&copies), "{exit}");
    assert!(
        rows(lines, "CALL ").contains(&("hipLaunchKernel".into(), 66)),
        "{exit}"
    );
    let share: f64 = lines
        .iter()
        .skip_while(|line| !line.starts_with("KERNEL "))
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| {
            line.split('%')
                .next()?
                .rsplit(' ')
                .next()?
                .parse::<f64>()
                .ok()
        })
        .sum();
    assert!((share - 100.0).abs() < 0.3, "{share}: {exit}");
    assert!(results.path().join("out_kernel_trace.csv").is_file());

    // rocprofv3 has no such screen.
    let at = results.path().join("amd").display().to_string();
    let exit = three_rounds("rocprofv3", &["--kernel-trace", "-d", &at])?;
    assert!(
        !exit.stderr.iter().any(|line| line.starts_with("KERNEL ")),
        "{exit}"
    );
    Ok(())
}

/// A program without a GPU runtime, and one that did nothing that was asked for.
#[test]
fn nothing_to_show_is_said_by_the_program_that_was_called() -> Result<()> {
    let results = tempfile::tempdir()?;
    let at = results.path().display().to_string();
    let why = "nothing was recorded, no file is written:";
    for (name, words) in [
        ("midair", &["run", "-d", &at, "--", "true"][..]),
        ("rocprofv3", &["--kernel-trace", "-d", &at, "--", "true"]),
    ] {
        let mut front = command(name)?;
        front.args(words);
        let exit = run(front, PATIENCE)?.success()?;
        let wanted = format!("{name}: {why} the program used no GPU runtime (HIP, HSA or CUDA)");
        assert_eq!(exit.stderr, [wanted], "{exit}");
    }
    let exit = three_rounds("midair", &["run", "--marker-trace", "-d", &at])?;
    let wanted = format!("midair: {why} midair saw no call or kernel of the requested kinds");
    assert_eq!(exit.stderr, [wanted], "{exit}");
    assert_eq!(std::fs::read_dir(results.path())?.count(), 0);
    Ok(())
}

/// Returns the screen of 60 columns that a command leaves, as its lines.
fn narrow(words: &str) -> Result<Vec<String>> {
    let terminal = Terminal::start(words, 60, 150)?;
    let screen = terminal.until("its end", |it| it.contains("ended with "))?;
    plain(&screen);
    assert!(screen.contains("ended with 0"), "{screen}");
    Ok(screen
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect())
}

/// Fails where a line of a table was broken: each line from its head on to the next empty one must
/// end as it should.
fn whole_rows(lines: &[String], head: &str, end: &str, row: impl Fn(&str) -> bool) {
    let text = lines.join("\n");
    let mut table = lines.iter().skip_while(|line| !line.starts_with(head));
    assert!(table.next().is_some_and(|it| it.ends_with(end)), "{text}");
    let rows: Vec<_> = table.take_while(|line| !line.is_empty()).collect();
    assert!(
        !rows.is_empty() && rows.iter().all(|line| row(line)),
        "{text}"
    );
}

/// The screens of a process, whose kernels, calls and command are these.
fn screens_of(pid: i32, name: &str, kernel: &str, call: &str, results: &Path) -> Result<()> {
    let midair = stage()?.join("bin/midair");
    let midair = midair.display();
    let row = |line: &str| line.split('%').count() >= 2;
    let results = results.display();

    let lines = narrow(&format!(
        "{midair} attach {pid} --sys-trace -f csv --duration 300ms -d {results} -o narrow"
    ))?;
    for head in ["KERNEL ", "CALL ", "COPY ", "WAIT "] {
        whole_rows(&lines, head, "SHARE", row);
    }
    let has = |lines: &[String], part: &str| lines.iter().any(|line| line.contains(part));
    assert!(has(&lines, kernel) && has(&lines, call), "{lines:?}");
    assert!(
        has(&lines, "BUSY") && has(&lines, "NOTHING QUEUED"),
        "{lines:?}"
    );

    let lines = narrow(&format!("{midair} top {pid} --once"))?;
    whole_rows(&lines, "KERNEL ", "MEAN", row);
    // Before the name there is a space, or a sign where the kernel runs now.
    let named = format!("{kernel} ");
    let is_named = |line: &String| line.get(1..).is_some_and(|it| it.starts_with(&named));
    assert!(lines.iter().any(is_named), "{lines:?}");
    // GPUs have the numbers that they have after an attach.
    for gpu in ["GPU 0 ", "GPU 1 "] {
        assert!(lines.iter().any(|it| it.starts_with(gpu)), "{lines:?}");
    }

    let lines = narrow(&format!("{midair} ps"))?;
    let own = pid.to_string();
    let line = lines
        .iter()
        .find(|it| it.split_whitespace().next() == Some(own.as_str()));
    let line = line.ok_or_else(|| format!("no line of {pid}: {lines:?}"))?;
    assert!(line.contains("parked"), "{lines:?}");
    // The command's column is the unit tests' business: other processes of the machine may leave no
    // room for it here.
    assert!(lines.iter().any(|it| it.contains(" ATTACH")), "{lines:?}");

    let lines = narrow(&format!("{midair} doctor {pid}"))?;
    assert!(has(&lines, "process can be attached to"), "{lines:?}");
    let lines = narrow(&format!("{midair} why {pid}"))?;
    assert!(has(&lines, "WHY ") && has(&lines, name), "{lines:?}");
    Ok(())
}

#[test]
fn every_screen_on_a_narrow_terminal() -> Result<()> {
    if program("tmux", "tmux")?.is_none() {
        return Ok(());
    }
    let results = tempfile::tempdir()?;
    let mut target = Target::spawn(workload(&[])?)?;
    target.expect("iter 3")?;
    screens_of(
        target.pid(),
        "workload",
        "gemm<128, 64>",
        "hipLaunchKernel",
        results.path(),
    )?;

    let kit = cuda::Kit::new()?;
    let mut target = kit.start("cuda_work", Toolkit::Major(13), &[])?;
    target.expect("ready")?;
    target.ask("start")?;
    screens_of(
        target.pid(),
        "cuda_work",
        "reduce<float>",
        "cudaLaunchKernel",
        results.path(),
    )
}

/// The same of a program that midair starts.
#[test]
fn a_started_program_on_a_narrow_terminal() -> Result<()> {
    if program("tmux", "tmux")?.is_none() {
        return Ok(());
    }
    let results = tempfile::tempdir()?;
    let stage = stage()?;
    let demo = stage.join("lib/midair-demo");
    let demo = demo.display();
    let lines = narrow(&format!(
        "LD_LIBRARY_PATH={demo} HSA_MODEL_TOPOLOGY={demo}/topology {}/bin/midair run -d {} -o out -- {demo}/workload 3 1000",
        stage.display(),
        results.path().display()
    ))?;
    for head in ["KERNEL ", "CALL ", "COPY "] {
        whole_rows(&lines, head, "SHARE", |line| line.contains('%'));
    }
    Ok(())
}
