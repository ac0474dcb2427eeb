//! Counters of a process in another root, which alone has AMD's packet library. It needs a newer C
//! library than this machine has, so midair's helper runs in that root, with the rights of the process.

use crate::counters::{Session, begin, end, program};
use crate::counters_launched::has_packet_library;
use midair_tests::lab::{Lab, LabTarget};
use midair_tests::stage::command;
use midair_tests::target::{Exit, PATIENCE, run};
use midair_tests::{Result, leave_out};
use std::collections::BTreeSet;
use std::process::Command;

/// A user without any rights.
const USER: u32 = 12345;

/// What the mappings of a process show once midair's tool was loaded.
const OURS: &str = "/memfd:midair-tool";

fn maps(target: &LabTarget) -> Result<String> {
    let file = format!("/proc/{}/maps", target.target.pid());
    Ok(std::fs::read_to_string(file)?)
}

/// Returns the lab, unless this machine has the library, too.
fn lab() -> Result<Option<Lab>> {
    let Some(lab) = Lab::find()? else {
        return Ok(None);
    };
    if has_packet_library()? {
        leave_out("this machine has AMD's packet library")?;
        return Ok(None);
    }
    Ok(Some(lab))
}

/// Starts a program of one stream in the lab, by the command `before`.
fn started(lab: &Lab, user: Option<u32>, before: &[&str], log: &str) -> Result<LabTarget> {
    let command = program(lab, 1)?.log_name(log).prefix(before);
    begin(match user {
        Some(user) => command.user(user),
        None => command,
    })
}

/// Attaches from outside of the lab.
fn attach(mut midair: Command, target: &LabTarget, words: &[&str]) -> Result<Exit> {
    midair.arg("attach").arg(target.target.pid().to_string());
    midair.args(["--duration", "1s", "--max-overhead", "100"]);
    midair.args(words);
    run(midair, PATIENCE)
}

#[test]
fn the_library_of_the_process_alone_makes_the_packets() -> Result<()> {
    let Some(lab) = lab()? else {
        return Ok(());
    };
    // The root's mounts are made outside of the user namespace, which may not make them.
    let root = lab.root().display().to_string();
    let script = "for m in proc dev sys/devices; do mount --bind /$m $0/$m || exit 125; done; exec unshare -U -r -n -u -i \"$@\"";
    let container = ["unshare", "-m", "sh", "-c", script, &root];
    let cases: [(Option<u32>, &[&str]); 3] = [(None, &[]), (Some(USER), &[]), (None, &container)];
    for (number, (user, before)) in cases.into_iter().enumerate() {
        let target = started(&lab, user, before, &format!("{number}.log"))?;
        let out = tempfile::tempdir()?;
        let mut midair = command("midair")?;
        midair.current_dir(out.path());
        let pmc = "SQ_WAVES,SQ_INSTS_VALU,SPI_CSN_WAVE";
        let words = ["--output-format", "csv", "--pmc", pmc, "-d", "."];
        let exit = attach(midair, &target, &words)?;
        let said = exit.to_string();
        exit.success()?;
        let session = Session::read(out.path(), said)?;
        session.check();
        let counted = &session.counted;
        assert!(counted.len() > 20, "{}: {}", counted.len(), session.said);
        let of_three = |dispatch: &crate::counters::Counted| dispatch.values.len() == 3;
        assert!(counted.values().all(of_three), "{counted:?}");
        assert!(maps(&target)?.contains(OURS), "the tool stays");
        // The model's log has these dispatches, as their times show.
        let log = end(target)?;
        let logged: BTreeSet<(u64, u64)> = log
            .dispatches()
            .map(|dispatch| (dispatch.packet.start, dispatch.packet.end))
            .collect();
        for dispatch in counted.values() {
            let times = (dispatch.start, dispatch.end);
            assert!(logged.contains(&times), "{dispatch:?}");
        }
    }
    Ok(())
}

#[test]
fn the_doctor_names_the_library_of_the_process() -> Result<()> {
    let Some(lab) = lab()? else {
        return Ok(());
    };
    let target = started(&lab, None, &[], "doctor.log")?;
    let mut doctor = command("midair")?;
    doctor.arg("doctor").arg(target.target.pid().to_string());
    let said = run(doctor, PATIENCE)?.to_string();
    let line = said.lines().find(|line| line.contains("counters: library"));
    let line = line.ok_or_else(|| said.clone())?;
    assert!(
        line.contains("/libhsa-amd-aqlprofile64.so.1 in the root of the process"),
        "{line}"
    );
    end(target).map(drop)
}

/// A user may attach to an own process, and may not enter its root.
#[test]
fn a_user_who_may_not_enter_the_root_is_refused_with_the_remedy() -> Result<()> {
    let Some(lab) = lab()? else {
        return Ok(());
    };
    let target = started(&lab, Some(USER), &[], "refused.log")?;
    let staged = midair_tests::stage::stage()?.join("bin/midair");
    let mut midair = Command::new("setpriv");
    midair.args(["--reuid", "12345", "--regid", "12345", "--clear-groups"]);
    midair.arg(staged).current_dir("/tmp");
    let exit = attach(midair, &target, &["--pmc", "SQ_WAVES"])?;
    let said = exit.to_string();
    assert_eq!(exit.status.code(), Some(38), "{said}");
    assert!(
        said.contains("the root of the process cannot be entered"),
        "{said}"
    );
    assert!(said.contains("run midair as root"), "{said}");
    assert!(
        said.contains("install the package hsa-amd-aqlprofile"),
        "{said}"
    );
    assert!(!maps(&target)?.contains(OURS), "it was touched");
    end(target).map(drop)
}
