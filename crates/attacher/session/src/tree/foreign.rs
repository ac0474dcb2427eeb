//! Descendants that a user does not mean who names one process: the programs of others.
//!
//! Where a tree is the default, and not what the user asked for, a session does not enter processes
//! of another user than the named process. Nor does it enter the descendants of init, which are all
//! processes, unless init is the program itself.

use super::Ready;
use midair_failure::{Failure, Kind};
use midair_procinfo::{Pid, task};

/// How many processes a refusal names.
const NAMED: usize = 8;

/// A process's real user, or none if that cannot be read.
fn user(pid: Pid) -> Option<u32> {
    let [real, ..] = task::status(pid).ok()?.uid;
    Some(real)
}

/// A process, its name and its real user.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Member {
    pid: Pid,
    name: String,
    user: Option<u32>,
}

impl Member {
    fn of(ready: &Ready) -> Member {
        Member {
            pid: ready.pid,
            name: ready.name.clone(),
            user: user(ready.pid),
        }
    }
}

/// Returns why these processes are not entered, where the tree of `root` is only the default.
pub(super) fn refusal(root: Pid, ready: &[Ready]) -> Option<Failure> {
    let members: Vec<Member> = ready.iter().map(Member::of).collect();
    refused(root, user(root), &members)
}

/// The same for a process that came later.
pub(super) fn refusal_of_one(root: Pid, ready: &Ready) -> Option<Failure> {
    let member = Member::of(ready);
    let of_root = user(root);
    is_of_another_user(of_root, &member).then(|| failure(root, &[&member]))
}

fn is_of_another_user(of_root: Option<u32>, member: &Member) -> bool {
    of_root
        .zip(member.user)
        .is_some_and(|(root, member)| root != member)
}

fn refused(root: Pid, of_root: Option<u32>, members: &[Member]) -> Option<Failure> {
    let is_program = members.iter().any(|member| member.pid == root);
    let is_init = root.get() == 1 && !is_program;
    let is_foreign =
        |member: &&Member| member.pid != root && (is_init || is_of_another_user(of_root, member));
    let foreign: Vec<&Member> = members.iter().filter(is_foreign).collect();
    (!foreign.is_empty()).then(|| failure(root, &foreign))
}

fn failure(root: Pid, foreign: &[&Member]) -> Failure {
    let named = foreign.iter().take(NAMED).map(|member| {
        let user = member.user.map(|user| format!(", user {user}"));
        let user = user.unwrap_or_default();
        format!("{} ({}{user})", member.pid, member.name)
    });
    let mut named: Vec<String> = named.collect();
    if foreign.len() > NAMED {
        named.push(format!("{} more", foreign.len() - NAMED));
    }
    let what = format!(
        "process {root} has descendants that may belong to other users: {}",
        named.join(", ")
    );
    let hint = "use --attach-children true to attach to them too, --attach-children false for the process only, or choose one of them";
    Failure::new(Kind::Usage, what).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(number: u32) -> Pid {
        Pid::new(number).unwrap()
    }

    fn member(number: u32, user: u32) -> Member {
        Member {
            pid: pid(number),
            name: format!("p{number}"),
            user: Some(user),
        }
    }

    #[test]
    fn programs_of_others_are_refused_by_name() {
        let what = |root, of_root, members: &[Member]| {
            refused(pid(root), Some(of_root), members).map(|failure| failure.what)
        };
        let others = "process 1 has descendants that may belong to other users: 7 (p7, user 0), 9 (p9, user 5)";
        assert_eq!(what(1, 0, &[member(7, 0), member(9, 5)]).unwrap(), others);
        // In a container the program may be process 1.
        assert_eq!(what(1, 0, &[member(1, 0), member(7, 0)]), None);
        // A launcher and its ranks.
        assert_eq!(what(5, 3, &[member(7, 3), member(9, 3)]), None);
        let others = "process 5 has descendants that may belong to other users: 9 (p9, user 4)";
        let mixed = [member(5, 3), member(7, 3), member(9, 4)];
        assert_eq!(what(5, 3, &mixed).unwrap(), others);
        // A process that has ended has no user.
        let ended = Member {
            user: None,
            ..member(9, 0)
        };
        assert_eq!(what(5, 3, &[ended]), None);
        let many: Vec<Member> = (10..30).map(|number| member(number, 0)).collect();
        assert!(what(1, 0, &many).unwrap().ends_with(", 12 more"));
    }
}
