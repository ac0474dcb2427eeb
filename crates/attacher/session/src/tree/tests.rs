//! Tests of what a group does with its members' reports. The processes are shells, which have no
//! runtime, so nothing is entered.

use super::*;

mod attached;
pub(crate) mod script;

use midair_settings::Settings;
use script::Ended;
use std::path::Path;
use std::process::{Command, Stdio};

/// Starts a shell that waits for its input.
fn process() -> Ended {
    let mut command = Command::new("cat");
    Ended(command.stdin(Stdio::piped()).spawn().unwrap())
}

/// Makes a group that knows these processes. For a tree, the first is the root.
fn group(selection: Selection, pid: Pid) -> Group {
    let request = GroupRequest {
        selection,
        each: Request::new(pid, Settings::new()),
        patient: false,
        merge: false,
        is_default: false,
    };
    let mut group = Group::new(Box::new(Engine), LIMITS, request).unwrap();
    group.watch.scan();
    group
}

fn named() -> Selection {
    Selection::named("^cat$").unwrap()
}

fn failure(kind: Kind) -> Failure {
    Failure::new(kind, "a reason")
}

/// Adds a member whose own reports are not read.
fn member(group: &mut Group, pid: Pid) -> usize {
    let number = group.started;
    group.started += 1;
    let (unread, _) = channel();
    let request = Request::new(pid, Settings::new());
    let member = Member::start(number, "cat".to_owned(), request, &group.shared, unread);
    group.members.insert(number, member.unwrap());
    group.watch.mark_attaching(pid);
    number
}

fn is_watched(group: &Group, pid: Pid) -> bool {
    group.watch.watched().iter().any(|(known, _)| *known == pid)
}

#[test]
fn one_that_came_later_is_tried_several_times() {
    let (root, later) = (process(), process());
    for kind in [Kind::NoParkedThread, Kind::Enter, Kind::Setup] {
        let mut group = group(named(), root.pid());
        let pid = later.pid();
        for made in 1..TRIES {
            group.watch.mark_attaching(pid);
            group.attempts.entry(pid).or_default().made = made;
            group.retry_or_refuse(pid, "cat".to_owned(), failure(kind));
            assert!(is_watched(&group, pid), "{kind:?} {made}");
            assert!(group.parts.is_empty() && group.news.is_empty());
        }
        group.attempts.entry(pid).or_default().made = TRIES;
        group.retry_or_refuse(pid, "cat".to_owned(), failure(kind));
        assert!(!is_watched(&group, pid));
        assert_eq!((group.parts.len(), group.news.len()), (1, 1));
    }
}

/// A process that existed at the start is reported at once. Other reasons for a refusal do not go
/// away.
#[test]
fn others_are_refused_at_once() {
    let (root, other) = (process(), process());
    let pid = other.pid();
    let mut group = group(named(), root.pid());
    group.attempts.insert(
        pid,
        Attempts {
            made: 1,
            from_the_start: true,
        },
    );
    group.retry_or_refuse(pid, "cat".to_owned(), failure(Kind::NoParkedThread));
    assert_eq!(group.parts.len(), 1);
    group.attempts.remove(&pid);
    group.retry_or_refuse(pid, "cat".to_owned(), failure(Kind::NotPermitted));
    assert_eq!(group.parts.len(), 2);
    assert!(!is_watched(&group, pid));
}

/// A process whose lease has lapsed, or that has become another program, is inspected again. One
/// whose session has yielded or is full is not.
#[test]
fn one_that_runs_on_is_attached_anew() {
    let target = process();
    let pid = target.pid();
    for (end, anew) in [
        (End::Lapsed, true),
        (End::Exec, true),
        (End::Yielded, false),
        (End::Full, false),
        (End::Exited(None), false),
    ] {
        let mut group = group(named(), pid);
        let number = member(&mut group, pid);
        group.attempts.entry(pid).or_default().made = TRIES;
        assert!(!is_watched(&group, pid), "it is attached");
        let collected = Box::new(Err(failure(Kind::DetachFailed)));
        group.handle((number, Report::Over(Some(end), collected)));
        assert_eq!(is_watched(&group, pid), anew, "{end:?}");
        assert_eq!(group.attempts.contains_key(&pid), !anew, "{end:?}");
        assert_eq!((group.members.len(), group.parts.len()), (0, 1));
    }
}

fn is_over(event: Result<Event, Failure>) -> bool {
    matches!(event.unwrap(), Event::TargetExited(_))
}

#[test]
fn a_tree_goes_on_until_all_its_members_have_ended() {
    let (root, child) = (process(), process());
    let mut group = group(Selection::Tree(root.pid()), root.pid());
    let numbers = [root.pid(), child.pid()].map(|pid| member(&mut group, pid));
    group.attached = 2;
    let end = |group: &mut Group, number: usize| {
        group.handle((number, Report::Ending(End::Exited(None))));
        let collected = Box::new(Err(failure(Kind::DetachFailed)));
        group.handle((number, Report::Over(Some(End::Exited(None)), collected)));
    };
    assert!(!is_over(group.poll()));
    end(&mut group, numbers[0]);
    assert!(!is_over(group.poll()), "one is left");
    end(&mut group, numbers[1]);
    assert!(!is_over(group.poll()), "another one of it may come");
    drop((root, child));
    let limit = Instant::now() + Duration::from_secs(20);
    while !is_over(group.poll()) {
        assert!(Instant::now() < limit);
        std::thread::yield_now();
    }
}

/// The first process has ended. Another process of the tree runs, which has no runtime so far.
#[test]
fn a_tree_goes_on_while_one_of_its_processes_may_still_load_a_runtime() {
    let mut command = Command::new("sh");
    command.args(["-c", "cat; true"]).stdin(Stdio::piped());
    let shell = Ended(command.spawn().unwrap());
    let mut group = group(Selection::Tree(shell.pid()), shell.pid());
    let limit = Instant::now() + Duration::from_secs(20);
    while group.watch.alive() < 2 {
        group.watch.scan();
        assert!(Instant::now() < limit);
        std::thread::yield_now();
    }
    let number = member(&mut group, shell.pid());
    group.attached = 1;
    group.handle((number, Report::Ending(End::Exited(None))));
    assert!(!is_over(group.poll()));
}
