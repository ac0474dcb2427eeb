//! A target that makes its attacher store without end: names, symbols, ELF files, records, results.

use midair_tests::lab::LabTarget;
use midair_tests::stage::command;
use midair_tests::stand_in::Kit;
use midair_tests::target::{Exit, PATIENCE, Target, run};
use midair_tests::{Result, compile};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The process that forges records (`attacks/forger.c`), under a name of its own.
pub(crate) fn forger(kit: &Kit, words: &[&Path], env: &[(&str, &str)]) -> Result<LabTarget> {
    let mut command = Command::new(compile::attack_program("forger")?);
    command.arg(kit.dir()).args(words);
    let mut forger = kit.start_command(command, "log", env)?;
    forger.target.expect("ready")?;
    Ok(forger)
}

/// An attach to a forger, into a directory.
struct Attach {
    process: Target,
    dir: tempfile::TempDir,
}

impl Attach {
    fn start(target: &LabTarget, words: &[&str]) -> Result<Attach> {
        let dir = tempfile::tempdir()?;
        let mut command = command("midair")?;
        command.args(["attach", &target.target.pid().to_string()]);
        command.args(["--kernel-trace", "-o", "out", "-d"]);
        command.arg(dir.path()).args(words);
        let mut process = Target::spawn(command)?;
        process.expect_error("attached to process")?;
        Ok(Attach { process, dir })
    }

    fn detach(mut self) -> Result<(Exit, tempfile::TempDir)> {
        self.process.send("")?;
        self.ended()
    }

    fn ended(self) -> Result<(Exit, tempfile::TempDir)> {
        Ok((self.process.wait_by_itself(PATIENCE)?, self.dir))
    }
}

/// Lets a forger do something and waits until it has done it.
fn forge(forger: &mut LabTarget, what: &str) -> Result<()> {
    forger.target.send(what)?;
    let answer = what.split(' ').next().unwrap_or_default();
    forger.target.expect(answer)?;
    Ok(())
}

/// MiB of the largest of the processes that this one has waited for.
fn peak_of_children() -> Result<i64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: a place of the right size, which the call fills.
    let usage = unsafe {
        if libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) != 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        usage.assume_init()
    };
    Ok(usage.ru_maxrss >> 10)
}

fn size(dir: &Path, name: &str) -> Result<u64> {
    let path = dir.join(name);
    let meta = fs::metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(meta.len())
}

fn rows(dir: &Path) -> Result<usize> {
    let table = fs::read_to_string(dir.join("out_kernel_trace.csv"))?;
    Ok(table.lines().count() - 1)
}

/// Each symbol has a hundred bytes and a name of 12 KB; each was dispatched once.
#[test]
fn names_of_kernels_have_a_total() -> Result<()> {
    let kit = Kit::new()?;
    let mut forger = forger(&kit, &[], &[])?;
    let attach = Attach::start(&forger, &["-f", "csv"])?;
    forge(&mut forger, "symbols 60000")?;
    forge(&mut forger, "kernels 60000 0")?;
    let (exit, dir) = attach.detach()?;
    let exit = exit.success()?;
    assert_eq!(rows(dir.path())?, 60_000, "{exit}");
    let peak = peak_of_children()?;
    assert!(peak < 800, "{peak} MiB");
    forge(&mut forger, "kernels 1 1")
        .err()
        .ok_or("the spool is still mapped")?;
    Ok(())
}

