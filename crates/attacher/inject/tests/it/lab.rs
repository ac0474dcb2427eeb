//! AMD's real HIP and HSA runtimes, with another root, a newer C library, and threads that are not
//! the program's own.

use crate::common::pid_of;
use std::time::Duration;

use crate::common::{Snapshot, compiled};
use midair_inject::{Library, Options, enter, inspect};
use midair_tests::lab::Lab;

#[test]
fn vadd_is_entered_and_goes_on() {
    let Some(lab) = Lab::find().unwrap() else {
        return;
    };
    // This is some seconds of work on any machine.
    let mut target = lab.run("/lab/vadd").arg(1500).arg(3000).spawn().unwrap();
    let pid = pid_of(&target);
    crate::common::until("HIP's start", || {
        Ok(
            std::fs::read_to_string(format!("/proc/{pid}/maps"))?.contains("libamdhip64")
                && Snapshot::take(pid)?.threads.len() >= 3,
        )
    })
    .unwrap();
    let options = Options {
        find: Duration::from_secs(20),
        ..Options::default()
    };
    let library = Library::File(compiled("library", true));
    let mut ways = Vec::new();
    for _ in 0..8 {
        let seen = inspect(pid).unwrap();
        assert!(
            !seen.access.same_mounts && seen.code.version > (2, 36),
            "{:?}",
            seen.code.version
        );
        let entered = enter(&seen, &library, &options).unwrap();
        entered.wait_for_word(crate::common::PATIENCE).unwrap();
        ways.push(format!(
            "{} {} {:?}",
            entered.via.name,
            entered.via.doing,
            entered.times.stopped()
        ));
        entered.withdraw(&options).unwrap();
        assert_eq!(
            Snapshot::take(pid).unwrap().named("midair-worker").count(),
            0
        );
        assert!(target.is_running().unwrap());
    }
    eprintln!("{ways:#?}");
    target
        .target
        .wait(crate::common::PATIENCE)
        .unwrap()
        .success()
        .unwrap();
}
