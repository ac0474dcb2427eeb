//! Whether a process's cgroup is frozen (`docker pause`, `systemctl freeze`). None of its threads
//! runs then, although job control has stopped none.

use std::path::{Path, PathBuf};

use crate::Tid;
use crate::files::{Place, kernel_text};
use crate::headroom::{V2, hierarchies};

/// Returns the cgroup by which the process of a live thread is frozen, or is being frozen. None
/// also where that cannot be known, as in a container that does not see the group.
pub fn frozen(tid: impl Into<Tid>) -> Option<PathBuf> {
    let tid = tid.into();
    let groups = kernel_text(format!("{tid}/cgroup")).ok()?;
    let mounts = kernel_text("self/mountinfo").ok()?;
    let ours = Place::own_root().ok()?;
    hierarchies(&groups, &mounts, "freezer")
        .into_iter()
        .find_map(|(top, group, files)| freezes(&ours, &top, &group, files == V2))
}

/// Returns the first frozen group on the way from `group` up to `top`, beneath our own root.
///
/// source: Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/freezer-subsystem.rst
fn freezes(ours: &Place, top: &Path, group: &Path, unified: bool) -> Option<PathBuf> {
    // The files contain "1", or "FREEZING" or "FROZEN".
    let (file, word) = match unified {
        true => ("cgroup.freeze", &b"1"[..]),
        false => ("freezer.state", &b"FR"[..]),
    };
    let is_frozen = |directory: &&Path| {
        let text = ours.read(directory.join(file), 64);
        text.is_ok_and(|text| text.starts_with(word))
    };
    group
        .ancestors()
        .take_while(|directory| directory.starts_with(top))
        .find(is_frozen)
        .map(Path::to_path_buf)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_group_is_frozen_by_itself_or_by_one_above_it() {
        let top = tempfile::tempdir().unwrap();
        let ours = Place::own_root().unwrap();
        let (above, below) = (top.path().join("a"), top.path().join("a/b"));
        fs::create_dir_all(&below).unwrap();
        let put = |directory: &Path, file: &str, text: &str| {
            fs::write(directory.join(file), text).unwrap();
        };
        put(&above, "cgroup.freeze", "0\n");
        put(&below, "cgroup.freeze", "0\n");
        assert_eq!(freezes(&ours, top.path(), &below, true), None);
        put(&above, "cgroup.freeze", "1\n");
        assert_eq!(
            freezes(&ours, top.path(), &below, true),
            Some(above.clone())
        );
        put(&below, "freezer.state", "THAWED\n");
        assert_eq!(freezes(&ours, top.path(), &below, false), None);
        for state in ["FREEZING\n", "FROZEN\n"] {
            put(&below, "freezer.state", state);
            assert_eq!(
                freezes(&ours, top.path(), &below, false),
                Some(below.clone())
            );
        }
    }

    #[test]
    fn we_run() {
        assert_eq!(frozen(crate::Pid::own()), None);
        assert_eq!(frozen(Tid::MAX), None);
    }
}
