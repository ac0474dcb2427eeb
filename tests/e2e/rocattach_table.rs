//! The attach helper under AMD's register library and under ours, in a program on AMD's real
//! runtime. A foreign SDK (written by us in C) comes late and learns from the helper's table what
//! was there before.

use midair_tests::Result;
use midair_tests::lab::{Lab, LabTarget};
use midair_tests::modellog::{Event, ModelLog};
use midair_tests::stage::stage;
use midair_tests::target::PATIENCE;
use std::path::{Path, PathBuf};

/// Makes a directory of the lab with the helper and the SDK. It also has our register library, or
/// none so that AMD's is found.
fn libraries(lab: &Lab, ours: bool) -> Result<String> {
    let dir = lab.scratch().join(if ours { "ours" } else { "amds" });
    std::fs::create_dir(&dir)?;
    let from = stage()?.join("lib");
    let put = |file: &Path, name: &str| -> Result<()> {
        std::fs::copy(file, dir.join(name))?;
        Ok(())
    };
    for name in [
        "librocprofiler-sdk-attach.so",
        "librocprofiler-sdk-attach.so.1",
    ] {
        put(&from.join(name), name)?;
    }
    let sdk = lab.library("attach_sdk", "librocprofiler-sdk.so.1")?;
    let sdk = lab.outside(&sdk).join("librocprofiler-sdk.so.1");
    put(&sdk, "librocprofiler-sdk.so.1")?;
    put(&sdk, "librocprofiler-sdk.so")?;
    if ours {
        put(
            &from.join("librocprofiler-register.so.0"),
            "librocprofiler-register.so.0",
        )?;
    }
    lab.inside(&dir)
}

struct Program {
    target: LabTarget,
    log: PathBuf,
}

impl Program {
    fn start(lab: &Lab, ours: bool, more: &[(&str, &str)]) -> Result<Program> {
        let libs = libraries(lab, ours)?;
        let log = lab.scratch().join("probe.log");
        let (program, kernels) = (lab.program("attach_queues")?, lab.kernels()?);
        let mut command = lab
            .run(&program)
            .arg(kernels)
            .libs(&libs)
            .env("PROBE_LOG", lab.inside(&log)?)
            .env("ROCP_TOOL_ATTACH", 1);
        for (name, value) in more {
            command = command.env(name, value);
        }
        let mut target = command.spawn()?;
        target.expect("ready")?;
        Ok(Program { target, log })
    }
    fn tell(&mut self, words: &str) -> Result<String> {
        self.target.send(words)?;
        self.target
            .expect(words.split(' ').next().unwrap_or_default())
    }
    /// Returns the SDK's notes since the last call.
    fn notes(&self) -> Result<Vec<String>> {
        let text = std::fs::read_to_string(&self.log)?;
        std::fs::write(&self.log, "")?;
        Ok(text.lines().map(str::to_owned).collect())
    }
    fn quit(mut self) -> Result<ModelLog> {
        self.target.send("quit")?;
        self.target.expect("done")?;
        let log = self.target.model_log()?;
        log.check()?;
        self.target.target.wait(PATIENCE)?.success()?;
        Ok(log)
    }
}

/// Returns how many dispatches of a grid, and how many barriers, the device has processed.
fn passed(log: &ModelLog, grid: u32) -> (usize, usize) {
    let barriers = log
        .records
        .iter()
        .filter(|record| matches!(record.event, Event::Barrier { .. }));
    (
        log.dispatches().filter(|d| d.grid[0] == grid).count(),
        barriers.count(),
    )
}

