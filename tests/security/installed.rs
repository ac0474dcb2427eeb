//! An installation of midair that belongs to root and has rights that its user lacks.

use midair_tests::lab::LabTarget;
use midair_tests::stage::{plain_environment, stage};
use midair_tests::stand_in::Kit;
use midair_tests::{Result, is_root_for};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A user without rights.
pub(crate) const USER: u32 = 12345;
/// Another one, whose processes a midair with capabilities enters on every kernel. Before Linux 6.16 it
/// refuses root's (ENG-070).
pub(crate) const OTHER: u32 = USER + 1;
/// CAP_SYS_PTRACE, and CAP_DAC_OVERRIDE for the files in `/proc` of another user's process.
pub(crate) const BOTH: u32 = 1 << 19 | 1 << 1;

pub(crate) fn mode(path: &Path, mode: u32) -> Result<()> {
    Ok(fs::set_permissions(path, PermissionsExt::from_mode(mode))?)
}

/// Makes a directory that everybody may enter and only root may change.
pub(crate) fn roots_directory() -> Result<tempfile::TempDir> {
    let dir = tempfile::tempdir()?;
    mode(dir.path(), 0o755)?;
    Ok(dir)
}

/// Gives a program file capabilities (`struct vfs_cap_data`, revision 2, effective; source:
/// linux/capability.h).
pub(crate) fn give(path: &Path, capabilities: u32) -> Result<bool> {
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

/// An installation that belongs to root. Its `midair` has file capabilities, and everybody may run
/// it.
pub(crate) struct Installed {
    pub(crate) dir: tempfile::TempDir,
}

impl Installed {
    pub(crate) fn new() -> Result<Option<Installed>> {
        if !is_root_for("to give a program file capabilities")? {
            return Ok(None);
        }
        let dir = roots_directory()?;
        let copied = Command::new("cp")
            .arg("-rL")
            .args([stage()?.join("bin"), stage()?.join("lib")])
            .arg(dir.path())
            .status()?;
        let readable = Command::new("chmod")
            .args(["-R", "u=rwX,go=rX"])
            .arg(dir.path())
            .status()?;
        assert!(copied.success() && readable.success());
        let installed = Installed { dir };
        if !give(&installed.midair(), BOTH)? {
            midair_tests::leave_out("the file system has no file capabilities")?;
            return Ok(None);
        }
        Ok(Some(installed))
    }

    pub(crate) fn midair(&self) -> PathBuf {
        self.dir.path().join("bin/midair")
    }
}

/// Prepares a command as that user runs it.
pub(crate) fn as_user(program: &Path, uid: u32) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .envs(plain_environment())
        .uid(uid)
        .gid(uid);
    command
}

/// Starts a program on the stand-in runtimes as the other user.
pub(crate) fn start_as_other(
    kit: &Kit,
    name: &str,
    log: &str,
    variables: &[(&str, &str)],
) -> Result<LabTarget> {
    let program = kit.program(name)?;
    // A process whose user may not read its program is not dumpable.
    mode(&program, 0o755)?;
    mode(kit.scratch(), 0o777)?;
    let mut target = kit.start_command(as_user(&program, OTHER), log, variables)?;
    target.target.expect("ready")?;
    Ok(target)
}

/// Returns what makes an attack on this program or library easier than it need be.
fn softness(data: &[u8]) -> Result<Vec<&'static str>> {
    use object::read::elf::{Dyn, FileHeader, ProgramHeader};
    use object::{Endianness, elf};
    let header = elf::FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let (mut now, mut relro, mut stack, mut text) = (false, false, false, false);
    for segment in header.program_headers(endian, data)? {
        match segment.p_type(endian) {
            elf::PT_GNU_RELRO => relro = true,
            elf::PT_GNU_STACK => stack = segment.p_flags(endian).0 & elf::PF_X.0 == 0,
            _ => {}
        }
        for entry in segment.dynamic(endian, data)?.unwrap_or_default() {
            let value = entry.val(endian);
            match entry.tag(endian) {
                elf::DT_BIND_NOW => now = true,
                elf::DT_FLAGS => {
                    now |= value & elf::DF_BIND_NOW.0 != 0;
                    text |= value & elf::DF_TEXTREL.0 != 0;
                }
                elf::DT_FLAGS_1 => now |= value & elf::DF_1_NOW.0 != 0,
                elf::DT_TEXTREL => text = true,
                _ => {}
            }
        }
    }
    let anywhere = header.e_type(endian) == elf::ET_DYN;
    let all = [
        (!now, "functions are bound when they are first called"),
        (!relro, "its tables of addresses stay writable"),
        (!stack, "its stack can be executed"),
        (text, "its code is written to"),
        (!anywhere, "it lies at a fixed address"),
    ];
    Ok(all
        .iter()
        .filter(|(is, _)| *is)
        .map(|(_, what)| *what)
        .collect())
}

/// Whatever is installed and runs, the demo's program and runtimes included.
#[test]
fn each_program_and_library_is_hardened() -> Result<()> {
    let mut left = vec![stage()?.join("bin"), stage()?.join("lib")];
    let mut seen = 0;
    while let Some(path) = left.pop() {
        if path.is_dir() {
            for entry in fs::read_dir(&path)? {
                left.push(entry?.path());
            }
            continue;
        }
        let data = fs::read(&path)?;
        if data.starts_with(b"\x7fELF") {
            seen += 1;
            let soft = softness(&data).map_err(|error| format!("{}: {error}", path.display()))?;
            assert!(soft.is_empty(), "{}: {soft:?}", path.display());
        }
    }
    assert!(seen > 20, "{seen} files");
    Ok(())
}
