//! An attacher with file capabilities does nothing that its user may not do.

use crate::environments::kit::{
    Attach, Program, Start, as_user, attacher, open_to_all, refusal, refused, works,
};
use midair_tests::snapshot::Snapshot;
use midair_tests::stage::stage;
use midair_tests::stand_in::Kit;
use midair_tests::target::{PATIENCE, Target, run};
use midair_tests::{Result, is_root_for};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

const SOMEBODY: u32 = 1000;
const OTHER: u32 = 1001;
const BOTH: &str = "cap_sys_ptrace,cap_dac_read_search+ep";

/// Copies the product and gives its command line these file capabilities.
fn with_capabilities(at: &Path, name: &str, capabilities: &str) -> Result<PathBuf> {
    let copy = at.join(name);
    let done = std::process::Command::new("cp")
        .arg("-a")
        .arg(stage()?)
        .arg(&copy)
        .status()?;
    assert!(done.success());
    let program = copy.join("bin/midair");
    let done = std::process::Command::new("setcap")
        .arg(capabilities)
        .arg(&program)
        .status()?;
    assert!(done.success(), "setcap");
    Ok(program)
}

fn may_give() -> Result<bool> {
    if !is_root_for("to give capabilities")? {
        return Ok(false);
    }
    let setcap = std::process::Command::new("setcap").arg("-h").output();
    if setcap.is_err() {
        midair_tests::leave_out("setcap (libcap2-bin) is not there")?;
    }
    Ok(setcap.is_ok())
}

/// Makes a directory to which no other user may write. A program with more rights than its user
/// loads its libraries from no other place.
fn safe() -> Result<tempfile::TempDir> {
    Ok(tempfile::Builder::new()
        .prefix("midair-test-")
        .permissions(PermissionsExt::from_mode(0o755))
        .tempdir_in("/opt")?)
}

/// Starts a program of this user: the one who may attach, or another. Before Linux 6.16 programs of
/// root are refused (ENG-070).
fn of(user: u32, kit: &Kit) -> Result<Program> {
    let start = Start {
        before: as_user(user),
        ..Start::default()
    };
    Program::start(kit, &format!("of-{user}"), start)
}

#[test]
fn an_attacher_with_file_capabilities() -> Result<()> {
    if !may_give()? {
        return Ok(());
    }
    let kit = Kit::new()?;
    let mut his = of(SOMEBODY, &kit)?;
    let mut others = of(OTHER, &kit)?;
    let attach = |path: PathBuf| Attach {
        before: as_user(SOMEBODY),
        program: Some(path),
        ..Attach::default()
    };
    let safe = safe()?;
    // The attacher itself is not dumpable: its files in /proc belong to root.
    let one = attach(with_capabilities(safe.path(), "one", "cap_sys_ptrace+ep")?);
    works(&mut his, &one, "CAP_SYS_PTRACE, his own")?;
    refused(&others, &one, 11, "but not CAP_DAC_READ_SEARCH")?;
    let exit = refusal(&others, &one)?;
    assert!(
        exit.stderr
            .join("\n")
            .contains("setcap cap_sys_ptrace,cap_dac_read_search+ep"),
        "{exit}"
    );
    let both = attach(with_capabilities(safe.path(), "both", BOTH)?);
    works(&mut others, &both, "both, another's")?;
    works(&mut his, &both, "both, his own")?;
    // An attacher without any capability.
    let none = attach(stage()?.join("bin/midair"));
    works(&mut his, &none, "none, his own")?;
    refused(
        &others,
        &none,
        11,
        "it belongs to user 1001, and midair runs as user 1000",
    )?;
    his.quit()?;
    others.quit()
}

/// Root of a container by default: no CAP_SYS_PTRACE. To become root is no remedy.
#[test]
fn root_without_the_right_to_trace_learns_how_to_get_it() -> Result<()> {
    if !is_root_for("to start a program of another user")? {
        return Ok(());
    }
    let kit = Kit::new()?;
    let his = of(SOMEBODY, &kit)?;
    let pid = his.pid.to_string();
    let commands: [&[&str]; 7] = [
        &["attach", &pid],
        &["top", "--once", &pid],
        &["why", &pid],
        &["doctor", &pid],
        &["doctor"],
        &["ps"],
        &["ps", "--all", "--json"],
    ];
    for words in commands {
        let mut contained = std::process::Command::new("setpriv");
        contained
            .args(["--bounding-set", "-sys_ptrace"])
            .arg(stage()?.join("bin/midair"))
            .args(words)
            .current_dir(kit.scratch());
        let exit = run(contained, PATIENCE)?;
        let said = format!("{exit}");
        assert!(said.contains("--cap-add SYS_PTRACE"), "{words:?}: {said}");
        assert!(!said.contains("as root;"), "{words:?}: {said}");
        assert!(!said.contains("or as root"), "{words:?}: {said}");
        let refused = words.contains(&pid.as_str());
        assert_eq!(exit.status.code() == Some(11), refused, "{words:?}: {said}");
    }
    his.quit()
}

