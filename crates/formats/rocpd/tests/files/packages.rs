//! Databases that are gathered in a directory with an index.

use crate::common::{database, session};
use midair_rocpd::{Gather, Input, package};
use std::fs;
use std::path::{Path, PathBuf};

fn at(directory: &Path, name: &str, pid: u32) -> PathBuf {
    let directory = directory.join(name);
    fs::create_dir(&directory).unwrap();
    let file = database(&directory, &session(pid));
    let renamed = directory.join(format!("{pid}.db"));
    fs::rename(file, &renamed).unwrap();
    renamed
}

fn sessions(path: &Path) -> usize {
    Input::open(&[path.to_owned()]).unwrap().parts().len()
}

#[test]
fn an_index_stands_for_databases_where_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let all = [at(dir.path(), "a", 1), at(dir.path(), "b", 2)];
    let to = dir.path().join("run");
    let index = package(&all, Some(&to), Gather::No).unwrap();
    assert_eq!(index, dir.path().join("run.rpdb/index.yaml"));
    let text = fs::read_to_string(&index).unwrap();
    assert!(
        text.contains("    files:\n    - ../a/1.db\n    - ../b/2.db\n"),
        "{text}"
    );
    for path in [&index, &dir.path().join("run.rpdb")] {
        assert_eq!(sessions(path), 2);
    }
    // The index of a further one names all.
    let third = at(dir.path(), "c", 3);
    let more = package(
        &[dir.path().join("run.rpdb"), third],
        Some(&dir.path().join("more")),
        Gather::No,
    )
    .unwrap();
    assert_eq!(sessions(&more), 3);
}

#[test]
fn databases_are_copied_or_moved() {
    let dir = tempfile::tempdir().unwrap();
    let all = [at(dir.path(), "a", 1), at(dir.path(), "b", 2)];
    let copies = dir.path().join("copies.rpdb");
    package(&all, Some(&copies), Gather::Copy).unwrap();
    assert!(all.iter().all(|file| file.exists()));
    assert_eq!(
        fs::read(copies.join("1.db")).unwrap(),
        fs::read(&all[0]).unwrap()
    );
    let moved = dir.path().join("moved");
    package(&all, Some(&moved), Gather::Move).unwrap();
    assert!(all.iter().all(|file| !file.exists()));
    let moved = dir.path().join("moved.rpdb");
    assert_eq!((sessions(&copies), sessions(&moved)), (2, 2));
    // A database is added to those that are there, and none takes the place of another.
    let third = at(dir.path(), "c", 3);
    package(&[moved.clone(), third], Some(&moved), Gather::Move).unwrap();
    assert_eq!(sessions(&moved), 3);
    let other = at(dir.path(), "d", 1);
    let refused = package(std::slice::from_ref(&other), Some(&moved), Gather::Move).unwrap_err();
    assert!(
        refused.what.contains("another database of this name"),
        "{}",
        refused.what
    );
    assert!(other.exists() && sessions(&moved) == 3);
}
