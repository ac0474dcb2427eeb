//! The line on the process's own standard error that says that it is attached (`ROCPROF_ATTACH_ANNOUNCE`).

use midair_tests::Result;
use midair_tests::attacher::Attacher;
use midair_tests::target::{Target, until};
use midair_tests::{cuda, stand_in};

const LINE: &str = "rocprofv3: attached to this process (ROCPROF_ATTACH_ANNOUNCE is set)";

/// Attaches without the variable, with 0 and with 1: only then there is one line.
fn only_where_it_is_asked_for(target: &Target) -> Result<()> {
    for value in [None, Some("0"), Some("1")] {
        let variable = value.map(|value| ("ROCPROF_ATTACH_ANNOUNCE", value));
        let words = ["--kernel-trace"];
        let session = Attacher::start_with(target.pid(), &words, variable.as_slice())?;
        if value == Some("1") {
            until("the line", || Ok(!target.errors().is_empty()))?;
        }
        session.detach()?;
        let lines: &[&str] = if value == Some("1") { &[LINE] } else { &[] };
        assert_eq!(target.errors(), lines, "{value:?}");
    }
    Ok(())
}

#[test]
fn an_attach_says_so_in_the_process_where_it_is_asked_for() -> Result<()> {
    let kit = stand_in::Kit::new()?;
    let mut target = kit.start("long_names", "model.log", &[])?;
    target.expect("ready")?;
    only_where_it_is_asked_for(&target)?;
    let kit = cuda::Kit::new()?;
    let target = crate::cuda::kit::start(&kit, crate::cuda::kit::NEWEST, &[])?;
    only_where_it_is_asked_for(&target)
}
