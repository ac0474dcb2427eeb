//! Processes whose threads a runtime manages: sanitizers, and programs that execute a translation
//! of others. Those that would crash are refused by name; the others are entered, and come to no
//! harm.

use midair_tests::lab::LabTarget;
use midair_tests::snapshot::Snapshot;
use midair_tests::stage::run_staged;
use midair_tests::stand_in::Kit;
use midair_tests::target::PATIENCE;
use midair_tests::{Result, leave_out, program};
use std::path::Path;
use std::process::Command;

/// One way to build `tests/c/managed.c`.
struct Build {
    compiler: &'static str,
    /// The package of Debian that has the runtime, besides the compiler.
    package: &'static str,
    flags: &'static [&'static str],
}

const fn gcc(flags: &'static [&'static str]) -> Build {
    let (compiler, package) = ("gcc", "libgcc-12-dev");
    Build {
        compiler,
        package,
        flags,
    }
}

const fn clang(flags: &'static [&'static str]) -> Build {
    let (compiler, package) = ("clang", "libclang-rt-14-dev");
    Build {
        compiler,
        package,
        flags,
    }
}

impl Build {
    /// Builds the program and starts it with these arguments. Returns `None`, and says so, where
    /// the compiler or its runtime is not there.
    fn start(&self, kit: &Kit, words: &[&str]) -> Result<Option<LabTarget>> {
        let Some(compiler) = program(self.compiler, self.compiler)? else {
            return Ok(None);
        };
        let compiler = compiler.to_str().ok_or("a path is text")?;
        let name = format!("managed-{}{}", self.compiler, self.flags.concat());
        let built = match kit.program_by(&[compiler], "managed", &name, self.flags) {
            Ok(built) => built,
            Err(error) if error.to_string().contains("cannot find") => {
                leave_out(&format!("{name}: no runtime (Debian: {})", self.package))?;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        start(kit, &["setarch", "-R"], &built, words).map(Some)
    }
}

/// Starts a program by a command that becomes it. Older sanitizers need addresses that are not
/// random.
fn start(kit: &Kit, before: &[&str], program: &Path, words: &[&str]) -> Result<LabTarget> {
    let mut command = Command::new(before[0]);
    command.args(&before[1..]).arg(program).args(words);
    let mut target = kit.start_command(command, "model.log", &[])?;
    target.expect("ready")?;
    Ok(target)
}

fn works(target: &mut LabTarget) -> Result<()> {
    target.send("work")?;
    target.expect("work")?;
    Ok(())
}

fn ends_well(mut target: LabTarget) -> Result<()> {
    works(&mut target)?;
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

fn attach(kit: &Kit, target: &LabTarget) -> Result<midair_tests::target::Exit> {
    let (pid, out) = (target.pid().to_string(), kit.scratch().join("out"));
    let out = out.to_str().ok_or("a path is text")?;
    let words = [
        "attach",
        &pid,
        "--duration",
        "200ms",
        "-f",
        "csv",
        "-d",
        out,
    ];
    run_staged("midair", &words, PATIENCE)
}

/// Checks that the attach refuses the process by these names before it touches it, that doctor and
/// ps say so, too, and that the process works on.
fn refused(kit: &Kit, mut target: LabTarget, name: &str, remedy: &str) -> Result<()> {
    let pid = target.pid().to_string();
    works(&mut target)?;
    let before = Snapshot::take(target.pid())?;
    let exit = attach(kit, &target)?;
    assert_eq!(exit.status.code(), Some(39), "{name}: {exit}");
    let said = exit.stderr.join("\n");
    assert!(
        said.contains(name) && said.contains(remedy),
        "{name}: {exit}"
    );
    let exit = run_staged("midair", &["doctor", &pid], PATIENCE)?;
    assert_eq!(exit.status.code(), Some(39), "{name}: {exit}");
    let line = exit.stdout.iter().find(|line| line.starts_with("NO"));
    assert!(
        line.is_some_and(|line| line.contains("thread manager") && line.contains(name)),
        "{name}: {exit}"
    );
    let exit = run_staged("midair", &["ps"], PATIENCE)?;
    let mut rows = exit.stdout.iter();
    let row = rows.find(|line| line.split_whitespace().next() == Some(&pid));
    assert!(
        row.is_some_and(|row| row.contains("no: instrumented")),
        "{name}: {exit}"
    );
    // Valgrind blocks signals for moments, while it hands its lock from thread to thread.
    let diff = before.diff(&Snapshot::take(target.pid())?).without_heap();
    let diff = diff.without(|change| name == "Valgrind" && change.text.contains(" SigBlk "));
    assert!(diff.is_empty(), "{name}:\n{diff}");
    ends_well(target)
}

#[test]
fn sanitizers_that_would_crash_are_refused_by_name() -> Result<()> {
    let kit = Kit::new()?;
    let thread = ("ThreadSanitizer", "without -fsanitize=thread");
    let memory = ("MemorySanitizer", "without -fsanitize=memory");
    for (build, (name, remedy)) in [
        (gcc(&["-fsanitize=thread"]), thread),
        (gcc(&["-fsanitize=thread", "-static-libtsan"]), thread),
        (clang(&["-fsanitize=thread"]), thread),
        (clang(&["-fsanitize=memory"]), memory),
    ] {
        // MemorySanitizer ends a program that uses the stand-in, which it did not compile.
        if let Some(target) = build.start(&kit, &["idle"])? {
            refused(&kit, target, name, remedy)?;
        }
    }
    Ok(())
}

#[test]
fn translators_are_refused_by_name() -> Result<()> {
    let kit = Kit::new()?;
    let built = kit.program_by(&["gcc"], "managed", "managed", &[])?;
    if let Some(valgrind) = program("valgrind", "valgrind")? {
        let valgrind = valgrind.to_str().ok_or("a path is text")?;
        let target = start(&kit, &[valgrind, "-q"], &built, &["idle"])?;
        refused(&kit, target, "Valgrind", "without Valgrind")?;
    }
    // Stand-ins have these names: the programs themselves are in no package of Debian.
    let source = kit.scratch().join("nothing.c");
    std::fs::write(&source, "int nothing(void) { return 0; }\n")?;
    for (name, file) in [("DynamoRIO", "libdynamorio.so"), ("Pin", "pinbin")] {
        let library = kit.scratch().join(file);
        let made = Command::new("gcc")
            .args(["-shared", "-nostdlib", "-o"])
            .args([&library, &source])
            .status()?;
        assert!(made.success());
        let preload = format!("LD_PRELOAD={}", library.display());
        let target = start(&kit, &["env", &preload], &built, &[])?;
        refused(&kit, target, name, &format!("without {name}"))?;
    }
    Ok(())
}

/// Attaches three times, so that the worker thread is woken as well, and has the process end as
/// usual, which includes the search for leaks.
#[test]
fn other_sanitizers_are_entered() -> Result<()> {
    let kit = Kit::new()?;
    for build in [
        gcc(&["-fsanitize=address"]),
        gcc(&["-fsanitize=leak"]),
        gcc(&["-fsanitize=undefined"]),
        clang(&["-fsanitize=safe-stack"]),
    ] {
        let Some(mut target) = build.start(&kit, &[])? else {
            continue;
        };
        for _ in 0..3 {
            let exit = attach(&kit, &target)?;
            assert_eq!(exit.status.code(), Some(0), "{:?}: {exit}", build.flags);
            works(&mut target)?;
        }
        ends_well(target)?;
    }
    Ok(())
}
