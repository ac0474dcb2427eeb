//! What users install (`cargo xtask dist`), used where nothing else of midair's is.

use midair_tests::python::python_tool;
use midair_tests::stage::{plain_environment, workload};
use midair_tests::stand_in::Kit;
use midair_tests::table::Csv;
use midair_tests::target::{Exit, PATIENCE, Target, run, until};
use midair_tests::{Result, is_root_for, leave_out};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

mod roots;
mod upgrade;

use roots::bare;

/// Rounds of work while attached; each launches four kernels.
const ROUNDS: usize = 10;

/// Returns the files from `cargo xtask dist` whose names end with `end`.
fn made(end: &str) -> Result<Vec<PathBuf>> {
    let dir = std::env::var_os("MIDAIR_DIST").ok_or(
        "MIDAIR_DIST names no directory: cargo xtask dist --staged target/stage --to DIR makes one",
    )?;
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(end) {
            found.push(path);
        }
    }
    found.sort();
    if found.is_empty() {
        return Err(format!("nothing that ends with {end} was made").into());
    }
    Ok(found)
}

/// Attaches to a program on two modelled GPUs by this command while the program works. The command
/// gets the arguments of `attach`. All kernels must be in `results/out_kernel_trace.csv`.
fn attaches(kit: &Kit, mut command: Command, seen: &str, results: &Path) -> Result<()> {
    let mut target = kit.start("two_gpus", "model.log", &[])?;
    target.expect("ready")?;
    let pid = target.pid().to_string();
    command.args(["attach", &pid, "--output-format", "csv"]);
    command.args(["-d", seen, "-o", "out"]);
    let mut attacher = Target::spawn(command)?;
    attacher.expect_error("attached to process")?;
    target.send(&format!("work {ROUNDS}"))?;
    target.expect("work")?;
    attacher.send("")?;
    let exit = attacher.wait(PATIENCE)?.success()?;
    let kernels = Csv::read(&results.join("out_kernel_trace.csv"));
    let kernels = kernels.map_err(|error| format!("{error}: {exit}"))?;
    assert_eq!(kernels.rows.len(), ROUNDS * 4);
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

/// Returns where a virtual environment has its packages.
fn site_packages(environment: &Path) -> Result<PathBuf> {
    for entry in std::fs::read_dir(environment.join("lib"))? {
        let site = entry?.path().join("site-packages");
        if site.is_dir() {
            return Ok(site);
        }
    }
    Err("the environment has no packages".into())
}

/// Does the same with the Python package `midair`, in the Python that has pandas and polars, too.
pub fn python_attaches(kit: &Kit, site: &Path) -> Result<()> {
    let mut target = kit.start("two_gpus", "python.log", &[])?;
    target.expect("ready")?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/package_midair.py");
    let mut command = Command::new(python_tool("python")?);
    command.env_clear().envs(plain_environment());
    command.env("PYTHONPATH", site).arg("-B").arg(script);
    command.args([target.pid().to_string(), (ROUNDS * 4).to_string()]);
    let mut python = Target::spawn(command)?;
    python.expect("attached")?;
    target.send(&format!("work {ROUNDS}"))?;
    target.expect("work")?;
    python.send("")?;
    python.wait(PATIENCE)?.success()?;
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

/// Makes a directory with the one file and nothing else.
fn alone(kit: &Kit) -> Result<(PathBuf, PathBuf)> {
    let home = kit.scratch().join("home");
    std::fs::create_dir(&home)?;
    let program = home.join("midair");
    let one = made("-linux")?;
    let [one] = &one[..] else {
        return Err(format!("one file, not {one:?}").into());
    };
    std::fs::copy(one, &program)?;
    Ok((home, program))
}

fn names(dir: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    Ok(names)
}

#[test]
fn one_file_attaches_from_memory() -> Result<()> {
    let kit = Kit::new()?;
    let (home, program) = alone(&kit)?;
    let results = kit.scratch().join("results");
    let mut command = Command::new(program);
    command.env_clear().envs(plain_environment());
    command.env("HOME", &home).current_dir(&home);
    attaches(&kit, command, &results.display().to_string(), &results)?;
    assert_eq!(
        names(&home)?,
        ["midair"],
        "an attach writes nothing of ours"
    );
    Ok(())
}

#[test]
fn one_file_is_every_program_and_unpacks_for_one_that_it_starts() -> Result<()> {
    let kit = Kit::new()?;
    let (home, program) = alone(&kit)?;
    let as_name = |name: &str| -> Result<Command> {
        let link = home.join(name);
        std::os::unix::fs::symlink(&program, &link)?;
        let mut command = Command::new(link);
        command.env_clear().envs(plain_environment());
        command.env("HOME", &home);
        Ok(command)
    };
    let mut rocprofv3 = as_name("rocprofv3")?;
    rocprofv3.arg("--version");
    let said = run(rocprofv3, PATIENCE)?.success()?;
    assert!(
        said.stdout.iter().any(|line| line.contains("rocm_version")),
        "{said}"
    );
    let mut compute = as_name("rocprof-compute")?;
    compute.arg("--version");
    run(compute, PATIENCE)?.success()?;

    // A library is loaded where its path is in the maps.
    let mut start = as_name("other")?;
    start.args(["run", "--kernel-trace", "--", "cat", "/proc/self/maps"]);
    let exit = run(start, PATIENCE)?.success()?;
    let place = home.join(".cache/midair").display().to_string();
    let loaded = |library: &str| {
        let mut lines = exit.stdout.iter();
        lines.any(|line| line.contains(&place) && line.ends_with(library))
    };
    assert!(loaded("lib/librocprofiler-sdk.so.1"), "{exit}");
    assert!(
        loaded("lib/rocprofiler-sdk/librocprofiler-sdk-tool.so.1"),
        "{exit}"
    );
    Ok(())
}

#[test]
fn a_damaged_file_is_told() -> Result<()> {
    let kit = Kit::new()?;
    let (home, program) = alone(&kit)?;
    let mut bytes = std::fs::read(&program)?;
    // This place is within the index, which is the text before the trailer.
    let at = bytes.len() - 40;
    bytes[at] ^= 0xff;
    std::fs::write(&program, bytes)?;
    let mut command = Command::new(&program);
    command.env_clear().envs(plain_environment());
    command.env("HOME", home).args(["run", "true"]);
    let exit = run(command, PATIENCE)?;
    assert!(!exit.status.success(), "{exit}");
    assert!(
        exit.stderr.iter().any(|line| line.contains("damaged")),
        "{exit}"
    );
    assert!(
        exit.stderr.iter().any(|line| line.contains("SHA256SUMS")),
        "{exit}"
    );
    Ok(())
}

/// In a fresh virtual environment, whose scripts need no variable.
#[test]
fn the_wheel_has_every_program() -> Result<()> {
    let kit = Kit::new()?;
    let place = kit.scratch().join("venv");
    let mut venv = Command::new(python_tool("python")?);
    venv.args(["-m", "venv", "--without-pip"]).arg(&place);
    run(venv, PATIENCE)?.success()?;
    let mut pip = Command::new(python_tool("python")?);
    pip.args(["-m", "pip", "--python"])
        .arg(place.join("bin/python"));
    pip.args(["install", "--quiet", "--no-index", "--no-deps"]);
    pip.arg("--disable-pip-version-check").args(made(".whl")?);
    run(pip, PATIENCE)?.success()?;
    let program = |name: &str| {
        let mut command = Command::new(place.join("bin").join(name));
        command.env_clear().envs(plain_environment());
        command
    };
    for name in ["rocprofv3", "rocprof-compute", "rocpd"] {
        let mut command = program(name);
        command.arg("--version");
        run(command, PATIENCE)?.success()?;
    }
    let mut attach = program("rocprof-attach");
    attach.arg("--help");
    run(attach, PATIENCE)?.success()?;
    let mut import = program("python");
    import.args([
        "-c",
        "import os, rocprof_attach as r; assert os.path.isfile(r.default_library()), r.default_library()",
    ]);
    run(import, PATIENCE)?.success()?;
    python_attaches(&kit, &site_packages(&place)?)?;
    let results = kit.scratch().join("results");
    attaches(
        &kit,
        program("midair"),
        &results.display().to_string(),
        &results,
    )
}

/// The archive is unpacked, used, moved, and used again.
#[test]
fn the_archive_works_from_two_places() -> Result<()> {
    let kit = Kit::new()?;
    let (first, second) = (kit.scratch().join("first"), kit.scratch().join("second"));
    std::fs::create_dir(&first)?;
    let mut tar = Command::new("tar");
    tar.arg("-xf").args(made(".tar.gz")?);
    tar.args(["--strip-components=2", "-C"]).arg(&first);
    run(tar, PATIENCE)?.success()?;
    for (place, name) in [(&first, "one"), (&second, "two")] {
        if !place.exists() {
            std::fs::rename(&first, place)?;
        }
        let mut command = Command::new(place.join("bin/midair"));
        command.env_clear().envs(plain_environment());
        let results = kit.scratch().join(name);
        attaches(&kit, command, &results.display().to_string(), &results)?;
    }
    Ok(())
}

/// The parts of `midair demo`'s output that tests ask for.
struct Shown {
    /// Standard output and standard error, in the order of arrival.
    exit: Exit,
    /// The three commands that the demo shows.
    commands: Vec<String>,
}

fn shown(command: Command) -> Result<Shown> {
    let exit = run(command, PATIENCE)?.success()?;
    let indented = exit
        .stdout
        .iter()
        .filter_map(|line| line.strip_prefix("  "));
    let commands = indented.filter(|line| !line.starts_with(' '));
    let commands: Vec<String> = commands.map(str::to_owned).collect();
    let three = commands.iter().rev().take(3).rev().cloned().collect();
    Ok(Shown {
        exit,
        commands: three,
    })
}

fn has(lines: &[String], part: &str) -> bool {
    lines.iter().any(|line| line.contains(part))
}

#[test]
fn one_file_demonstrates_an_attach_without_a_compiler() -> Result<()> {
    let kit = Kit::new()?;
    let (home, program) = alone(&kit)?;
    let demo = |words: &[&str]| {
        let mut command = Command::new(&program);
        command
            .env_clear()
            .env("HOME", &home)
            .env("PATH", "/nowhere");
        command.current_dir(&home).arg("demo").args(words);
        command
    };
    // The first line is printed before anything else is done.
    let mut first = Target::spawn(demo(&["-d", "first"]))?;
    first.expect_error("demo: preparing the included program")?;
    let exit = first.wait(PATIENCE)?.success()?;
    assert!(has(&exit.stdout, "gemm"), "{exit}");
    assert!(has(&exit.stdout, "_results.db"), "{exit}");
    let log = std::fs::metadata(home.join("first/program.log"))?;
    assert_eq!(log.permissions().mode() & 0o777, 0o600);

    let kept = shown(demo(&["--keep", "-d", "results"]))?;
    let [top, attach, kill] = &kept.commands[..] else {
        return Err(format!("three commands: {}", kept.exit).into());
    };
    let pid = kill.strip_prefix("kill ").ok_or("the last one ends it")?;
    let process = Path::new("/proc").join(pid);
    let copied = |line: &str| {
        let mut shell = Command::new("/bin/sh");
        shell.env_clear().envs(plain_environment());
        shell
            .env("HOME", &home)
            .current_dir(&home)
            .args(["-c", line]);
        run(shell, PATIENCE)
    };
    let result = (|| -> Result<()> {
        assert!(process.is_dir(), "it runs on: {}", kept.exit);
        let exit = copied(top)?.success()?;
        assert!(has(&exit.stdout, "gemm"), "{exit}");
        let exit = copied(attach)?.success()?;
        assert!(has(&exit.stdout, "gemm"), "{exit}");
        assert!(has(&exit.stdout, ".pftrace"), "{exit}");
        Ok(())
    })();
    copied(kill)?.success()?;
    result?;
    until("the program's end", || Ok(!works(&process)))
}

/// Returns whether a process still runs. One that has ended, and is not waited for yet, does not.
fn works(process: &Path) -> bool {
    let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
    !state.is_empty() && !state.starts_with('Z')
}

/// Runs in a bare Debian with its shell alone, and tries the three commands, too.
#[test]
fn one_file_demonstrates_in_a_bare_debian() -> Result<()> {
    const SCRIPT: &str = r#"set -e
lower=$1 program=$2
mount -t tmpfs none /mnt
mkdir /mnt/up /mnt/work /mnt/root
mount -t overlay overlay -o "lowerdir=$lower,upperdir=/mnt/up,workdir=/mnt/work" /mnt/root
rm -rf /mnt/root/lab
cp "$program" /mnt/root/midair
mount -t proc proc /mnt/root/proc
exec chroot /mnt/root /bin/sh -c '
cd /root
/midair demo --keep >said
cat said
tail -n 3 said | while read -r line; do
  echo "copied: $line"
  sh -ec "$line"
done'"#;
    if !is_root_for("making a root directory")? {
        return Ok(());
    }
    let kit = Kit::new()?;
    let (_, program) = alone(&kit)?;
    for root in bare()? {
        // Everything ends with the first process of the namespace.
        let mut command = Command::new("unshare");
        command.env_clear().envs(plain_environment());
        command.args(["--mount", "--propagation", "private"]);
        command.args(["--pid", "--fork", "--kill-child", "sh", "-c", SCRIPT, "sh"]);
        command.arg(root).arg(&program);
        let exit = run(command, PATIENCE)?.success()?;
        let copied = exit
            .stdout
            .iter()
            .filter(|line| line.starts_with("copied: "));
        assert_eq!(copied.count(), 3, "{exit}");
        assert!(has(&exit.stdout, "gemm"), "{exit}");
        assert!(has(&exit.stdout, ".pftrace"), "{exit}");
    }
    Ok(())
}

/// `cargo xtask demo` says what it does before cargo has compiled anything, and ends with three
/// commands to copy and the program still running. In the place of cargo is a program that hangs,
/// and then one that has nothing to do, since all is built.
#[test]
fn the_demo_of_a_clone_says_what_it_does() -> Result<()> {
    let xtask = midair_tests::build_dir()?.join("../xtask");
    if !xtask.exists() {
        return leave_out("xtask is not built");
    }
    let demo = |cargo: &Path| {
        let mut command = Command::new(&xtask);
        command.env_clear().envs(plain_environment());
        command.env("CARGO", cargo).args(["demo", "--keep"]);
        command
    };
    let kit = Kit::new()?;
    let hangs = kit.scratch().join("cargo");
    std::fs::write(&hangs, "#!/bin/sh\nexec sleep 600\n")?;
    std::fs::set_permissions(&hangs, PermissionsExt::from_mode(0o755))?;
    let mut first = Target::spawn(demo(&hangs))?;
    first.expect("building midair")?;
    assert_eq!(first.lines().len(), 1, "{:?}", first.lines());
    drop(first);

    let kept = shown(demo(Path::new("/bin/true")))?;
    let [top, attach, kill] = &kept.commands[..] else {
        return Err(format!("three commands: {}", kept.exit).into());
    };
    let pid = kill.strip_prefix("kill ").ok_or("the last one ends it")?;
    let process = Path::new("/proc").join(pid);
    let runs = works(&process);
    // It ends after ten minutes by the clock, however busy the machine is.
    let words = std::fs::read_to_string(process.join("cmdline"))?;
    let words: Vec<&str> = words.trim_end_matches('\0').split('\0').collect();
    assert_eq!(words.get(1..), Some(&["0", "500", "any", "600"][..]));
    let mut end = Command::new("kill");
    end.arg(pid);
    run(end, PATIENCE)?;
    assert!(runs, "it runs on: {}", kept.exit);
    assert!(
        top.contains(" top ") && attach.contains(" attach "),
        "{}",
        kept.exit
    );
    assert!(has(&kept.exit.stdout, "gemm"), "{}", kept.exit);
    // The same program with one second.
    let mut ends = workload(&[])?;
    ends.args(["any", "1"]);
    run(ends, PATIENCE)?.success()?;
    Ok(())
}
