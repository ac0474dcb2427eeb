//! A target that makes its attacher store without end: names, symbols, ELF files, records and
//! results.

use midair_tests::lab::LabTarget;
use midair_tests::stage::command;
use midair_tests::stand_in::Kit;
use midair_tests::target::{Exit, PATIENCE, Target, run};
use midair_tests::{Result, compile};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Starts the process that forges records (`attacks/forger.c`), under a name of its own.
pub(crate) fn forger(kit: &Kit, words: &[&Path], env: &[(&str, &str)]) -> Result<LabTarget> {
    let mut command = Command::new(compile::attack_program("forger")?);
    command.arg(kit.dir()).args(words);
    let mut forger = kit.start_command(command, "log", env)?;
    forger.target.expect("ready")?;
    Ok(forger)
}

/// An attach to a forger, which writes into a directory.
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

/// Makes a forger do something and waits until it has done it.
fn forge(forger: &mut LabTarget, what: &str) -> Result<()> {
    forger.target.send(what)?;
    let answer = what.split(' ').next().unwrap_or_default();
    forger.target.expect(answer)?;
    Ok(())
}

/// Returns the peak memory in MiB of the largest process that this one has waited for.
pub(crate) fn peak_of_children() -> Result<i64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` has the size that the call fills. It is read only after the call has
    // succeeded.
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

/// There are 60 000 symbols with a hundred bytes and a name of 12 KB each, and each is dispatched
/// once.
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

/// The records take five megabytes. Their name has four kilobytes, and each of its characters takes
/// two when written.
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
        notes.contains("rows have truncated kernel names"),
        "{notes}"
    );
    // The lists have only the numbers that occur, and not every number up to the largest.
    let document = size(dir.path(), "out_results.json")?;
    assert!(document < 64 << 20, "{document} bytes");
    Ok(())
}

/// Records are kept up to a limit. Then the session ends, and what was left out is counted.
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
    // What is forged after the detach belongs to no session.
    assert!((1..=20_000 - kept).contains(&lost), "{notes}");
    assert!(
        notes.contains("the records reached --max-size (1 MiB)"),
        "{notes}"
    );
    // The session in the target has ended, so the target can be attached to again.
    let attach = Attach::start(&forger, &["-f", "csv"])?;
    forge(&mut forger, "kernels 10 1")?;
    let (exit, dir) = attach.detach()?;
    exit.success()?;
    assert_eq!(rows(dir.path())?, 10);
    Ok(())
}

/// One command attaches two processes. The excess of one costs only its own session.
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

/// Builds a library whose sections are holes of a gigabyte each. What a loader needs of it is
/// unchanged.
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

/// Threads are in functions of libraries whose sections take no room on the disk.
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

/// Keys in file names stand for texts that the target chooses. Its command line is two megabytes
/// long.
#[test]
fn file_names_have_parts_of_the_target_that_fit() -> Result<()> {
    let kit = Kit::new()?;
    let long = "\u{1b}]0;x\u{7}\u{202e}ä/".repeat(8000);
    // The shell ignores the further words.
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

/// A limit of descriptors that is too low for midair is the reason that it gives, whatever the command,
/// and wherever it would fail without it.
#[test]
fn too_few_descriptors_are_the_reason_that_is_given() -> Result<()> {
    let own = std::process::id().to_string();
    for limit in [5, 8, 10, 12, 16, 20] {
        for words in [
            &["attach", &own][..],
            &["doctor", &own],
            &["ps"],
            &["why", &own],
        ] {
            let mut limited = std::process::Command::new("prlimit");
            limited.arg(format!("--nofile={limit}"));
            limited.arg(command("midair")?.get_program()).args(words);
            let exit = run(limited, PATIENCE)?;
            assert_eq!(exit.status.code(), Some(23), "{limit} {words:?}: {exit}");
            let said = exit.stderr.join(" ");
            assert!(said.contains("RLIMIT_NOFILE"), "{limit} {words:?}: {exit}");
        }
    }
    Ok(())
}
