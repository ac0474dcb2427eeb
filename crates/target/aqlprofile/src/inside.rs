//! The root of a target, in which the helper is to run: AMD's library may be there alone, and need
//! a newer C library than this side's.
//!
//! The helper's program is first started on this side. It enters the root, gives up every right but
//! the target's own, and executes itself again, which the loader of that root then starts
//! (`process/inside.rs`; AMD-104).

use std::ffi::OsString;
use std::os::fd::OwnedFd;

/// The first argument of a helper that is to enter a root.
pub const ENTER: &str = "--enter";
/// The name of the helper there, by which its loader calls it in messages.
pub const NAME: &str = "midair-aqlprofile";
/// The most groups of the target that are handed on: an argument has at most 128 KiB.
const MOST_GROUPS: usize = 8192;
/// The most bytes of the paths where a loader searches, and of a library's path.
const MOST_SEARCH: usize = 64 << 10;
const MOST_PATH: usize = libc::PATH_MAX as usize;

/// A target's root and rights.
#[derive(Debug)]
pub struct Inside {
    /// Its root directory.
    pub root: OwnedFd,
    /// Its mount namespace.
    pub mounts: OwnedFd,
    /// The helper's program, in a memory file that cannot change.
    pub program: OwnedFd,
    /// Its real user.
    pub user: u32,
    /// Its real group.
    pub group: u32,
    /// Its supplementary groups.
    pub groups: Vec<u32>,
    /// Where its loader searches besides (`LD_LIBRARY_PATH`), or empty.
    pub search: OsString,
    /// The files that AMD's library may be there, in the order in which they are tried.
    pub libraries: Vec<OsString>,
}

impl Inside {
    /// The helper's arguments: [`ENTER`], user, group, groups, search, libraries. Paths that are too long
    /// for an argument are left out.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let groups = self.groups.iter().take(MOST_GROUPS);
        let groups: Vec<String> = groups.map(u32::to_string).collect();
        let mut all: Vec<OsString> = vec![
            ENTER.into(),
            self.user.to_string().into(),
            self.group.to_string().into(),
            groups.join(",").into(),
            Some(self.search.clone())
                .filter(|search| search.len() <= MOST_SEARCH)
                .unwrap_or_default(),
        ];
        let libraries = self.libraries.iter();
        all.extend(libraries.filter(|path| path.len() < MOST_PATH).cloned());
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// A process may give its variables any length once it runs.
    #[test]
    fn a_program_can_be_started_with_any_arguments() {
        let null = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let long = || OsString::from("x".repeat(1 << 20));
        let inside = Inside {
            root: null(),
            mounts: null(),
            program: null(),
            user: 1,
            group: 2,
            groups: vec![u32::MAX; 1 << 16],
            search: long(),
            libraries: vec![long(), "/lib.so".into()],
        };
        let arguments = inside.arguments();
        assert_eq!(arguments[4..], ["", "/lib.so"]);
        assert!(
            Command::new("true")
                .args(arguments)
                .status()
                .unwrap()
                .success()
        );
    }
}
