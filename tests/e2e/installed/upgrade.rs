//! A newer version is installed while a process holds the older one's thread.

use super::roots::{bare, in_overlay, working};
use super::{ROUNDS, made};
use midair_record::boot::{BootBlock, MAGIC, MAILBOX_OFFSET};
use midair_tests::lab::LabTarget;
use midair_tests::stage::plain_environment;
use midair_tests::stand_in::Kit;
use midair_tests::table::Csv;
use midair_tests::target::{PATIENCE, Target, run};
use midair_tests::{Result, is_root_for};
use object::Object;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// Makes packages of an older version out of ours: another number, and the SDK library of another
/// build.
fn older(scratch: &Path) -> Result<Vec<PathBuf>> {
    const REPACK: &str = r#"set -e
dpkg-deb --raw-extract "$1" "$2"
sed -i -e 's/^Version: .*/Version: 0.1.9/' -e 's/(= [^)]*)/(= 0.1.9)/' "$2/DEBIAN/control""#;
    let mut packages = Vec::new();
    for (number, package) in made(".deb")?.into_iter().enumerate() {
        let tree = scratch.join(format!("older{number}"));
        let mut repack = Command::new("sh");
        repack.args(["-c", REPACK, "sh"]).arg(&package).arg(&tree);
        run(repack, PATIENCE)?.success()?;
        let library = tree.join("usr/lib/midair/lib/librocprofiler-sdk.so.1");
        if library.exists() {
            let bytes = of_another_build(&library)?;
            std::fs::write(&library, bytes)?;
        }
        let to = scratch.join(format!("older{number}.deb"));
        let mut build = Command::new("dpkg-deb");
        build.args(["--root-owner-group", "-Znone", "--build"]);
        build.arg(&tree).arg(&to);
        run(build, PATIENCE)?.success()?;
        packages.push(to);
    }
    Ok(packages)
}

/// The same by dpkg, over an older package.
#[test]
fn dpkg_upgrades_while_a_thread_of_the_older_version_is_parked() -> Result<()> {
    const SCRIPT: &str = r#"mount --rbind /proc /mnt/root/proc
exec chroot /mnt/root sh -ec '
cd /packages
attach() {
  dpkg-query --show --showformat "installed \${Version}\n" midair-libs
  midair attach "$0" --duration 500ms --log-level info -d /results 2>&1
}
dpkg --install older*.deb >&2
attach
dpkg --install midair*.deb >&2
attach' "$1""#;
    if !is_root_for("installing packages in a root directory")? {
        return Ok(());
    }
    let Some(root) = bare()?.pop() else {
        return Ok(());
    };
    let kit = Kit::new()?;
    let mut target = working()?;
    let mut packages = older(kit.scratch())?;
    packages.extend(made(".deb")?);
    let mut command = in_overlay(&[], SCRIPT, &root, &packages);
    command.arg(target.pid().to_string());
    let exit = run(command, PATIENCE)?.success()?;
    let mut sessions = exit.stdout.split(|line| line.starts_with("installed "));
    assert_eq!(sessions.next(), Some(&[][..]), "{exit}");
    let [first, second] = [sessions.next(), sessions.next()];
    let (Some(first), Some(second)) = (first, second) else {
        return Err(format!("two sessions: {exit}").into());
    };
    for session in [first, second] {
        assert!(super::has(session, "gemm"), "{exit}");
    }
    let parked = "entered by the worker thread of an earlier session";
    assert!(!super::has(first, parked), "{exit}");
    assert!(super::has(second, parked), "{exit}");
    assert!(super::has(&exit.stdout, "installed 0.1.9"), "{exit}");
    assert!(target.is_running()?, "the program goes on");
    Ok(())
}