/// Five megabytes of records with a name of four kilobytes, each of whose characters takes two.
#[test]
fn a_long_name_does_not_make_a_large_table() -> Result<()> {
    let kit = Kit::new()?;
    let mut forger = forger(&kit, &[], &[])?;
    let attach = Attach::start(&forger, &["-f", "csv,json"])?;
    forge(&mut forger, "symbol 1 4000")?;
    forge(&mut forger, "kernels 40000 1")?;
    forge(&mut forger, "gaps")?;
    let (exit, dir) = attach.detach()?;
    let exit = exit.success()?;
    assert_eq!(rows(dir.path())?, 40_000, "{exit}");
    let table = size(dir.path(), "out_kernel_trace.csv")?;
    assert!((64 << 20..320 << 20).contains(&table), "{table} bytes");
    let notes = fs::read_to_string(dir.path().join("out_notes.txt"))?;
    assert!(
        notes.contains("rows have only the beginning of a kernel's name"),
        "{notes}"
    );
    // Numbers that nothing has are not listed up to the largest.
    let document = size(dir.path(), "out_results.json")?;
    assert!(document < 64 << 20, "{document} bytes");
    Ok(())
}

/// What is recorded is kept up to a limit; then the session ends, and what was left out is counted.
#[test]
fn records_have_a_limit_and_the_session_ends_there() -> Result<()> {
    let kit = Kit::new()?;
    let mut forger = forger(&kit, &[], &[])?;
    let attach = Attach::start(&forger, &["-f", "csv", "--max-size", "1"])?;
    forge(&mut forger, "symbol 1 10")?;
    forge(&mut forger, "kernels 20000 1")?;
    let (exit, dir) = attach.ended()?;
    assert_eq!(exit.status.code(), Some(36), "{exit}");
    let kept = rows(dir.path())?;
    assert!(kept * 128 <= 1 << 20 && kept > 8000, "{kept}: {exit}");
    let notes = fs::read_to_string(dir.path().join("out_notes.txt"))?;
    let lost = notes.lines().find_map(|line| {
        let line = line.strip_prefix("lost: ")?;
        line.strip_suffix(" kernel dispatches beyond --max-size")
    });
    let lost: usize = lost.ok_or_else(|| notes.clone())?.parse()?;
    // What is forged after the detach is nobody's.
    assert!((1..=20_000 - kept).contains(&lost), "{notes}");
    assert!(
        notes.starts_with("the records reached --max-size (1 MiB)"),
        "{notes}"
    );
    // The target is free: it can be attached to again.
    let attach = Attach::start(&forger, &["-f", "csv"])?;
    forge(&mut forger, "kernels 10 1")?;
    let (exit, dir) = attach.detach()?;
    exit.success()?;
    assert_eq!(rows(dir.path())?, 10);
    Ok(())
}

/// Two processes in one command: the excess of one costs only its own session.
#[test]
fn of_several_processes_one_is_full() -> Result<()> {
    let kit = Kit::new()?;
    let name = format!("forger-{}", std::process::id());
    let program = kit.scratch().join(&name);
    fs::copy(compile::attack_program("forger")?, &program)?;
    let mut forgers = Vec::new();
    for log in ["one", "two"] {
        let mut command = Command::new(&program);
        command.arg(kit.dir());
        let mut forger = kit.start_command(command, log, &[])?;
        forger.target.expect("ready")?;
        forgers.push(forger);
    }
    let dir = tempfile::tempdir()?;
    let mut command = command("midair")?;
    command.args([
        "attach",
        "--name",
        &name,
        "--kernel-trace",
        "--max-size",
        "1",
    ]);
    command
        .args(["-f", "csv", "-o", "out", "-d"])
        .arg(dir.path());
    let mut attach = Target::spawn(command)?;
    for _ in &forgers {
        attach.expect_error("attached to process ")?;
    }
    forge(&mut forgers[0], "kernels 20000 1")?;
    attach.expect_error(&format!("process {} ({name}", forgers[0].target.pid()))?;
    forge(&mut forgers[1], "kernels 10 1")?;
    attach.send("")?;
    let exit = attach.wait_by_itself(PATIENCE)?;
    assert_eq!(exit.status.code(), Some(35), "{exit}");
    let table = dir
        .path()
        .join(format!("out_{}_kernel_trace.csv", forgers[1].target.pid()));
    let table = fs::read_to_string(&table).map_err(|error| format!("{error}: {exit}"))?;
    assert_eq!(table.lines().count(), 11, "{exit}");
    Ok(())
}

