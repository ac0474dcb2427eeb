//! An attacher that gets no processor for longer than the worker thread waits for it: what it was
//! about to send is sent anew.

use crate::common::{Worker, drive};
use midair_tests::stand_in::Kit;
use midair_tests::target::{PATIENCE, run};

#[test]
fn what_was_sent_too_late_is_sent_again() {
    let kit = Kit::new().unwrap();
    let worker = Worker::start(&kit, "model.log", None);
    let out = kit.scratch().join("out");
    let (pid, out) = (worker.pid().to_string(), out.to_str().unwrap().to_owned());
    let exit = run(drive(&[&pid, &out, "--late", "4000"]), PATIENCE).unwrap();
    let exit = exit.success().unwrap();
    assert!(exit.stdout.join("\n").contains("wrote "), "{exit}");
    worker.quit();
}
