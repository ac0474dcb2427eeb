//! Processes that are still starting: what was inspected is not what is there a moment later.

use std::os::unix::process::CommandExt;
use std::time::Duration;

use crate::common::{PATIENCE, Target, for_all, pid_of};
use midair_inject::{EntryPath, Library, Options, enter, inspect};

/// The thread that can be borrowed came after the inspection, and so did the mapping of its stack.
fn enters_by_a_new_thread(user: Option<u32>) {
    let (_dir, mut command) = for_all("grows");
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    let mut target = Target::spawn(command).unwrap();
    target.expect("ready").unwrap();
    let look = inspect(pid_of(&target)).unwrap();
    target.send("grow").unwrap();
    target.expect("grown").unwrap();
    let only_parked = Options {
        looks: 0,
        find: Duration::from_secs(20),
        ..Options::default()
    };
    for _ in 0..3 {
        let entered = enter(&look, &Library::Nothing, &only_parked).unwrap();
        assert!(matches!(entered.via.path, EntryPath::Parked(_)));
        entered.withdraw(&only_parked).unwrap();
    }
    target.close_stdin();
    target.wait(PATIENCE).unwrap().success().unwrap();
}

#[test]
fn a_thread_that_came_after_the_inspection_is_borrowed() {
    enters_by_a_new_thread(None);
}

/// Only memory that answers is read of another user's process. What we map there is known to answer
/// through each list of its mappings.
#[test]
fn a_thread_that_came_after_the_inspection_is_borrowed_in_another_users_process() {
    if midair_tests::is_root_for("to start a program as another user").unwrap() {
        enters_by_a_new_thread(Some(65534));
    }
}
