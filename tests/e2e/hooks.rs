//! The times at which each of a tool's hooks is called: for tools of every generation, for several
//! at once, at the first attach, at later ones, for tools that a later attach does not name, and at
//! the end of the process.

use midair_tests::caller::{Caller, between};
use midair_tests::lab::Lab;
use midair_tests::stage::{command, stage};
use midair_tests::target::{PATIENCE, Target};
use midair_tests::{Result, client};
use std::path::{Path, PathBuf};

/// Compiles a tool of a kind (see its source) that writes to `log`, which is a path as the target
/// sees it.
fn compile(lab: &Lab, log: &Path, name: &str, kind: u32) -> Result<PathBuf> {
    let (name_of, kind) = (format!("-DNAME=\"{name}\""), format!("-DKIND={kind}"));
    client::tool(lab, "hooks_tool", name, log, &[&name_of, &kind])
}

struct Sessions {
    caller: Caller,
    log: PathBuf,
}

impl Sessions {
    /// Runs one session with these tools. Returns the lines that the tools wrote, and how many HIP
    /// calls were made meanwhile.
    fn session(&mut self, lab: &Lab, tools: &str) -> Result<(Vec<String>, u64)> {
        let mut rocprof_attach = command("rocprof-attach")?;
        rocprof_attach
            .args(["-p", &self.caller.pid().to_string(), "-t", tools])
            .current_dir(lab.scratch());
        let mut attacher = Target::spawn(rocprof_attach)?;
        attacher.expect("Press Enter to detach...")?;
        let before = self.caller.counts()?;
        self.caller.tell("calls 3")?;
        let made = between(&before, &self.caller.counts()?, "hip");
        attacher.send("")?;
        attacher.wait(PATIENCE)?.success()?;
        Ok((self.lines()?, made.values().sum()))
    }
    /// Returns the tools' lines since the last call of this function.
    fn lines(&self) -> Result<Vec<String>> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        std::fs::write(&self.log, "")?;
        Ok(text.lines().map(str::to_owned).collect())
    }
}

fn of<'a>(lines: &'a [String], name: &str) -> Vec<&'a str> {
    lines
        .iter()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
        .collect()
}

#[test]
fn hooks_of_every_generation_are_called_in_order() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let log = lab.scratch().join("hooks.log");
    std::fs::write(&log, "")?;
    let alone = compile(&lab, &log, "alone", 0)?;
    let modern = compile(&lab, &log, "modern", 1)?;
    let first = compile(&lab, &log, "first", 2)?;
    // One tool is named by its bare name, which only the target's own loader finds.
    let dir = lab.scratch().join("there");
    std::fs::create_dir(&dir)?;
    compile(&lab, &log, "named", 1)?;
    std::fs::rename(lab.scratch().join("named.so"), dir.join("libnamed.so"))?;
    let caller = Caller::start(Caller::command(&lab)?.libs(&lab.inside(&dir)?))?;
    let mut sessions = Sessions { caller, log };

    // Every name of a list counts, also the last one.
    let all = [&alone, &modern, &first].map(|path| path.display().to_string());
    let all = format!("{}:libnamed.so", all.join(":"));
    let (lines, calls) = sessions.session(&lab, &all)?;
    assert!(calls > 0);
    let detached = format!("detach calls={calls}");
    // This tool has no hook for the detach. At its end it says how many calls it has seen, all of
    // them in this session.
    let ended = format!("alone fini calls={calls}");
    assert_eq!(of(&lines, "alone"), ["configure", "init"]);
    let whole = ["configure", "configure_attach", "init", "attach", &detached];
    assert_eq!(of(&lines, "modern"), whole);
    assert_eq!(of(&lines, "named"), whole);
    assert_eq!(
        of(&lines, "first"),
        ["configure_experimental", "init", &detached]
    );
    // All tools are initialised before the first of them is attached.
    let place = |line: &str| lines.iter().position(|it| it == line);
    assert!(place("named init") < place("modern attach"), "{lines:?}");

    // The next attach names only some of the tools. The others are not called, and none is
    // configured again.
    let (lines, calls) = sessions.session(&lab, &first.display().to_string())?;
    assert_eq!(
        lines,
        [
            "first reattach".to_owned(),
            format!("first detach calls={calls}")
        ]
    );
    let (lines, calls) = sessions.session(&lab, "libnamed.so")?;
    assert_eq!(
        lines,
        [
            "named attach".to_owned(),
            format!("named detach calls={calls}")
        ]
    );
    // The default tool is alone, under the attach library's own name. No tool of this test is notified
    // of the session.
    let rocattach = stage()?.join("lib/librocprofiler-sdk-rocattach.so.1");
    let (lines, _) = sessions.session(&lab, &rocattach.display().to_string())?;
    assert_eq!(lines, [""; 0]);

    // When the process exits, each tool is notified once, long after its detach.
    let log = sessions.log.clone();
    sessions.caller.quit()?;
    let text = std::fs::read_to_string(log)?;
    let mut ends: Vec<&str> = text.lines().collect();
    ends.sort_unstable();
    assert_eq!(
        ends,
        [ended.as_str(), "first fini", "modern fini", "named fini"]
    );
    Ok(())
}

#[test]
fn an_attached_tool_is_notified_when_the_process_exits() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let log = lab.scratch().join("hooks.log");
    std::fs::write(&log, "")?;
    let modern = compile(&lab, &log, "modern", 1)?;
    let mut caller = Caller::start(Caller::command(&lab)?)?;
    let mut rocprof_attach = command("rocprof-attach")?;
    rocprof_attach
        .args(["-p", &caller.pid().to_string(), "-t"])
        .arg(&modern)
        .current_dir(lab.scratch());
    let mut attacher = Target::spawn(rocprof_attach)?;
    attacher.expect("Press Enter to detach...")?;
    caller.tell("calls 3")?;
    caller.quit()?;
    attacher.wait(PATIENCE)?.success()?;
    let text = std::fs::read_to_string(&log)?;
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let lines = of(&lines, "modern");
    assert_eq!(lines.len(), 6, "{lines:?}");
    assert!(
        lines[4].starts_with("detach calls=") && lines[4] != "detach calls=0",
        "{lines:?}"
    );
    assert_eq!(lines[5], "fini");
    Ok(())
}

