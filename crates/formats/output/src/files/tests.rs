use super::directory::our_uid;
use super::pending::{is_taken, rename_apart, unnamed};
use super::*;
use std::fs::OpenOptions;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt;

fn entries(path: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(path)
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn what_cannot_be_written_is_known_before() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fs::write(here.join("file"), "").unwrap();
    for good in ["", "new/and/newer", "./new"] {
        probe(&here.join(good), "r").unwrap();
        let prefix = Path::new(good).join("r");
        probe(here, prefix.to_str().unwrap()).unwrap();
    }
    for (bad, prefix) in [
        (here.join("file"), "r".to_owned()),
        (here.join("file/below"), "r".to_owned()),
        (here.to_path_buf(), "file/r".to_owned()),
        (here.to_path_buf(), "r".repeat(240)),
        (here.join("d".repeat(300)), "r".to_owned()),
        ("/proc/no/such".into(), "r".to_owned()),
    ] {
        let said = probe(&bad, &prefix).unwrap_err().to_string();
        assert!(said.starts_with("cannot write "), "{said}");
    }
    assert_eq!(entries(here), ["file"]);
}

#[test]
fn files_appear_together_with_mode_0600_and_replace_older_ones() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("r_b.csv"), "old").unwrap();
    let mut files = FileSet::new(directory.path(), "r").unwrap();
    for suffix in ["a.csv", "b.csv"] {
        let mut file = files.create(suffix).unwrap();
        file.put(b"new").unwrap();
        files.add(file).unwrap();
    }
    assert_eq!(fs::read(directory.path().join("r_b.csv")).unwrap(), b"old");
    let paths = files.commit().unwrap();
    assert_eq!(entries(directory.path()), ["r_a.csv", "r_b.csv"]);
    for path in paths {
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }
}

/// A link at a result's own name is replaced, not followed.
#[test]
fn a_link_at_the_final_name_is_not_followed() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("precious"), "mine").unwrap();
    std::os::unix::fs::symlink(at("precious"), at("r_a.csv")).unwrap();
    let mut files = FileSet::new(directory.path(), "r").unwrap();
    let mut file = files.create("a.csv").unwrap();
    file.put(b"new").unwrap();
    files.add(file).unwrap();
    files.commit().unwrap();
    assert_eq!(fs::read(at("precious")).unwrap(), b"mine");
    assert!(fs::symlink_metadata(at("r_a.csv")).unwrap().is_file());
}

#[test]
fn a_link_of_ours_is_a_way_and_one_that_is_planted_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("there")).unwrap();
    std::os::unix::fs::symlink(at("there"), at("link")).unwrap();
    probe(&at("link/new"), "r").unwrap();
    FileSet::new(&at("link/new"), "r").unwrap();
    // Only root can make one that belongs to another user.
    if our_uid() == 0 {
        std::os::unix::fs::lchown(at("link"), Some(1000), None).unwrap();
        for path in [at("link"), at("link/new/and/newer")] {
            let said = probe(&path, "r").unwrap_err().to_string();
            assert!(said.contains("user 1000"), "{said}");
            assert!(FileSet::new(&path, "r").is_err());
        }
        assert_eq!(entries(&at("there")), ["new"]);
    }
}

#[test]
fn prefixes_may_have_directories_and_may_be_empty() {
    let directory = tempfile::tempdir().unwrap();
    for (prefix, wanted) in [
        ("", "x.csv"),
        ("sub/", "sub/x.csv"),
        ("sub/deep/r", "sub/deep/r_x.csv"),
        ("..", ".._x.csv"),
    ] {
        let mut files = FileSet::new(directory.path(), prefix).unwrap();
        let file = files.create("x.csv").unwrap();
        files.add(file).unwrap();
        assert_eq!(files.commit().unwrap(), [directory.path().join(wanted)]);
    }
    let elsewhere = directory.path().join("absolute/r");
    let files = FileSet::new(Path::new("/nowhere"), elsewhere.to_str().unwrap()).unwrap();
    assert_eq!(files.directory.path(), directory.path().join("absolute"));
}

