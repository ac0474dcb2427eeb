//! The user of an attacher with file capabilities stops it while it holds a thread. It is
//! continued. If it is stopped again and again, it is killed. This lets the thread go, and the
//! thread restores itself.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{PATIENCE, Snapshot, check, compiled, end, pid_of, run, start_with};
use crate::death::is_sound;
use midair_inject::FaultPoint;

/// A user without rights.
const USER: u32 = 12345;

/// Gives a program CAP_SYS_PTRACE and CAP_DAC_OVERRIDE. Returns false if the file system cannot
/// store capabilities.
fn give_capabilities(program: &Path) -> bool {
    // struct vfs_cap_data (linux/capability.h), revision 2 with the bit "effective".
    let words: [u32; 5] = [0x0200_0001, 1 << 19 | 1 << 1, 0, 0, 0];
    let value: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let path = std::ffi::CString::new(program.as_os_str().as_bytes()).unwrap();
    // SAFETY: the C strings and the buffer are live for the call, and the buffer has the given
    // length.
    unsafe {
        libc::setxattr(
            path.as_ptr(),
            c"security.capability".as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        ) == 0
    }
}

/// Copies the attacher to a directory of its own and gives it capabilities.
fn attacher_with_capabilities() -> Option<(tempfile::TempDir, PathBuf)> {
    if !midair_tests::is_root_for("to give a program capabilities").unwrap() {
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = dir.path().join("midair-enter");
    std::fs::copy(env!("CARGO_BIN_EXE_midair-enter"), &program).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    if !give_capabilities(&program) {
        midair_tests::leave_out("no file capabilities here").unwrap();
        return None;
    }
    Some((dir, program))
}

#[test]
fn an_attacher_that_is_stopped_lets_go() {
    let Some((_dir, program)) = attacher_with_capabilities() else {
        return;
    };
    let mut command = Command::new(compiled("target", false));
    command.uid(USER).gid(USER);
    let mut target = start_with(command, &["1", "sem"]);
    let pid = pid_of(&target);
    check(&mut target);
    let before = Snapshot::take(pid).unwrap();
    let attacher = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.arg(pid.to_string()).args(["--boot-ms", "1500"]);
        command.args(["--find-ms", "20000"]).args(words);
        command.uid(USER).gid(USER);
        command
    };
    for point in [
        FaultPoint::Proven,
        FaultPoint::Framed,
        FaultPoint::Mapped,
        FaultPoint::Written,
        FaultPoint::Started,
        FaultPoint::Made,
    ] {
        let name = point.name();
        let stopped = |how: &str| {
            run(attacher(&[how, name]), PATIENCE)
                .unwrap_or_else(|error| panic!("stopped at {name}, it holds the thread: {error}"))
        };
        let exit = stopped("--stop-for-ever-at");
        assert_eq!(exit.signal(), Some(libc::SIGKILL), "{name}: {exit}");
        is_sound(&mut target, &before, name);
        // It may also be killed if it gets no processor for a long time.
        assert!((0..5).any(|_| stopped("--stop-at").status.success()));
        is_sound(&mut target, &before, name);
    }
    end(target);
}
