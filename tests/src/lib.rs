//! Test kit: real processes, AMD's real runtimes on a modelled GPU, and the files that come out.
//!
//! * [`held::Held`]: a single thread that is held, so that it is not scheduled.
//! * [`lab::Lab`]: a root directory with AMD's ROCm 7.2 user space. It runs programs there on the
//!   lab's model or on ours.
//! * [`target::Target`]: a process under test, with its lines and its exit. It is gone when the
//!   test ends.
//! * [`snapshot::Snapshot`]: what an attach might change in a process, and what did change.
//! * [`modellog`]: what the modelled GPU consumed, which is the truth that a trace is compared
//!   with.
//! * [`attacher::Attacher`]: a command line of the stage at work, and the trace that it wrote.
//! * [`caller::Caller`]: the program `tests/c/calls.c`, which counts its own calls.
//! * [`client::ClientHost`]: a HIP program with a client of the SDK in it.
//! * [`compile`]: the C programs in `tests/c`, for the host and inside the lab.
//! * [`cuda`]: programs on the stand-in for NVIDIA's libraries, and the log of its devices.
//! * [`python()`]: a Python with the packages that tests use (Perfetto, CMake).
//! * [`stage`]: the built product (`target/stage`) and commands of it under a time limit.
//! * [`stand_in`]: programs on the stand-in runtimes, two GPUs and no root.
//! * [`table`]: csv and json outputs.
//!
//! End-to-end tests live in `tests/e2e/NAME.rs`, each a module of `tests/e2e/main.rs`. Nothing here
//! sleeps to let something happen. Every wait is for an event, with a deadline that fails the test
//! by name.
//!
//! Environment: `MIDAIR_LAB` (a ready root; default `/var/tmp/rocm-lab`), `MIDAIR_SKIP_LAB=1`
//! (tests that need the lab say that they were skipped), `MIDAIR_STAGE` (another stage directory),
//! `MIDAIR_CHROMIUM=1` (no test may be left out for want of a browser), `MIDAIR_PYTHON` (another directory that `cargo xtask python` made).

pub mod attacher;
pub mod caller;
pub mod client;
pub mod compile;
#[cfg(target_arch = "x86_64")]
pub mod cuda;
pub mod fatbin;
pub mod held;
pub mod kernel;
pub mod lab;
pub mod libraries;
pub mod memory_group;
pub mod modellog;
pub mod python;
pub mod schema;
pub mod snapshot;
pub mod stage;
pub mod stand_in;
pub mod table;
pub mod target;

pub use python::{python, python_tool};

use std::path::PathBuf;

/// A failure of the kit or of what it examines, in words.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
/// The result of nearly everything here. Tests return it and use `?`.
pub type Result<T> = std::result::Result<T, Error>;

/// Says that the running test is left out, and why. It says so on stderr, past the capture of test
/// output, and in the file that `MIDAIR_LEFT_OUT` names, which `cargo xtask test` lists at its end.
/// A test that was left out has shown nothing.
///
/// # Errors
/// Fails when this cannot be said, because the test must not look as if it had passed.
pub fn leave_out(why: &str) -> Result<()> {
    use std::io::Write;
    let thread = std::thread::current();
    let note = format!("{}: {why}\n", thread.name().unwrap_or("a test"));
    std::io::stderr().write_all(format!("LEFT OUT, NOT TESTED: {note}").as_bytes())?;
    if let Some(path) = std::env::var_os("MIDAIR_LEFT_OUT") {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.append(true).create(true).open(path)?;
        file.write_all(note.as_bytes())?;
    }
    Ok(())
}

/// Returns the browser: Debian's chromium-headless-shell, or chromium. Where there is none, it says
/// that the test is left out. With `MIDAIR_CHROMIUM=1`, as in CI, that is a failure.
///
/// # Errors
/// When that cannot be said, and where the test may not be left out.
pub fn chromium() -> Result<Option<PathBuf>> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium-headless-shell", "chromium"];
    let found = std::env::split_paths(&path)
        .flat_map(|directory| names.map(|name| directory.join(name)))
        .find(|program| program.is_file());
    if found.is_none() {
        let what = "there is no Chromium (Debian: chromium-headless-shell)";
        if std::env::var_os("MIDAIR_CHROMIUM").is_some_and(|value| value == "1") {
            return Err(what.into());
        }
        leave_out(what)?;
    }
    Ok(found)
}

