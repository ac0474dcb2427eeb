//! Other roots and mounts, such as a container's file system may have.

use crate::environments::kit::{Attach, Program, Start, open_to_all, refused, words, works};
use midair_tests::compile::host_program;
use midair_tests::stage::stage;
use midair_tests::stand_in::Kit;
use midair_tests::{Result, is_root_for};
use std::path::Path;

/// Makes a root with the program and the libraries that it needs. It has nothing of midair's, no tools
/// and no shell.
fn make_root(kit: &Kit, at: &Path) -> Result<()> {
    for folder in ["lib64", "lib/x86_64-linux-gnu", "app", "proc", "tmp", "old"] {
        std::fs::create_dir_all(at.join(folder))?;
    }
    std::fs::copy(
        "/lib64/ld-linux-x86-64.so.2",
        at.join("lib64/ld-linux-x86-64.so.2"),
    )?;
    for library in ["libc.so.6", "libm.so.6", "libgcc_s.so.1"] {
        let from = Path::new("/lib/x86_64-linux-gnu").join(library);
        std::fs::copy(from, at.join("lib/x86_64-linux-gnu").join(library))?;
    }
    for file in ["libamdhip64.so.7", "libhsa-runtime64.so.1"] {
        std::fs::copy(kit.dir().join(file), at.join("app").join(file))?;
    }
    std::fs::copy(kit.program("two_gpus")?, at.join("app/two_gpus"))?;
    for path in ["", "app", "app/two_gpus", "tmp"] {
        open_to_all(&at.join(path))?;
    }
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .arg(kit.dir().join("topology"))
        .arg(at.join("app/topology"))
        .status()?;
    assert!(copied.success());
    Ok(())
}

/// Returns how to start the program in a root. `words` are arguments of the jail, and `before`
/// comes before the jail.
fn jailed(root: &Path, words: &[String], before: &[&str], children: usize) -> Result<Start> {
    let mut all: Vec<String> = before.iter().map(ToString::to_string).collect();
    all.push(host_program("jail")?.display().to_string());
    all.push(root.display().to_string());
    all.extend(words.iter().cloned());
    all.push("--".to_owned());
    Ok(Start {
        before: all,
        program: Some("/app/two_gpus".into()),
        environment: vec![
            ("HSA_MODEL_TOPOLOGY".to_owned(), "/app/topology".into()),
            ("LD_LIBRARY_PATH".to_owned(), "/app".into()),
            ("MODEL_LOG".to_owned(), "".into()),
        ],
        children,
        ..Start::default()
    })
}

#[test]
fn roots_that_have_nothing_of_ours() -> Result<()> {
    if !is_root_for("to make mounts")? {
        return Ok(());
    }
    let kit = Kit::new()?;
    let root = kit.scratch().join("root");
    make_root(&kit, &root)?;
    let pid_namespace = ["unshare", "-pf"];
    let container = ["unshare", "-U", "-r", "-n", "-u", "-i", "-pf"];
    let cases: [(&[&str], &[&str]); 4] = [
        (&["proc"], &[]),
        (&["proc", "noexec", "ro"], &pid_namespace),
        (&["hidepid"], &pid_namespace),
        (&["proc"], &container),
    ];
    for (mounts, before) in cases {
        let name = format!("{} in {}", mounts.join(" "), before.join(" "));
        let children = usize::from(!before.is_empty());
        let start = jailed(&root, &words(mounts), before, children)?;
        let mut program = Program::start(&kit, &name, start)?;
        assert!(
            !Path::new(&format!("/proc/{}/root{}", program.pid, stage()?.display())).exists(),
            "our files are to be seen in there"
        );
        works(&mut program, &Attach::default(), &name)?;
        program.quit()?;
    }
    Ok(())
}

/// An overlay as container engines make it: some libraries come from the lower layer, and one was
/// copied up.
#[test]
fn an_overlay() -> Result<()> {
    if !is_root_for("to make mounts")? {
        return Ok(());
    }
    let kit = Kit::new()?;
    let at = |name: &str| kit.scratch().join(name);
    let (lower, merged) = (at("lower"), at("merged"));
    make_root(&kit, &lower)?;
    for folder in ["upper/lib/x86_64-linux-gnu", "work", "merged"] {
        std::fs::create_dir_all(at(folder))?;
    }
    let copied_up = "lib/x86_64-linux-gnu/libc.so.6";
    std::fs::copy(lower.join(copied_up), at("upper").join(copied_up))?;
    let overlay = [&lower, &at("upper"), &at("work")].map(|path| path.display().to_string());
    let mounts = vec![format!("overlay:{}", overlay.join(":")), "proc".to_owned()];
    let start = jailed(&merged, &mounts, &["unshare", "-pf"], 1)?;
    let mut program = Program::start(&kit, "overlay", start)?;
    works(&mut program, &Attach::default(), "overlay")?;
    program.quit()
}

#[test]
fn a_process_that_does_not_see_itself_in_proc() -> Result<()> {
    if !is_root_for("to make mounts")? {
        return Ok(());
    }
    let kit = Kit::new()?;
    let root = kit.scratch().join("root");
    make_root(&kit, &root)?;
    let program = Program::start(&kit, "none", jailed(&root, &[], &[], 0)?)?;
    refused(
        &program,
        &Attach::default(),
        24,
        "none is mounted in its root",
    )?;
    program.quit()?;

    // The attacher is in the mounts of a container, but not in the container's pid namespace.
    let container = Program::start(
        &kit,
        "container",
        jailed(&root, &words(&["proc"]), &["unshare", "-pf"], 1)?,
    )?;
    let pid = container.pid.to_string();
    let visitor = Start {
        before: words(&["nsenter", "-t", &pid, "-m"]),
        program: Some("/app/two_gpus".into()),
        environment: vec![
            ("HSA_MODEL_TOPOLOGY".to_owned(), "/app/topology".into()),
            ("LD_LIBRARY_PATH".to_owned(), "/app".into()),
            ("MODEL_LOG".to_owned(), "".into()),
        ],
        ..Start::default()
    };
    let visitor = Program::start(&kit, "visitor", visitor)?;
    refused(&visitor, &Attach::default(), 24, "of another pid namespace")?;
    visitor.quit()?;
    container.quit()
}

/// `vm.memfd_noexec` applies to the process that makes the memory files, which is the attacher.
#[test]
fn memory_files_that_may_not_be_executable() -> Result<()> {
    if !is_root_for("to make namespaces")? {
        return Ok(());
    }
    if !Path::new("/proc/sys/vm/memfd_noexec").exists() {
        return midair_tests::leave_out("this kernel has no vm.memfd_noexec");
    }
    let kit = Kit::new()?;
    let start = Start {
        before: words(&["unshare", "-m", "-pf", "--mount-proc"]),
        children: 1,
        ..Start::default()
    };
    let mut program = Program::start(&kit, "target", start)?;
    for value in ["1", "2"] {
        let script = format!("echo {value} > /proc/sys/vm/memfd_noexec && exec \"$@\"");
        let attach = Attach {
            before: words(&[
                "nsenter",
                "-t",
                &program.pid.to_string(),
                "-m",
                "-p",
                "sh",
                "-c",
                &script,
                "sh",
            ]),
            pid: Some(program.pid_inside()?),
            ..Attach::default()
        };
        works(&mut program, &attach, &format!("vm.memfd_noexec {value}"))?;
    }
    program.quit()
}