/// Checks that earlier queues are reported. Queues made from then on can be intercepted, and older
/// ones are refused.
fn late(ours: bool) -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut program = Program::start(&lab, ours, &[])?;
    // There is one listener, and it blocks every signal that can be blocked. The C library keeps
    // two signals to itself.
    let mut listeners = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{}/task", program.target.pid()))?.flatten() {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        if read("comm").trim_end() == "rocp-bg-attach" {
            let status = read("status");
            let blocked = status
                .lines()
                .find_map(|line| line.strip_prefix("SigBlk:\t"));
            listeners.push(blocked.unwrap_or_default().to_owned());
        }
    }
    assert_eq!(listeners, ["fffffffe7ffbfeff"]);

    program.tell("old 3")?;
    assert_eq!(program.tell("attach")?, "attach 0");
    let notes = program.notes()?;
    let table = |notes: &[String], name: &str| {
        notes
            .iter()
            .position(|note| note.starts_with(&format!("set_api_table {name} ")))
    };
    let (rocattach, hsa) = (table(&notes, "rocattach"), table(&notes, "hsa"));
    assert!(rocattach.is_some() && rocattach < hsa, "{notes:?}");
    assert!(
        notes.contains(&"set_api_table rocattach 10201 0 1".to_owned()),
        "{notes:?}"
    );
    // There is one queue of the program and one code object. The runtime makes its own without the
    // table.
    let attached = "attach size=96 version=10201 active=1 failed=0 queues=1 told=1 refused=1 accepted=0 objects=1";
    let bytes = std::fs::metadata(lab.outside(&lab.kernels()?))?.len();
    assert_eq!(notes.last(), Some(&format!("{attached} bytes={bytes}")));

    program.tell("old 5")?;
    program.tell("new")?;
    program.tell("young 20")?;
    program.tell("load")?;
    program.tell("unload")?;
    assert_eq!(program.tell("detach")?, "detach 0");
    let notes = program.notes()?;
    assert_eq!(
        notes,
        [
            "object goes",
            "detach failed=0 told=2 refused=1 accepted=1 objects=2 kernels=20 again=19"
        ]
    );
    // When no tool asks for interception, a new queue is a plain one. The queue that was
    // intercepted before passes packets on.
    program.tell("young 4")?;
    program.tell("drop")?;
    program.tell("new")?;
    program.tell("young 2")?;
    assert_eq!(program.notes()?, [""; 0]);
    // At another attach, everything that exists is reported again.
    assert_eq!(program.tell("attach")?, "attach 0");
    let both = attached.replace("queues=1 told=1 refused=1", "queues=2 told=2 refused=2");
    assert_eq!(program.notes()?, [format!("{both} bytes={bytes}")]);
    program.tell("drop")?;
    assert_eq!(program.tell("detach")?, "detach 0");
    assert_eq!(program.notes()?[0], "queue goes");
    let log = program.quit()?;
    assert_eq!(passed(&log, 1000).0, 8);
    let (kernels, barriers) = passed(&log, 2000);
    assert_eq!(kernels, 26, "every dispatch ran once");
    // The SDK's interceptor stays on its queue after the detach, since the SDK did not take it
    // away. The program waits for its own kernels only, so the packet behind the last one may go
    // with the queue.
    assert!(
        (23..=24).contains(&barriers),
        "the SDK's own packets reached the device: {barriers}"
    );
    Ok(())
}

#[test]
fn a_late_sdk_learns_of_earlier_queues_under_our_register() -> Result<()> {
    late(true)
}

#[test]
fn a_late_sdk_learns_of_earlier_queues_under_amds_register() -> Result<()> {
    late(false)
}

#[test]
fn queues_are_intercepted_from_their_creation_on_request() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let all = [("ROCPROFILER_REGISTER_ATTACHMENT_QUEUES_ENABLED", "1")];
    let mut program = Program::start(&lab, true, &all)?;
    program.tell("old 3")?;
    assert_eq!(program.tell("attach")?, "attach 0");
    let notes = program.notes()?;
    let attached = "attach size=96 version=10201 active=1 failed=0 queues=1 told=1 refused=0 accepted=1 objects=1 ";
    assert!(
        notes.last().is_some_and(|note| note.starts_with(attached)),
        "{notes:?}"
    );
    program.tell("old 7")?;
    assert_eq!(program.tell("detach")?, "detach 0");
    let notes = program.notes()?;
    assert!(notes[0].contains(" kernels=7 "), "{notes:?}");
    let log = program.quit()?;
    // As above: the packet behind the last kernel may go with the queue.
    let (kernels, barriers) = passed(&log, 1000);
    assert!(
        kernels == 10 && (6..=7).contains(&barriers),
        "{kernels} {barriers}"
    );
    Ok(())
}