/// Returns a program of the machine. Where it is not there, it says that a part of the running test
/// is left out, and which package of Debian has the program.
///
/// # Errors
/// When that cannot be said.
pub fn program(name: &str, package: &str) -> Result<Option<PathBuf>> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut all = std::env::split_paths(&path).map(|directory| directory.join(name));
    let found = all.find(|program| program.is_file());
    if found.is_none() {
        leave_out(&format!("there is no {name} (Debian: {package})"))?;
    }
    Ok(found)
}

/// Returns whether a terminal obeys the character and does not show it. This is written a second
/// time here, so that a mistake in the product's own list is noticed.
pub fn obeyed(c: char) -> bool {
    let bidirectional = [
        '\u{61c}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}',
        '\u{202e}', '\u{2066}', '\u{2067}', '\u{2068}', '\u{2069}',
    ];
    c.is_control() || bidirectional.contains(&c) || matches!(c, '\u{2028}' | '\u{2029}')
}

/// Returns whether we are root. If not, the running test is left out with `what` as the reason.
///
/// # Errors
/// Fails as [`leave_out`] does.
pub fn is_root_for(what: &str) -> Result<bool> {
    // SAFETY: geteuid takes no arguments and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        leave_out(&format!("needs root, {what}"))?;
    }
    Ok(root)
}

/// Returns whether the long form is asked for (`MIDAIR_LONG=1`), which tests everything, on a
/// machine with nothing else to do.
pub fn long() -> bool {
    std::env::var_os("MIDAIR_LONG").is_some_and(|value| value == "1")
}

/// Returns the workspace's directory.
pub fn workspace() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Returns the build directory of the running test or program (`target/debug/deps`), which also has
/// the libraries that it depends on.
///
/// # Errors
/// Fails when the system does not tell the path of the running program.
pub fn build_dir() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let dir = own.parent().ok_or("a program has a directory")?;
    // Tests are in that directory itself, and programs are one level above it.
    Ok(if dir.ends_with("deps") {
        dir.to_path_buf()
    } else {
        dir.join("deps")
    })
}

/// Returns a hash of what a built file depends on, to tell whether it is stale. It is not
/// cryptographic.
pub(crate) fn fingerprint(parts: &[&[u8]]) -> String {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    for part in parts {
        hasher.write_usize(part.len());
        hasher.write(part);
    }
    format!("{:016x}", hasher.finish())
}

/// Puts `bytes` at `path` by renaming a finished file over it, unless the file has them already.
/// Several test processes may do so at once. A process that has the old file open or mapped keeps
/// it.
pub(crate) fn put_file(path: &std::path::Path, bytes: &[u8], mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    if std::fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let dir = path.parent().ok_or("a file has a directory")?;
    let fresh = tempfile::NamedTempFile::new_in(dir)?;
    std::fs::write(fresh.path(), bytes)?;
    std::fs::set_permissions(fresh.path(), std::fs::Permissions::from_mode(mode))?;
    fresh.persist(path)?;
    Ok(())
}

/// Puts a program or library at `path` as [`put_file`] does. A copy with the size and the time of the
/// original is taken for it, since nearly every test asks for all of the stage, 280 MB.
pub(crate) fn put_copy(path: &std::path::Path, original: &std::path::Path) -> Result<()> {
    let named = |error| format!("{}: {error}", original.display());
    let is = |of: &std::path::Path| -> std::io::Result<_> {
        let metadata = std::fs::metadata(of)?;
        Ok((metadata.len(), metadata.modified()?))
    };
    let (size, time) = is(original).map_err(named)?;
    if is(path).is_ok_and(|there| there == (size, time)) {
        return Ok(());
    }
    put_file(path, &std::fs::read(original).map_err(named)?, 0o755)?;
    std::fs::File::open(path)?.set_modified(time)?;
    Ok(())
}
