//! `cargo xtask e2e NAME`: stages the product if it is older than its sources, and runs the
//! end-to-end tests with that name.

use midair_stand_in::made_from::{self, State};

use crate::{setup, suite};
use midair_dev_kit::run::{At, Outcome, cargo, failed, root, run, target_directory};
use midair_dev_stage::{self as stage, Build};

/// Runs `cargo xtask e2e`.
pub fn e2e_task(words: &[String]) -> Outcome<()> {
    let [name] = words else {
        return failed("takes a part of a test's name, such as trees::");
    };
    stage_if_stale()?;
    // With the whole workspace, libraries have the features with which the suite builds them. Chosen by
    // its package, the test would have a quarter of them compiled a second time.
    let mut command = match setup::has_subcommand("nextest") {
        true => {
            let mut nextest = cargo(&["nextest", "run", "--workspace"]);
            nextest.args(["--test", "e2e", name]);
            nextest
        }
        false => {
            let mut test = cargo(&["test", "--workspace", "--test", "e2e"]);
            test.args(["--", name]);
            test
        }
    };
    suite::what_tests_need(&mut command);
    run(&mut command)
}

fn stage_if_stale() -> Outcome<()> {
    let stage = target_directory().join("stage");
    match made_from::compare(&root(), &stage).at("comparing", &stage)? {
        State::Current => return Ok(()),
        State::Changed(source) => println!("staging: {} has changed", source.display()),
        State::Unknown => println!("staging: there is no record of an earlier stage"),
    }
    stage::stage(Build::Debug).map(|_| ())
}