/// Installs our register library and SDK next to one another. Returns the directory as the target
/// sees it.
fn installed(lab: &Lab) -> Result<String> {
    let dir = lab.scratch().join("installed");
    std::fs::create_dir(&dir)?;
    for name in ["librocprofiler-register.so.0", "librocprofiler-sdk.so.1"] {
        std::fs::copy(stage()?.join("lib").join(name), dir.join(name))?;
    }
    lab.inside(&dir)
}

#[test]
fn each_attach_by_a_register_library_names_its_tools() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let log = lab.scratch().join("hooks.log");
    std::fs::write(&log, "")?;
    let (modern, first) = (
        lab.inside(&compile(&lab, &log, "modern", 1)?)?,
        lab.inside(&compile(&lab, &log, "first", 2)?)?,
    );
    let program = lab.program("attach_queues")?;
    let mut program = lab
        .run(&program)
        .arg(lab.kernels()?)
        .libs(&installed(&lab)?)
        .spawn()?;
    program.expect("ready")?;
    let mut tell = |words: &str, answer: &str, expected: &[&str]| -> Result<()> {
        program.send(words)?;
        assert_eq!(
            program.expect(words.split(' ').next().unwrap_or_default())?,
            answer
        );
        let text = std::fs::read_to_string(&log)?;
        std::fs::write(&log, "")?;
        assert_eq!(text.lines().collect::<Vec<_>>(), expected, "{words}");
        Ok(())
    };
    tell("detach", "detach 1", &[])?;
    tell("reattach", "reattach 9", &[])?;
    tell(
        &format!("attach {modern}:{first}"),
        "attach 0",
        &[
            "modern configure",
            "modern configure_attach",
            "modern init",
            "first configure_experimental",
            "first init",
            "modern attach",
        ],
    )?;
    tell(
        "detach",
        "detach 0",
        &["modern detach calls=0", "first detach calls=0"],
    )?;
    // The functions of the interface's first generation use the tools of the last attach.
    tell(
        "reattach",
        "reattach 0",
        &["modern attach", "first reattach"],
    )?;
    tell(
        "tell-detach",
        "tell-detach 0",
        &["modern detach calls=0", "first detach calls=0"],
    )?;
    // Other tools are named than last time, and only those are attached.
    tell(&format!("attach {first}"), "attach 0", &["first reattach"])?;
    // An attach during a session is refused and changes nothing.
    tell(&format!("attach {modern}"), "attach 6", &[])?;
    tell("detach", "detach 0", &["first detach calls=0"])?;
    tell("tell-reattach", "tell-reattach 0", &["first reattach"])?;
    tell("detach", "detach 0", &["first detach calls=0"])?;
    // A list with a file that is not a tool is refused, and does not hinder the next attach.
    tell(&format!("attach {modern}:/lab/topo"), "attach 6", &[])?;
    tell(&format!("attach {modern}"), "attach 0", &["modern attach"])?;
    tell("detach", "detach 0", &["modern detach calls=0"])?;
    program.send("quit")?;
    program.expect("done")?;
    program.target.wait(PATIENCE)?.success()?;
    let text = std::fs::read_to_string(&log)?;
    let mut ends: Vec<&str> = text.lines().collect();
    ends.sort_unstable();
    assert_eq!(ends, ["first fini", "modern fini"]);
    Ok(())
}

#[test]
fn a_process_that_is_started_with_tools_configures_each_of_them_and_attaches_none() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let log = lab.scratch().join("hooks.log");
    std::fs::write(&log, "")?;
    let tool =
        |name: &str, kind: u32| -> Result<String> { lab.inside(&compile(&lab, &log, name, kind)?) };
    let list = format!("{}:{}:libnowhere.so", tool("alone", 0)?, tool("modern", 1)?);
    let mine = tool("mine", 0)?;
    let mut caller = Caller::start(
        Caller::command(&lab)?
            .libs(&installed(&lab)?)
            .preload(&mine)
            .env("ROCP_TOOL_LIBRARIES", list),
    )?;
    caller.tell("calls 2")?;
    let made: u64 = caller
        .counts()?
        .iter()
        .filter(|(name, _)| name.starts_with("hip"))
        .map(|(_, count)| count)
        .sum();
    let text = std::fs::read_to_string(&log)?;
    let lines: Vec<&str> = text.lines().collect();
    let whole = [
        "alone configure",
        "alone init",
        "modern configure",
        "modern configure_attach",
        "modern init",
        "mine configure",
        "mine init",
    ];
    assert_eq!(lines, whole);
    caller.quit()?;
    let text = std::fs::read_to_string(&log)?;
    let mut ends: Vec<&str> = text.lines().skip(whole.len()).collect();
    ends.sort_unstable();
    // The tools that started their contexts had every call from the first on, including calls that
    // the program does not count.
    for (end, name) in ends.iter().zip(["alone", "mine"]) {
        let calls = end.strip_prefix(&format!("{name} fini calls="));
        let calls: u64 = calls.and_then(|word| word.parse().ok()).unwrap_or(0);
        assert!(made > 0 && calls >= made, "{end}: the program made {made}");
    }
    assert_eq!(ends[2..], ["modern fini"]);
    Ok(())
}