/// A library whose sections are holes of a gigabyte each. What a loader needs of it is as it was.
fn with_holes(dir: &Path, number: usize) -> Result<PathBuf> {
    let path = dir.join(format!("holder{number}.so"));
    let source = midair_tests::workspace().join("tests/security/attacks/holder.c");
    compile::build(&["cc"], &source, &path, &["-shared", "-fPIC"], |path| {
        Ok(path.to_str().ok_or("a path is text")?.to_owned())
    })?;
    let bytes = fs::read(&path)?;
    let number = |at: usize, len: usize| -> Result<u64> {
        let field = bytes.get(at..at + len).ok_or("an ELF file has a header")?;
        Ok(field
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    let file = fs::OpenOptions::new().write(true).open(&path)?;
    file.set_len(4 << 30)?;
    // Source: elf.h, Elf64_Ehdr and Elf64_Shdr.
    let (table, entry, count, names) = (
        number(0x28, 8)?,
        number(0x3a, 2)?,
        number(0x3c, 2)?,
        number(0x3e, 2)?,
    );
    for section in (1..count).filter(|section| *section != names) {
        let at = table + section * entry;
        file.write_all_at(&(1_u64 << 31).to_le_bytes(), at + 0x18)?;
        file.write_all_at(&(500_u64 << 20).to_le_bytes(), at + 0x20)?;
    }
    Ok(path)
}

/// Threads in functions of libraries that take no room on the disk.
#[test]
fn files_with_holes_do_not_fill_the_memory() -> Result<()> {
    let kit = Kit::new()?;
    let libraries = (0..4)
        .map(|number| with_holes(kit.scratch(), number))
        .collect::<Result<Vec<_>>>()?;
    let words: Vec<&Path> = libraries.iter().map(PathBuf::as_path).collect();
    let forger = forger(&kit, &words, &[])?;
    let pid = forger.target.pid().to_string();
    let mut doctor = command("midair")?;
    doctor.args(["doctor", &pid]);
    let exit = run(doctor, PATIENCE)?.success()?;
    let peak = peak_of_children()?;
    assert!(peak < 800, "{peak} MiB: {exit}");
    Ok(())
}

/// Keys of file names stand for what the target chooses: its command line is two megabytes long.
#[test]
fn file_names_have_parts_of_the_target_that_fit() -> Result<()> {
    let kit = Kit::new()?;
    let long = "\u{1b}]0;x\u{7}\u{202e}ä/".repeat(8000);
    // A shell ignores its further words.
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$0\" \"$1\"; :"]);
    shell.arg(compile::attack_program("forger")?).arg(kit.dir());
    shell.args((0..12).map(|_| &long));
    let mut target = kit.start_command(shell, "log", &[])?;
    target.target.expect("ready")?;
    let forger = target.target.only_child()?;
    let shell = target.target.pid();
    let dir = tempfile::tempdir()?;
    let mut attach = command("midair")?;
    attach.args([
        "attach",
        "--tree",
        &shell.to_string(),
        "--kernel-trace",
        "-f",
        "csv",
    ]);
    attach
        .args(["-o", "%argv%", "--merge", "-d"])
        .arg(dir.path());
    let mut attach = Target::spawn(attach)?;
    attach.expect_error(&format!("attached to process {forger}"))?;
    target.target.send("kernels 3 1")?;
    target.target.expect("kernels")?;
    attach.send("")?;
    let exit = attach.wait_by_itself(PATIENCE)?.success()?;
    let mut seen = 0;
    for entry in fs::read_dir(dir.path())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        assert!(
            name.len() <= 255 && !name.contains(midair_tests::obeyed),
            "{name}: {exit}"
        );
        assert!(name.starts_with("sh_-c_"), "{name}: {exit}");
        seen += 1;
    }
    assert!(seen > 0, "{exit}");
    let peak = peak_of_children()?;
    assert!(peak < 500, "{peak} MiB");
    Ok(())
}
