//! What others install (`cargo xtask dist`), used where nothing else of ours is.

use midair_tests::python::python_tool;
use midair_tests::stage::plain_environment;
use midair_tests::stand_in::Kit;
use midair_tests::table::Csv;
use midair_tests::target::{PATIENCE, Target, run};
use midair_tests::{Result, is_root_for, leave_out};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Rounds of work while attached; each launches four kernels.
const ROUNDS: usize = 10;

/// What `cargo xtask dist` made, by the end of its name.
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

/// Attaches to a program of two modelled GPUs by this command, which gets `attach`'s words, while the
/// program works. All its kernels have to be in `results/out_kernel_trace.csv`.
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

/// A directory with the one file and nothing else.
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

    // The library is loaded where its path is in the maps.
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
    // Within the index: the text before the trailer.
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
    let results = kit.scratch().join("results");
    attaches(
        &kit,
        program("midair"),
        &results.display().to_string(),
        &results,
    )
}

/// In a bare Debian with nothing of ours: the lab's root below an overlay, which is gone with the shell.
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
    let Some(lab) = midair_tests::lab::Lab::find()? else {
        return leave_out("no bare Debian: the lab is not there");
    };
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
    command.arg(lab.root()).arg(&results);
    command.args(made(".deb")?).arg("--");
    attaches(&kit, command, "/results", &results)
}
