//! A tool of another vendor, linked with `librocprofiler-sdk.so.1` and named by
//! `ROCPROF_ATTACH_TOOL_LIBRARY`, is loaded into a running process. It gets buffers of records
//! through AMD's interface, and again at the next attach.

use midair_tests::caller::{Caller, between};
use midair_tests::lab::Lab;
use midair_tests::stage::command;
use midair_tests::target::{PATIENCE, Target};
use midair_tests::{Result, client};

#[test]
fn a_tool_with_buffers_counts_what_the_program_does() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let log = lab.scratch().join("tool.log");
    let tool = client::tool(&lab, "counting_tool", "counting_tool", &log, &[])?;
    let mut caller = Caller::start(Caller::command(&lab)?.register(false))?;
    for session in 1..=2_u64 {
        let mut rocprof_attach = command("rocprof-attach")?;
        rocprof_attach
            .args(["-p", &caller.pid().to_string(), "-t"])
            .arg(&tool)
            .current_dir(lab.scratch());
        let mut attacher = Target::spawn(rocprof_attach)?;
        attacher.expect("Press Enter to detach...")?;
        let before = caller.counts()?;
        caller.tell("calls 20")?;
        let made = between(&before, &caller.counts()?, "hip");
        attacher.send("")?;
        attacher.wait(PATIENCE)?.success()?;

        let text = std::fs::read_to_string(&log)?;
        assert_eq!(text.lines().count() as u64, session, "{text}");
        let line = text.lines().last().unwrap_or_default();
        let value = |name: &str| -> u64 {
            let word = line
                .split(' ')
                .find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            word.and_then(|word| word.parse().ok()).unwrap_or(u64::MAX)
        };
        assert_eq!(value("hip"), made.values().sum::<u64>(), "{line}: {made:?}");
        assert_eq!(value("kernels"), made["hipModuleLaunchKernel"], "{line}");
        assert_eq!(value("copies"), made["hipMemcpyAsync"], "{line}");
        assert_eq!((value("wrong"), value("dropped")), (0, 0), "{line}");
    }
    caller.quit()
}
