//! Which C library a process runs on.

use std::io;

use crate::link_map;
use crate::module::{Loaded, Modules};

/// The C library of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LibcKind {
    /// The GNU C library, with the index of its module and its version.
    Glibc {
        /// An index into [`Modules::list`].
        module: usize,
        /// Major and minor version.
        version: (u32, u32),
    },
    /// musl.
    Musl,
    /// None is mapped: the program is linked statically, or is no C program at all.
    Static,
    /// Two copies are mapped, and the loader's list does not show which one the program uses.
    Ambiguous,
}

/// Finds the C library among the modules. It is recognised by what it defines, not by its name
/// alone.
///
/// # Errors
/// When a candidate's file cannot be opened or read.
pub fn find(modules: &Modules) -> io::Result<LibcKind> {
    let mut found: Vec<(usize, (u32, u32))> = Vec::new();
    let mut musl = false;
    for (index, module) in modules.list.iter().enumerate() {
        let name = module.file_name();
        if name.starts_with(b"ld-musl") || name.starts_with(b"libc.musl") {
            musl = true;
        }
        // Usual names are libc.so.6 and libc-2.31.so. The C library of a container image may have
        // no other name.
        if !(name.starts_with(b"libc.so") || name.starts_with(b"libc-")) {
            continue;
        }
        let Some(version) = glibc_version(&*modules.load(index)?)? else {
            continue;
        };
        found.push((index, version));
    }
    if found.len() > 1 {
        let own = link_map::biases(modules.tid(), modules.memory()).unwrap_or_default();
        found.retain(|&(index, _)| {
            modules
                .load(index)
                .is_ok_and(|loaded| own.contains(&loaded.bias))
        });
        if found.len() != 1 {
            return Ok(LibcKind::Ambiguous);
        }
    }
    Ok(match found.first() {
        Some(&(module, version)) => LibcKind::Glibc { module, version },
        None if musl || asks_for_musl(modules) => LibcKind::Musl,
        None => LibcKind::Static,
    })
}

/// Whether the program names musl's loader as its interpreter. Distributions give musl's one
/// library various names, so the file's name does not decide.
fn asks_for_musl(modules: &Modules) -> bool {
    let exe = crate::files::program(modules.tid());
    exe.and_then(crate::elf::ElfFile::open)
        .is_ok_and(|program| {
            program
                .interpreter
                .is_some_and(|path| crate::show(&path).contains("ld-musl"))
        })
}

fn glibc_version(loaded: &Loaded) -> io::Result<Option<(u32, u32)>> {
    Ok(loaded
        .elf
        .defined_versions()?
        .iter()
        .filter_map(|name| version(name))
        .max())
}

/// Returns the oldest glibc that has all versions that the file needs; 0.0 where it needs none.
///
/// # Errors
/// When the file cannot be read.
pub fn needed(file: &crate::elf::ElfFile) -> io::Result<(u32, u32)> {
    let needed = file.needed_versions()?;
    let versions = needed.iter().filter_map(|name| version(name));
    Ok(versions.max().unwrap_or_default())
}

/// Parses `GLIBC_2.34` and `GLIBC_2.3.4`, but not `GLIBC_PRIVATE`.
fn version(name: &str) -> Option<(u32, u32)> {
    let mut parts = name.strip_prefix("GLIBC_")?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(version("GLIBC_2.34"), Some((2, 34)));
        assert_eq!(version("GLIBC_2.3.4"), Some((2, 3)));
        assert_eq!(version("GLIBC_PRIVATE"), None);
        assert_eq!(version("GLIBCXX_3.4"), None);
        assert!(version("GLIBC_2.36") > version("GLIBC_2.4"));
    }

    #[test]
    fn ours_is_glibc() {
        let modules = Modules::of(crate::Pid::own()).unwrap();
        let LibcKind::Glibc { version, .. } = find(&modules).unwrap() else {
            panic!("no glibc")
        };
        assert!(version >= (2, 34), "{version:?}");
    }
}
