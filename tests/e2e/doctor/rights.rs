//! Whose rights count: a program with file capabilities or a set-uid bit does only what its user
//! may do.

use super::*;
use midair_tests::compile::host_program;
use midair_tests::snapshot::Snapshot;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;

/// CAP_SYS_PTRACE, and CAP_DAC_READ_SEARCH for the files in `/proc` of another user's process.
const BOTH: u32 = 1 << 19 | 1 << 2;

fn mode(path: &Path, mode: u32) -> Result<()> {
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

/// Gives a program file capabilities (`struct vfs_cap_data`, revision 2, effective; source:
/// linux/capability.h).
fn give(path: &Path, capabilities: u32) -> Result<bool> {
    let words = [0x0200_0001_u32, capabilities, 0, 0, 0];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes())?;
    // SAFETY: both names end with a NUL, and the buffer is alive and has the length that is passed.
    let set = unsafe {
        libc::setxattr(
            path.as_ptr(),
            c"security.capability".as_ptr(),
            bytes.as_ptr().cast(),
            bytes.len(),
            0,
        )
    };
    Ok(set == 0)
}

/// An installation that belongs to root, below a directory that only root can write to. Its
/// `midair` has file capabilities.
struct Installed {
    dir: tempfile::TempDir,
}

impl Installed {
    fn below(place: &str, capabilities: u32) -> Result<Option<Installed>> {
        if !is_root_for("to give a program file capabilities")? {
            return Ok(None);
        }
        let dir = tempfile::tempdir_in(place)?;
        mode(dir.path(), 0o755)?;
        let copied = Command::new("cp")
            .arg("-rL")
            .args([stage()?.join("bin"), stage()?.join("lib")])
            .arg(dir.path())
            .status()?;
        assert!(copied.success());
        let owned = Command::new("chmod")
            .args(["-R", "u=rwX,go=rX"])
            .arg(dir.path())
            .status()?;
        assert!(owned.success());
        if !give(&dir.path().join("bin/midair"), capabilities)? {
            midair_tests::leave_out("the file system has no file capabilities")?;
            return Ok(None);
        }
        Ok(Some(Installed { dir }))
    }

    fn doctor(&self, pid: i32, variables: &[(&str, &Path)]) -> Result<(Exit, Value)> {
        let mut command = self.midair();
        command
            .args(["doctor", "--json", &pid.to_string()])
            .envs(variables.iter().copied());
        let exit = run(command, PATIENCE)?;
        let told = json(&exit)?;
        Ok((exit, told))
    }

    /// Prepares `midair` as that user runs it.
    fn midair(&self) -> Command {
        let mut command = Command::new(self.dir.path().join("bin/midair"));
        command
            .env_clear()
            .envs(plain_environment())
            .env("ROCPROF_OUTPUT_PATH", "/tmp")
            .current_dir("/tmp")
            .uid(SOMEBODY)
            .gid(SOMEBODY);
        command
    }

    /// Checks that an attach is refused for the same reason, and touches nothing.
    fn refuses(&self, pid: i32, code: i32, words: &str) -> Result<()> {
        let before = Snapshot::take(pid)?;
        let mut command = self.midair();
        command.args(["attach", &pid.to_string()]);
        let exit = run(command, PATIENCE)?;
        assert_eq!(exit.status.code(), Some(code), "{exit}");
        assert!(exit.stderr.join("\n").contains(words), "{words}: {exit}");
        let diff = before.diff(&Snapshot::take(pid)?).without_heap();
        assert!(diff.is_empty(), "{diff}");
        Ok(())
    }
}

impl Installed {
    /// Copies a program that everybody may read. A process whose user may not read the program is
    /// not dumpable.
    fn program(&self, name: &str, permissions: u32, owner: u32) -> Result<PathBuf> {
        let program = self.dir.path().join(name);
        if !program.exists() {
            fs::copy(host_program("plain_threads")?, &program)?;
            chown(&program, Some(owner), None)?;
            mode(&program, permissions)?;
        }
        Ok(program)
    }

    /// Starts a program of this user that waits.
    fn waiting(&self, uid: u32) -> Result<Target> {
        start(&self.program("waiting", 0o755, 0)?, uid)
    }
}

fn start(program: &Path, uid: u32) -> Result<Target> {
    let mut command = Command::new(program);
    command
        .args(["1", "3"])
        .env_clear()
        .envs(plain_environment())
        .uid(uid)
        .gid(uid);
    let mut target = Target::spawn(command)?;
    target.expect("ready")?;
    Ok(target)
}

fn failed(told: &Value, name: &str, code: u8, words: &str) -> Result<()> {
    let check = check(told, name)?;
    let found = check["found"].as_str().unwrap_or_default();
    assert_eq!(
        (&check["status"], &check["exit_code"]),
        (&"fail".into(), &code.into()),
        "{told:#}"
    );
    assert!(found.contains(words), "{words}: {found}");
    Ok(())
}

