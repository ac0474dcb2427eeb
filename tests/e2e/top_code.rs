//! The lines that launch, in `midair top --by code`, in documents and in Python's frames, compared with the
//! lines that the program's launches have in their grids.

use crate::terminal::{Terminal, plain};
use crate::top::Top;
use midair_tests::attacher::Attacher;
use midair_tests::lab::LabTarget;
use midair_tests::python::python_tool;
use midair_tests::stage::{plain_environment, stage};
use midair_tests::stand_in::Kit;
use midair_tests::table::Csv;
use midair_tests::target::{PATIENCE, Target, until};
use midair_tests::{Result, program, workspace};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

/// Launches by line.
type Lines = BTreeMap<u64, u64>;

pub(crate) fn ask(target: &mut LabTarget, rounds: u64) -> Result<()> {
    target.send(&format!("work {rounds}"))?;
    target.expect("work")?;
    Ok(())
}

/// Returns what a round of the program launches, by the launches' own words.
fn of_a_round(target: &mut LabTarget) -> Result<Lines> {
    let attacher = Attacher::midair(target.pid(), &["--kernel-trace"])?;
    ask(target, 1)?;
    let traced = attacher.detach()?;
    let mut lines = Lines::new();
    for row in Csv::read(&traced.file("kernel_trace.csv"))?.rows {
        *lines
            .entry(Csv::number(&row, "Grid_Size_X")? / 64)
            .or_default() += 1;
    }
    Ok(lines)
}

fn of_document(document: &Value) -> Lines {
    let rows = document["code"].as_array().into_iter().flatten();
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let mut lines = Lines::new();
    for row in rows {
        *lines.entry(number(&row["line"])).or_default() += number(&row["all"]["count"]);
    }
    lines
}

/// Has the program work until a session that may start meanwhile shows what is wanted.
fn works_until(
    terminal: &Terminal,
    target: &mut LabTarget,
    wanted: impl Fn(&str) -> bool,
) -> Result<String> {
    let mut screen = String::new();
    until("a screen", || {
        ask(target, 1)?;
        screen = terminal.tmux(&["capture-pane", "-p", "-e"])?;
        Ok(wanted(&screen))
    })
    .map_err(|error| format!("{error}:\n{screen}"))?;
    Ok(screen)
}

pub(crate) fn started(kit: &Kit) -> Result<LabTarget> {
    let mut command = Command::new("/usr/bin/python3");
    command
        .arg(workspace().join("tests/python/launch_library.py"))
        .arg(kit.dir().join("libamdhip64.so.7"));
    let library = kit.dir().display().to_string();
    let mut target = kit.start_command(command, "model.log", &[("LD_LIBRARY_PATH", &library)])?;
    target.expect("ready")?;
    Ok(target)
}

/// The document of an attach and the Python package have the lines and the stacks.
#[test]
fn the_python_package_has_the_lines_that_launch() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = started(&kit)?;
    let mut command = Command::new(python_tool("python")?);
    command.env_clear().envs(plain_environment());
    command.env("PYTHONPATH", stage()?.join("lib/python3/site-packages"));
    command
        .arg("-B")
        .arg(workspace().join("tests/python/package_code.py"))
        .arg(target.pid().to_string());
    let mut python = Target::spawn(command)?;
    python.expect("attached")?;
    ask(&mut target, 9)?;
    python.send("")?;
    python.wait(PATIENCE)?.success()?;
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

#[test]
fn top_has_the_lines_that_launch() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = started(&kit)?;
    let once = of_a_round(&mut target)?;
    assert!(once.len() > 8, "{once:?}");

    let mut top = Top::start(target.pid(), &["--by", "code", "--interval", "250ms"])?;
    top.until("the first look", |_| true)?;
    ask(&mut target, 3)?;
    let wanted: Lines = once
        .iter()
        .map(|(line, count)| (*line, 3 * count))
        .collect();
    let all = top.until("all launches", |it| of_document(it) == wanted)?;
    let first = &all["code"][0];
    let texts = ["name", "file", "function"].map(|key| first[key].as_str().unwrap_or_default());
    let [name, file, function] = texts;
    assert!(
        name.starts_with("python/launch_lines.py:") && name.ends_with(function),
        "{first}"
    );
    assert!(file.ends_with("/tests/python/launch_lines.py"), "{first}");
    top.end()?;
    // Without stacks nothing is different.
    let mut top = Top::start(target.pid(), &["--interval", "250ms"])?;
    let plain_look = top.until("the first look", |_| true)?;
    assert!(plain_look.get("code").is_none() && plain_look.get("no_stacks").is_none());
    top.end()?;

    if program("tmux", "tmux")?.is_some() {
        // The key attaches again, with stacks.
        let midair = stage()?.join("bin/midair");
        let terminal = Terminal::start(
            &format!("{} top {}", midair.display(), target.pid()),
            80,
            20,
        )?;
        works_until(&terminal, &mut target, |it| it.contains("scale"))?;
        terminal.until("the key", |it| it.contains("c code"))?;
        terminal.tmux(&["send-keys", "c"])?;
        let screen = works_until(&terminal, &mut target, |it| it.contains("launch_lines.py:"))?;
        assert!(screen.contains("CODE"), "{screen}");
        plain(&screen);
        terminal.tmux(&["send-keys", "q"])?;
        terminal.until("its end", |it| it.contains("ended with 0"))?;
    }
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}