#[test]
fn nothing_stays_of_what_was_not_committed() {
    let directory = tempfile::tempdir().unwrap();
    let mut files = FileSet::new(directory.path(), "sub/r").unwrap();
    let done = files.create("done.csv").unwrap();
    files.add(done).unwrap();
    let open = files.create("open.csv").unwrap();
    let sub = directory.path().join("sub");
    let hidden = format!(".midair-{}.tmp", our_uid());
    assert_eq!(entries(&sub), [hidden.as_str()]);
    assert!(entries(&sub.join(&hidden)).is_empty());
    let reserved = files.reserve("open.db").unwrap();
    assert_eq!(entries(&sub), [hidden.as_str()]);
    let place = reserved.temporary().parent().unwrap().canonicalize();
    assert_eq!(place.unwrap(), sub.join(&hidden).canonicalize().unwrap());
    drop((files, open, reserved));
    assert!(entries(&directory.path().join("sub")).is_empty());
}

/// This is the way on file systems that have no files without names.
#[test]
fn a_file_with_a_temporary_name_gets_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let mut files = FileSet::new(directory.path(), "r").unwrap();
    for suffix in ["new.db", "old.db"] {
        let file = files.reserve(suffix).unwrap();
        fs::write(file.temporary(), "db").unwrap();
        files.add_reserved(file);
    }
    fs::write(directory.path().join("r_old.db"), "old").unwrap();
    files.commit().unwrap();
    assert_eq!(entries(directory.path()), ["r_new.db", "r_old.db"]);
    let whole = fs::read(directory.path().join("r_old.db")).unwrap();
    assert_eq!(whole, b"db");
}

/// Starts files and dies. `a_process_that_is_killed_leaves_nothing_for_long` starts it.
#[test]
#[ignore = "dies by a signal: a_process_that_is_killed_leaves_nothing_for_long starts it"]
fn within_a_process_that_is_killed() {
    let directory = std::env::var("MIDAIR_DIES_IN").unwrap();
    let mut files = FileSet::new(Path::new(&directory), "r").unwrap();
    let mut done = files.create("done.csv").unwrap();
    done.put(b"x").unwrap();
    files.add(done).unwrap();
    let _open = files.create("open.csv").unwrap();
    let _reserved = files.reserve("results.db").unwrap();
    nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL).unwrap();
}

#[test]
fn a_process_that_is_killed_leaves_nothing_for_long() {
    let directory = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "--test-threads=1"])
        .arg("files::tests::within_a_process_that_is_killed")
        .env("MIDAIR_DIES_IN", directory.path())
        .output()
        .unwrap();
    let signal = std::os::unix::process::ExitStatusExt::signal(&output.status);
    assert_eq!(signal, Some(9), "{output:?}");
    // A file without a name is gone already, where the file system has such files.
    let hidden = format!(".midair-{}.tmp", our_uid());
    assert_eq!(entries(directory.path()), [hidden.as_str()]);
    let left = entries(&directory.path().join(hidden));
    let unnamed_work = unnamed(directory.path()).is_ok();
    assert!(left.iter().all(|name| name.ends_with(".tmp")), "{left:?}");
    assert_eq!(left.len(), if unnamed_work { 1 } else { 3 }, "{left:?}");
    let another = FileSet::new(directory.path(), "another").unwrap();
    another.reserve("results.db").unwrap();
    drop(another);
    assert!(entries(directory.path()).is_empty());
}

/// Writes are buffered, so a full disk is noticed at the flush.
#[test]
fn a_full_device_is_an_error_with_the_files_name() {
    let directory = tempfile::tempdir().unwrap();
    let mut files = FileSet::new(directory.path(), "r").unwrap();
    let mut file = files.create("full.csv").unwrap();
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    file.writer = BufWriter::new(full);
    file.put(b"x").unwrap();
    let error = files.add(file).unwrap_err();
    drop(files);
    assert!(
        error.to_string().contains("r_full.csv") && error.to_string().contains("No space"),
        "{error}"
    );
    assert!(entries(directory.path()).is_empty());
}