/// Otherwise the user could read any file through the tool, out of a process of their own.
#[test]
fn a_tool_that_its_user_may_not_read_is_not_sent() -> Result<()> {
    if !may_give()? {
        return Ok(());
    }
    let kit = Kit::new()?;
    let mut his = of(SOMEBODY, &kit)?;
    let others = of(OTHER, &kit)?;
    let safe = safe()?;
    let midair = with_capabilities(safe.path(), "both", BOTH)?;
    let place = |name: &str, folder: u32, file: u32| -> Result<PathBuf> {
        let folder_of = safe.path().join(name);
        std::fs::create_dir(&folder_of)?;
        let path = folder_of.join("tool.so");
        std::fs::copy(
            stage()?.join("lib/rocprofiler-sdk/librocprofiler-sdk-tool.so.1"),
            &path,
        )?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(file))?;
        std::fs::set_permissions(&folder_of, PermissionsExt::from_mode(folder))?;
        Ok(path)
    };
    let with = |tool: &Path| {
        let mut before = as_user(SOMEBODY);
        before.push("env".to_owned());
        before.push(format!("ROCPROF_ATTACH_TOOL_LIBRARY={}", tool.display()));
        Attach {
            before,
            program: Some(midair.clone()),
            ..Attach::default()
        }
    };
    let (closed, hidden) = (
        place("closed", 0o755, 0o600)?,
        place("hidden", 0o700, 0o644)?,
    );
    refused(&his, &with(&closed), 20, "cannot read the tool")?;
    refused(&his, &with(&hidden), 2, "is not a file")?;
    // A process with more rights than the user gets no library of the user.
    let own = kit.scratch().join("own.so");
    std::fs::copy(&closed, &own)?;
    std::fs::set_permissions(&own, PermissionsExt::from_mode(0o755))?;
    refused(&others, &with(&own), 11, "it runs as user 1001")?;
    works(&mut his, &with(&own), "a tool of his own")?;
    his.quit()?;
    others.quit()
}

/// The attacher does not write what its user may not write, even when the directory was replaced by
/// another one after the attach.
#[test]
fn results_are_written_as_its_user() -> Result<()> {
    if !may_give()? {
        return Ok(());
    }
    let kit = Kit::new()?;
    let mut his = of(SOMEBODY, &kit)?;
    let safe = safe()?;
    let midair = with_capabilities(safe.path(), "both", BOTH)?;
    let roots = safe.path().join("results");
    std::fs::create_dir(&roots)?;
    let aims: [&[&str]; 3] = [&[], &["--tree"], &["--merge", "--tree"]];
    for aim in aims {
        let attach = Attach {
            before: as_user(SOMEBODY),
            program: Some(midair.clone()),
            aim: aim.iter().map(ToString::to_string).collect(),
            ..Attach::default()
        };
        let before = Snapshot::take(his.pid)?;
        let exit = run(attacher(&his, &attach, &roots)?, PATIENCE)?;
        assert_eq!(exit.status.code(), Some(33), "{aim:?}: {exit}");
        let diff = before.diff(&Snapshot::take(his.pid)?).without_heap();
        assert!(diff.is_empty(), "{aim:?}: {diff}");

        let link = kit.scratch().join("link");
        let own = tempfile::tempdir_in(kit.scratch())?;
        open_to_all(own.path())?;
        std::os::unix::fs::symlink(own.path(), &link)?;
        std::os::unix::fs::lchown(&link, Some(SOMEBODY), None)?;
        let mut session = Target::spawn(attacher(&his, &attach, &link)?)?;
        session.expect_error("attached to process")?;
        his.ask("work 1")?;
        std::fs::remove_file(&link)?;
        std::os::unix::fs::symlink(&roots, &link)?;
        std::os::unix::fs::lchown(&link, Some(SOMEBODY), None)?;
        session.send("")?;
        let exit = session.wait(PATIENCE)?;
        std::fs::remove_file(&link)?;
        assert_eq!(exit.status.code(), Some(33), "{aim:?}: {exit}");
        let left: Vec<_> = std::fs::read_dir(&roots)?.collect();
        assert!(left.is_empty(), "{aim:?}: {left:?}");
        let saved = exit
            .stderr
            .iter()
            .find_map(|line| {
                let (_, rest) = line.split_once("the results were saved in ")?;
                rest.strip_suffix(" instead")
            })
            .ok_or_else(|| format!("{aim:?}: {exit}"))?;
        for file in std::fs::read_dir(saved)? {
            assert_eq!(file?.metadata()?.uid(), SOMEBODY, "{aim:?}: {saved}");
        }
        std::fs::remove_dir_all(saved)?;
        crate::environments::kit::settled(&his)?;
    }
    // The same holds for manual pages.
    let mut man = std::process::Command::new("setpriv");
    man.args(&as_user(SOMEBODY)[1..])
        .arg(&midair)
        .args(["man", "--directory"])
        .arg(&roots);
    let exit = run(man, PATIENCE)?;
    assert_eq!(exit.status.code(), Some(33), "{exit}");
    assert!(std::fs::read_dir(&roots)?.next().is_none());
    his.quit()
}