#[test]
fn a_callers_tool_is_used_where_the_target_has_no_more_rights() -> Result<()> {
    let Some(installed) = Installed::below("/var/lib", BOTH)? else {
        return Ok(());
    };
    let scratch = tempfile::tempdir()?;
    mode(scratch.path(), 0o777)?;
    let tool = scratch.path().join("tool.so");
    fs::copy(
        stage()?.join("lib/rocprofiler-sdk/librocprofiler-sdk-tool.so.1"),
        &tool,
    )?;
    let (own, others) = (
        installed.waiting(SOMEBODY)?,
        installed.waiting(SOMEBODY + 1)?,
    );
    let named = |path: &Path| [("ROCPROF_ATTACH_TOOL_LIBRARY", path.to_owned())];
    let doctor = |pid: i32, path: &Path| {
        let named = named(path);
        installed.doctor(pid, &[(named[0].0, &named[0].1)])
    };
    // A target with the caller's rights may get any tool.
    let (_, told) = doctor(own.pid(), &tool)?;
    assert_eq!(check(&told, "tools")?["status"], "pass", "{told:#}");
    assert_eq!(check(&told, "rights")?["status"], "pass", "{told:#}");
    // Another user's process, to which CAP_SYS_PTRACE gives access, may only get a tool that root
    // answers for. This directory is writable for all.
    let (_, told) = doctor(others.pid(), &tool)?;
    failed(&told, "tools", 11, "runs as user 1001")?;
    assert_eq!(check(&told, "rights")?["status"], "note", "{told:#}");
    let roots = installed.dir.path().join("tool.so");
    fs::copy(&tool, &roots)?;
    mode(&roots, 0o644)?;
    let (_, told) = doctor(others.pid(), &roots)?;
    assert_eq!(check(&told, "tools")?["status"], "pass", "{told:#}");
    // Only root may be able to write to the tool and to each directory on the way to it.
    let refused = |words: &str| -> Result<()> {
        let (_, told) = doctor(others.pid(), &roots)?;
        failed(&told, "tools", 11, words)
    };
    for bad in [0o664, 0o646] {
        mode(&roots, bad)?;
        refused("can be changed by users other than root")?;
        mode(&roots, 0o644)?;
    }
    let folder = installed.dir.path().join("folder");
    fs::create_dir(&folder)?;
    mode(&folder, 0o775)?;
    fs::copy(&roots, folder.join("tool.so"))?;
    mode(&folder.join("tool.so"), 0o644)?;
    let (_, told) = doctor(others.pid(), &folder.join("tool.so"))?;
    failed(&told, "tools", 11, "folder can be changed")?;
    // A link is followed, and the file that it leads to is checked.
    let link = installed.dir.path().join("link.so");
    std::os::unix::fs::symlink(&tool, &link)?;
    let (_, told) = doctor(others.pid(), &link)?;
    failed(&told, "tools", 11, "can be changed by users other")?;
    // A directory that everybody may write to is safe on the way if the sticky bit protects each
    // user's files.
    mode(scratch.path(), 0o755)?;
    let (_, told) = doctor(others.pid(), &tool)?;
    assert_eq!(check(&told, "tools")?["status"], "pass", "{told:#}");
    chown(&roots, Some(SOMEBODY), None)?;
    refused("does not belong to root")?;
    // Our own default tool is always allowed, because it is not the user's choice.
    let (_, told) = installed.doctor(others.pid(), &[])?;
    assert_eq!(check(&told, "tools")?["status"], "pass", "{told:#}");
    // A relative path is refused: nothing is looked up from the caller's working directory or by
    // the target's loader.
    for relative in ["tool.so", "./tool.so"] {
        let (_, told) = doctor(own.pid(), Path::new(relative))?;
        failed(&told, "tools", 11, "relative path")?;
    }
    Ok(())
}

#[test]
fn libraries_of_a_program_with_capabilities_must_belong_to_root() -> Result<()> {
    // A user who can link such a program into their own directory can put their own libraries
    // alongside it.
    let place = tempfile::tempdir()?;
    mode(place.path(), 0o777)?;
    let Some(installed) = Installed::below(&place.path().display().to_string(), BOTH)? else {
        return Ok(());
    };
    let own = installed.waiting(SOMEBODY)?;
    let (exit, told) = installed.doctor(own.pid(), &[])?;
    failed(&told, "libraries", 20, "can be changed by users other")?;
    assert_eq!(exit.status.code(), Some(20), "{exit}");
    installed.refuses(own.pid(), 20, "can be changed by users other")?;
    Ok(())
}

#[test]
fn results_are_written_with_the_real_users_permissions() -> Result<()> {
    let Some(installed) = Installed::below("/var/lib", BOTH)? else {
        return Ok(());
    };
    let (own, roots) = (installed.waiting(SOMEBODY)?, tempfile::tempdir()?);
    mode(roots.path(), 0o755)?;
    let (_, told) = installed.doctor(own.pid(), &[("ROCPROF_OUTPUT_PATH", roots.path())])?;
    failed(&told, "results", 33, "Permission denied")?;
    chown(roots.path(), Some(SOMEBODY), None)?;
    let (_, told) = installed.doctor(own.pid(), &[("ROCPROF_OUTPUT_PATH", roots.path())])?;
    assert_eq!(check(&told, "results")?["status"], "pass", "{told:#}");
    Ok(())
}

#[test]
fn undumpable_processes_are_for_root_only() -> Result<()> {
    let Some(installed) = Installed::below("/var/lib", BOTH)? else {
        return Ok(());
    };
    // Another user's program with the set-uid bit, started by the caller.
    let program = installed.program("set-uid", 0o4755, SOMEBODY + 1)?;
    let target = start(&program, SOMEBODY)?;
    let (exit, told) = installed.doctor(target.pid(), &[])?;
    failed(&told, "permission", 11, "set-uid")?;
    assert_eq!(exit.status.code(), Some(11), "{exit}");
    installed.refuses(target.pid(), 11, "set-uid")?;
    // A process whose user may not read the program is not dumpable.
    let closed = installed.program("closed", 0o711, 0)?;
    let target = start(&closed, SOMEBODY)?;
    let (_, told) = installed.doctor(target.pid(), &[])?;
    failed(&told, "permission", 11, "not dumpable")?;
    installed.refuses(target.pid(), 11, "not dumpable")?;
    // Root may attach.
    let exit = midair(&["doctor", "--json", &target.pid().to_string()])?;
    assert_eq!(
        check(&json(&exit)?, "permission")?["status"],
        "pass",
        "{exit}"
    );
    Ok(())
}
