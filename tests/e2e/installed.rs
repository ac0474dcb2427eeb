//! What users install (`cargo xtask dist`), used where nothing else of ours is.

use midair_record::boot::{BootBlock, MAGIC, MAILBOX_OFFSET};
use midair_tests::lab::LabTarget;
use midair_tests::python::python_tool;
use midair_tests::stage::plain_environment;
use midair_tests::stand_in::Kit;
use midair_tests::table::Csv;
use midair_tests::target::{Exit, PATIENCE, Target, run, until};
use midair_tests::{Result, is_root_for, leave_out};
use object::Object;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// Does the same with the Python package `midair`.
fn python_attaches(kit: &Kit, site: &Path) -> Result<()> {
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

#[test]
fn the_wheel_has_every_program() -> Result<()> {
    let kit = Kit::new()?;
    let site = kit.scratch().join("site");
    let mut pip = Command::new(python_tool("python")?);
    pip.args(["-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]);
    pip.args(["--disable-pip-version-check", "--target"]);
    pip.arg(&site).args(made(".whl")?);
    run(pip, PATIENCE)?.success()?;
    let program = |name: &str| {
        let mut command = Command::new(site.join("bin").join(name));
        command.env_clear().envs(plain_environment());
        command.env("PYTHONPATH", &site);
        command
    };
    for name in ["rocprofv3", "rocprof-compute"] {
        let mut command = program(name);
        command.arg("--version");
        run(command, PATIENCE)?.success()?;
    }
    let mut attach = program("rocprof-attach");
    attach.arg("--help");
    run(attach, PATIENCE)?.success()?;
    let mut import = Command::new(python_tool("python")?);
    import.env("PYTHONPATH", &site).args([
        "-c",
        "import os, rocprof_attach as r; assert os.path.isfile(r.default_library()), r.default_library()",
    ]);
    run(import, PATIENCE)?.success()?;
    python_attaches(&kit, &site)?;
    let results = kit.scratch().join("results");
    attaches(
        &kit,
        program("midair"),
        &results.display().to_string(),
        &results,
    )
}

/// Returns Debian roots without anything of ours: Debian 12, and the newest Debian, which is the
/// lab's.
fn bare() -> Result<Vec<PathBuf>> {
    let mut roots = Vec::new();
    match midair_tests::lab::Lab::find()? {
        Some(lab) => roots.push(lab.root().to_owned()),
        None => leave_out("no newest Debian: the lab is not there")?,
    }
    let old = std::env::var_os("MIDAIR_DEBIAN_12").map(PathBuf::from);
    match old.filter(|root| root.join(".whole").exists()) {
        Some(root) => roots.push(root),
        None => leave_out("no bare Debian 12 (MIDAIR_DEBIAN_12)")?,
    }
    Ok(roots)
}

/// Runs in a bare Debian. Its root is below an overlay, which disappears with the shell.
#[test]
fn debian_packages_install_and_attach_to_a_process_outside() -> Result<()> {
    const SCRIPT: &str = r#"set -e
lower=$1 results=$2; shift 2
mount -t tmpfs none /mnt
mkdir /mnt/up /mnt/work /mnt/root
mount -t overlay overlay -o "lowerdir=$lower,upperdir=/mnt/up,workdir=/mnt/work" /mnt/root
rm -rf /mnt/root/lab
mkdir -p /mnt/root/packages /mnt/root/results
while [ "$1" != -- ]; do cp "$1" /mnt/root/packages; shift; done; shift
mount --bind /proc /mnt/root/proc
mount --bind "$results" /mnt/root/results
chroot /mnt/root sh -c 'dpkg --install /packages/*.deb' >&2
exec chroot /mnt/root /usr/bin/midair "$@""#;
    if !is_root_for("installing packages in a root directory")? {
        return Ok(());
    }
    for root in bare()? {
        let kit = Kit::new()?;
        let results = kit.scratch().join("results");
        std::fs::create_dir(&results)?;
        let mut command = Command::new("unshare");
        command.env_clear().envs(plain_environment());
        command.args([
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            SCRIPT,
            "sh",
        ]);
        command.arg(root).arg(&results);
        command.args(made(".deb")?).arg("--");
        attaches(&kit, command, "/results", &results)?;
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
    first.expect_error("demo: getting a program ready")?;
    let exit = first.wait(PATIENCE)?.success()?;
    assert!(has(&exit.stdout, "gemm"), "{exit}");
    assert!(has(&exit.stdout, "_results.db"), "{exit}");

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

/// Returns the SDK library as another build would have it, that is, with another build id.
fn of_another_build(library: &Path) -> Result<Vec<u8>> {
    let mut bytes = std::fs::read(library)?;
    let file = object::File::parse(bytes.as_slice())?;
    let id = file
        .build_id()?
        .ok_or("our library has a build id")?
        .to_vec();
    let mut all = bytes.windows(id.len());
    let at = all
        .position(|window| window == id)
        .ok_or("it is in the file")?;
    bytes[at] ^= 1;
    Ok(bytes)
}

/// Where the parked worker thread of a process has its boot block.
fn boot_block(pid: i32) -> Result<u64> {
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let call = std::fs::read_to_string(task?.path().join("syscall"))?;
        let mut words = call.split(' ');
        if words.next() != Some(&libc::SYS_futex.to_string()) {
            continue;
        }
        let word = words.next().and_then(|word| word.strip_prefix("0x"));
        let word = u64::from_str_radix(word.ok_or("a futex has an address")?, 16)?;
        let block = word.wrapping_sub(MAILBOX_OFFSET as u64);
        let mut magic = [0; 8];
        let memory = std::fs::File::open(format!("/proc/{pid}/mem"))?;
        if memory.read_exact_at(&mut magic, block).is_ok() && u64::from_ne_bytes(magic) == MAGIC {
            return Ok(block);
        }
    }
    Err("no worker thread is parked".into())
}

/// The package is replaced by a newer one while a worker thread of the older one is parked in a
/// process. The newer one goes on with that thread, and a second time with its own. If the older
/// one's layout was another, the attach is refused: the process goes on, each command says what to
/// do, and that works.
#[test]
fn an_upgrade_while_a_thread_of_the_older_version_is_parked() -> Result<()> {
    let kit = Kit::new()?;
    let prefix = kit.scratch().join("prefix");
    let mut copy = Command::new("cp");
    copy.arg("-a")
        .arg(midair_tests::stage::stage()?)
        .arg(&prefix);
    run(copy, PATIENCE)?.success()?;
    let library = prefix.join("lib/librocprofiler-sdk.so.1");
    let newer = std::fs::read(&library)?;
    // Replaces a file by a rename, as dpkg and rpm do.
    let replace = |bytes: &[u8]| -> Result<()> {
        let new = library.with_extension("new");
        std::fs::write(&new, bytes)?;
        Ok(std::fs::rename(new, &library)?)
    };
    replace(&of_another_build(&library)?)?;

    let mut target = kit.start("two_gpus", "model.log", &[])?;
    target.expect("ready")?;
    let pid = target.pid().to_string();
    let attach = |target: &mut LabTarget, name: &str| -> Result<()> {
        let results = kit.scratch().join(name);
        let mut command = Command::new(prefix.join("bin/midair"));
        command.env_clear().envs(plain_environment());
        command.args(["attach", &pid, "--output-format", "csv", "-o", "out", "-d"]);
        let mut attacher = Target::spawn({
            command.arg(&results);
            command
        })?;
        attacher.expect_error("attached to process")?;
        target.send(&format!("work {ROUNDS}"))?;
        target.expect("work")?;
        attacher.send("")?;
        let exit = attacher.wait(PATIENCE)?.success()?;
        let kernels = Csv::read(&results.join("out_kernel_trace.csv"));
        let kernels = kernels.map_err(|error| format!("{name}: {error}: {exit}"))?;
        assert_eq!(kernels.rows.len(), ROUNDS * 4, "{name}");
        Ok(())
    };
    attach(&mut target, "older")?;
    replace(&newer)?;
    attach(&mut target, "newer, over the older one's thread")?;
    attach(&mut target, "newer, again")?;

    let version_at = boot_block(target.pid())? + offset_of!(BootBlock, version) as u64;
    let memory = std::fs::File::options()
        .write(true)
        .open(format!("/proc/{pid}/mem"))?;
    memory.write_all_at(&(midair_record::VERSION - 1).to_ne_bytes(), version_at)?;
    for words in [
        &["attach", &pid, "--duration", "1"][..],
        &["doctor", &pid],
        &["ps", "--json"],
    ] {
        let mut command = Command::new(prefix.join("bin/midair"));
        command.env_clear().envs(plain_environment()).args(words);
        let exit = run(command, PATIENCE)?;
        let said = [exit.stdout.join("\n"), exit.stderr.join("\n")].concat();
        assert!(
            said.contains("another build of midair"),
            "{words:?}: {exit}"
        );
        if words[0] != "ps" {
            assert_eq!(exit.status.code(), Some(15), "{words:?}: {exit}");
            let advice = "use the midair that attached first, or restart the process";
            assert!(said.contains(advice), "{words:?}: {exit}");
        }
    }
    target.send("work 1")?;
    target.expect("work")?;
    // The midair that attached first has the layout that the thread has.
    memory.write_all_at(&midair_record::VERSION.to_ne_bytes(), version_at)?;
    attach(&mut target, "the one that attached first")?;

    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}
