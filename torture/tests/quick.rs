//! The quick form of the torture matrix: every cell, a few cycles, our own engine only. Row 13 and
//! the stage are left to the whole suite, and row 25, which takes minutes of all processors, to
//! `e2e/starting.rs`.
#![allow(clippy::unwrap_used, reason = "tests may panic")]

use midair_tests::stage::stage;
use midair_tests::target::Target;
use midair_tests::{is_root_for, leave_out};
use std::process::Command;
use std::time::Duration;

/// Runs the cells of these rows.
fn rows(rows: &[u8]) {
    if !is_root_for("for targets of other users and in namespaces of their own").unwrap() {
        return;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_midair-torture"));
    command.args(["--quick", "--no-others"]);
    for row in rows {
        command.args(["--row", &row.to_string()]);
    }
    let exit = Target::spawn(command)
        .unwrap()
        .wait(Duration::from_secs(200))
        .unwrap();
    for line in &exit.stderr {
        if line.contains("LEFT OUT, NOT TESTED: ") {
            leave_out(&format!("torture, rows {rows:?}: {}", line.trim())).unwrap();
        }
    }
    exit.success().unwrap();
}

#[test]
fn allocators() {
    rows(&[1]);
}

#[test]
fn loader_forks_and_threads() {
    rows(&[2, 17]);
}

#[test]
fn blocking_calls() {
    rows(&[3, 5]);
}

#[test]
fn states_users_and_signals() {
    rows(&[4, 6, 7, 18, 19]);
}

#[test]
fn environments_limits_and_names() {
    rows(&[8, 9, 15, 16]);
}

#[test]
fn races_forks_runtimes_and_clocks() {
    rows(&[11, 14, 21, 23]);
}

#[test]
fn the_whole_product_many_times() {
    stage().unwrap();
    rows(&[13]);
}

#[test]
fn threads_that_come_and_go() {
    stage().unwrap();
    rows(&[24]);
}
