//! The services for work on the device, as a tool of another vendor uses them: callbacks of
//! dispatches, copies, allocations, scratch memory and streams, external ids on request, the
//! retirement of ids, and kinds of libraries that are not there. What the tool got is compared with
//! the modelled GPU's log.

use crate::callbacks::last_end;
use midair_tests::lab::Lab;
use midair_tests::stage::{command, stage};
use midair_tests::target::{PATIENCE, Target, until};
use midair_tests::{Result, client};

#[test]
fn an_attached_tool_is_told_of_all_work_from_its_beginning_to_its_end() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let log = lab.scratch().join("services.log");
    let tool = client::tool(&lab, "services_tool", "services", &log, &["-DALWAYS=0"])?;
    let (program, kernels) = (lab.program("streams")?, lab.kernels()?);
    let mut target = lab.run(&program).arg(kernels).arg(2).spawn()?;
    target.expect("ready")?;
    for session in 0..2 {
        let before = target.model_log()?;
        let mut rocprof_attach = command("rocprof-attach")?;
        rocprof_attach
            .args(["-p", &target.pid().to_string(), "-t"])
            .arg(&tool)
            .current_dir(lab.scratch());
        let mut attacher = Target::spawn(rocprof_attach)?;
        attacher.expect("Press Enter to detach...")?;
        target.send("new 1")?;
        target.expect("new")?;
        target.send("start")?;
        target.expect("start")?;
        let begun = before.dispatches().count();
        until("forty rounds", || {
            Ok(target.model_log()?.dispatches().count() > begun + 80)
        })?;
        target.send("stop")?;
        target.expect("stop")?;
        let after = target.model_log()?;
        attacher.send("")?;
        attacher.wait(PATIENCE)?.success()?;
        let end = last_end(&log)?;
        assert_eq!(end["wrong"], 0, "session {session}: {end:?}");
        let dispatches = (after.dispatches().count() - begun) as u64;
        for what in ["enqueued", "completed", "kernels"] {
            assert_eq!(end[what], dispatches, "session {session}, {what}: {end:?}");
        }
        let copies = after.copies().skip(before.copies().count());
        let (count, bytes) = copies.fold((0, 0), |(count, bytes), copy| {
            (count + 1, bytes + copy.bytes)
        });
        assert!(
            end["copied"] >= count && end["begun"] == end["copied"],
            "{end:?}"
        );
        assert!(end["bytes"] >= bytes, "{bytes}: {end:?}");
        assert_eq!(end["asked"], end["enqueued"] + end["begun"], "{end:?}");
        assert!(end["retired"] > 0 && end["set"] >= dispatches, "{end:?}");
        // The new thread made a stream and memory of its own.
        assert!(end["made"] >= 1 && end["allocated"] >= 1, "{end:?}");
    }
    target.send("quit")?;
    target.expect("done")?;
    Ok(())
}

#[test]
fn a_tool_of_a_started_program_is_told_of_all_work_and_given_the_table() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let log = lab.scratch().join("services.log");
    let tool = client::tool(&lab, "services_tool", "services", &log, &["-DALWAYS=1"])?;
    let tool = lab.inside(&tool)?;
    let lib = lab.scratch().join("installed");
    std::fs::create_dir(&lib)?;
    for name in ["librocprofiler-register.so.0", "librocprofiler-sdk.so.1"] {
        std::fs::copy(stage()?.join("lib").join(name), lib.join(name))?;
    }
    let lib = lab.inside(&lib)?;
    let mut target = lab
        .run("/lab/vadd")
        .arg(200)
        .libs(&lib)
        .env("ROCP_TOOL_LIBRARIES", tool)
        .spawn()?;
    target.expect("done")?;
    let made = target.model_log()?;
    target.target.wait(PATIENCE)?.success()?;
    let end = last_end(&log)?;
    assert_eq!(end["wrong"], 0, "{end:?}");
    let dispatches = made.dispatches().count() as u64;
    assert!(dispatches >= 5);
    for what in ["enqueued", "completed", "kernels"] {
        assert_eq!(end[what], dispatches, "{what}: {end:?}");
    }
    assert!(end["copied"] == end["begun"] && end["copied"] >= made.copies().count() as u64);
    assert!(end["retired"] > 0 && end["allocated"] > 0, "{end:?}");
    assert_eq!(end["tables"], 1, "{end:?}");
    Ok(())
}