/// Returns the files of a result with these contents, which gets a name of its own.
fn own(directory: &Path, suffixes: &[&str], content: &str) -> (FileSet, String) {
    let all: Vec<String> = ["a.csv", "b.csv", "results"].map(str::to_owned).into();
    let suffixes_known = Suffixes {
        likely: vec!["a.csv".to_owned()],
        all,
    };
    let (mut files, _, prefix) =
        FileSet::of_its_own(directory, (Numbering::FromTwo, "r"), 1, &suffixes_known).unwrap();
    for suffix in suffixes {
        let mut file = files.create(suffix).unwrap();
        file.put(content.as_bytes()).unwrap();
        files.add(file).unwrap();
    }
    (files, prefix)
}

/// Both look for a name before one of them has its files.
#[test]
fn two_results_at_once_have_names_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let (first, name) = own(at, &["a.csv"], "1");
    let (second, other) = own(at, &["b.csv"], "2");
    assert_eq!((name.as_str(), other.as_str()), ("r", "r-2"));
    second.commit().unwrap();
    first.commit().unwrap();
    assert_eq!(entries(at), ["r-2_b.csv", "r_a.csv"]);
    // A third format has no file of the others' names, and still gets a number of its own.
    let (third, name) = own(at, &["results"], "3");
    assert_eq!(name, "r-3");
    drop(third);
    let (again, name) = own(at, &["a.csv"], "4");
    assert_eq!(name, "r-3");
    again.commit().unwrap();
    assert_eq!(entries(at), ["r-2_b.csv", "r-3_a.csv", "r_a.csv"]);
}

/// This is what another user's session does, whose claims are not seen.
#[test]
fn a_file_that_appears_meanwhile_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    for named_later in [true, false] {
        let (mut files, _) = own(at, &["a.csv"], "mine");
        files.named_later &= named_later;
        let file = files.create("b.csv").unwrap();
        files.add(file).unwrap();
        let archive = files.folder().archive("results").unwrap();
        archive.create("0.evt").unwrap().put(b"x").unwrap();
        files.add_archive(archive);
        fs::write(at.join("r_b.csv"), "theirs").unwrap();
        let error = files.commit().unwrap_err();
        assert!(error.is_taken(), "{error}");
        assert_eq!(entries(at), ["r_b.csv"]);
        assert_eq!(fs::read(at.join("r_b.csv")).unwrap(), b"theirs");
        fs::remove_file(at.join("r_b.csv")).unwrap();

        let (mut files, _) = own(at, &[], "");
        let archive = files.folder().archive("results").unwrap();
        archive.create("0.evt").unwrap().put(b"x").unwrap();
        files.add_archive(archive);
        fs::create_dir(at.join("r_results")).unwrap();
        assert!(files.commit().unwrap_err().is_taken());
        fs::remove_dir(at.join("r_results")).unwrap();
        assert!(entries(at).is_empty());
    }
}

#[test]
fn a_rename_to_a_name_of_its_own_replaces_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("from"), "new").unwrap();
    fs::write(at("to"), "old").unwrap();
    assert!(is_taken(&rename_apart(&at("from"), &at("to")).unwrap_err()));
    assert_eq!(fs::read(at("to")).unwrap(), b"old");
    fs::remove_file(at("to")).unwrap();
    rename_apart(&at("from"), &at("to")).unwrap();
    assert_eq!(entries(directory.path()), ["to"]);
}

#[test]
fn a_name_taken_by_a_directory_is_refused_and_cleaned_up() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("r_a.csv")).unwrap();
    let mut files = FileSet::new(directory.path(), "r").unwrap();
    let file = files.create("a.csv").unwrap();
    files.add(file).unwrap();
    let error = files.commit().unwrap_err();
    assert!(error.to_string().contains("r_a.csv"), "{error}");
    assert_eq!(entries(directory.path()), ["r_a.csv"]);
}

#[test]
fn an_error_shows_no_more_of_a_path_than_fits_on_a_line() {
    let fits = "ä".repeat(160);
    assert_eq!(shortened(Path::new(&fits)), Path::new(&fits));
    let long = format!("{fits}x");
    assert_eq!(shortened(Path::new(&long)), Path::new(&format!("{fits}…")));
}

#[test]
fn our_user_owns_what_we_make() {
    let file = tempfile::tempfile().unwrap();
    assert_eq!(our_uid(), file.metadata().unwrap().uid());
}
