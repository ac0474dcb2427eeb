//! An attacher gets no processor for longer than the worker thread waits for it. What it was about
//! to send must then be sent again.

use crate::common::{Worker, drive};
use midair_tests::stand_in::Kit;
use midair_tests::target::{PATIENCE, run};

/// Runs a session whose attacher stands still once.
fn late(how: &str, milliseconds: &str) {
    let kit = Kit::new().unwrap();
    let worker = Worker::start(&kit, "model.log", None);
    let out = kit.scratch().join("out");
    let (pid, out) = (worker.pid().to_string(), out.to_str().unwrap().to_owned());
    let exit = run(drive(&[&pid, &out, how, milliseconds]), PATIENCE).unwrap();
    let exit = exit.success().unwrap();
    assert!(exit.stdout.join("\n").contains("wrote "), "{exit}");
    worker.quit();
}

#[test]
fn what_was_sent_too_late_is_sent_again() {
    late("--late", "4000");
}

/// The worker thread waits five seconds, and has ended when the offer is about to be made. That
/// must not be taken for the end of the process.
#[test]
fn what_was_offered_too_late_is_offered_again() {
    late("--late-offer", "7000");
}
