//! Whether this process may enter another, and what stands in the way.

use std::io;
use std::os::unix::fs::MetadataExt;

use midair_ptrace::added_capabilities;

use crate::files::{kernel_file, kernel_link, kernel_place, kernel_text, same_place};
use crate::task;
use crate::{Pid, Tid, decimal};

/// `CAP_DAC_READ_SEARCH` and `CAP_DAC_OVERRIDE`, of which either opens files of others to read them.
const READS_ALL: u64 = 1 << 2 | 1 << 1;
/// `CAP_SYS_PTRACE`.
const CAP_SYS_PTRACE: u64 = 1 << 19;
/// `CAP_SYS_ADMIN`.
const CAP_SYS_ADMIN: u64 = 1 << 21;

/// The remedy for root without CAP_SYS_PTRACE, which is root in a container by default.
pub const ADD_TO_CONTAINER: &str = "start the container with --cap-add SYS_PTRACE (Kubernetes: securityContext.capabilities.add), or run midair on the host";

/// The facts that decide whether a process may be traced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Whether the kernel lets this process open the target's memory. That requires the same right
    /// as tracing (apart from Yama).
    pub allowed: bool,
    /// Whether the target has no memory any more: it is about to end.
    pub ending: bool,
    /// Our effective user id.
    pub our_uid: u32,
    /// The target's real, effective and saved user ids.
    pub target_uids: [u32; 3],
    /// Whether we have CAP_SYS_PTRACE (in our user namespace).
    pub ptrace_capability: bool,
    /// The user to whom the target's files in `/proc` belong, if that is another user and we have
    /// neither CAP_DAC_READ_SEARCH nor CAP_DAC_OVERRIDE.
    pub files_of_other: Option<u32>,
    /// Whether we have CAP_SYS_ADMIN (in our user namespace).
    pub admin_capability: bool,
    /// The value of `kernel.yama.ptrace_scope`. None without Yama.
    pub yama: Option<u32>,
    /// Whether the target has capabilities that we lack (set-uid, file capabilities).
    pub target_more_capable: bool,
    /// Whether both are in one user namespace.
    pub same_user_namespace: bool,
    /// The label by which a security module (AppArmor, SELinux) confines us, if one does.
    pub label: Option<String>,
    /// Whether both are in one pid namespace.
    pub same_pid_namespace: bool,
    /// Whether both see the same mounts and the same root.
    pub same_mounts: bool,
}

/// Collects these facts for a live thread of the target. Nothing is traced.
///
/// # Errors
/// The kernel's error; not found when it has ended.
pub fn look(tid: impl Into<Tid>) -> io::Result<Access> {
    let tid = tid.into();
    let us = task::status(Pid::own())?;
    let ours = us.cap_effective | added_capabilities();
    let target = task::status(tid)?;
    /// ESRCH
    const NO_MEMORY: i32 = 3;
    let opened = kernel_file(format!("{tid}/mem"));
    Ok(Access {
        allowed: opened.is_ok(),
        ending: opened.is_err_and(|error| error.raw_os_error() == Some(NO_MEMORY)),
        our_uid: us.uid[1],
        target_uids: [target.uid[0], target.uid[1], target.uid[2]],
        ptrace_capability: ours & CAP_SYS_PTRACE != 0,
        files_of_other: kernel_place(format!("{tid}/mem"))
            .ok()
            .map(|file| file.uid())
            .filter(|&owner| owner != us.uid[3] && ours & READS_ALL == 0),
        admin_capability: ours & CAP_SYS_ADMIN != 0,
        yama: kernel_text("sys/kernel/yama/ptrace_scope")
            .ok()
            .and_then(|text| decimal(&text)),
        target_more_capable: target.cap_permitted & !us.cap_permitted != 0,
        same_user_namespace: same_user_namespace(tid),
        label: kernel_text("self/attr/current")
            .ok()
            .and_then(|text| confining(&text)),
        same_pid_namespace: same_namespace(tid, "pid"),
        same_mounts: same_namespace(tid, "mnt") && same_root(tid),
    })
}

impl Access {
    /// Returns the reason for a refusal, in one sentence without a full stop, and a remedy, if
    /// there is one.
    pub fn why_not(&self) -> (String, &'static str) {
        if self.yama == Some(3) {
            return (
                "kernel.yama.ptrace_scope is 3: no process may be traced".into(),
                "only a reboot can change it",
            );
        }
        // To become root helps neither root nor who reads that.
        if self.our_uid == 0 && !self.ptrace_capability && self.same_user_namespace {
            let why = match self.target_uids.iter().find(|&&uid| uid != 0) {
                Some(uid) => format!("it belongs to user {uid}"),
                None if self.target_more_capable => "it has capabilities that midair lacks".into(),
                None => "it is not dumpable, or Yama protects it".into(),
            };
            let what = format!("{why}, and midair is root without CAP_SYS_PTRACE");
            return (what, ADD_TO_CONTAINER);
        }
        if self.target_uids.iter().any(|&uid| uid != self.our_uid) && !self.ptrace_capability {
            return (
                format!(
                    "it belongs to user {}, and midair runs as user {}",
                    self.target_uids[1], self.our_uid
                ),
                "run this as that user or as root",
            );
        }
        if let Some(scope @ 1..) = self.yama
            && !self.ptrace_capability
        {
            return (
                format!("kernel.yama.ptrace_scope is {scope}, and midair lacks CAP_SYS_PTRACE"),
                "run this as root, or set kernel.yama.ptrace_scope to 0",
            );
        }
        // Capabilities that the target has in a user namespace of its own do not count outside of
        // it.
        if self.target_more_capable && self.same_user_namespace && !self.ptrace_capability {
            return (
                "it has capabilities that midair lacks".into(),
                "run this as root",
            );
        }
        // A program that was given CAP_SYS_PTRACE alone may trace, but may not open files that
        // belong to another user's process.
        if let Some(owner) = self.files_of_other
            && self.ptrace_capability
        {
            return (
                format!(
                    "its files in /proc belong to user {owner}, and midair has CAP_SYS_PTRACE but not CAP_DAC_READ_SEARCH"
                ),
                "give the program both: setcap cap_sys_ptrace,cap_dac_read_search+ep FILE; or run it as root",
            );
        }
        if !self.same_user_namespace {
            return (
                "it is in another user namespace".into(),
                "run this in a parent of that namespace, with CAP_SYS_PTRACE",
            );
        }
        if !self.ptrace_capability {
            return (
                "it is not dumpable (set-uid, or prctl), and midair lacks CAP_SYS_PTRACE".into(),
                "run this as root; in a container add the capability SYS_PTRACE",
            );
        }
        self.security_module()
    }

    fn security_module(&self) -> (String, &'static str) {
        let refuses = "the kernel's security module refuses";
        (
            self.label.as_ref().map_or_else(
                || refuses.to_owned(),
                |label| format!("{refuses}: midair runs as {label}"),
            ),
            "see the kernel's log for the denial; the profiles or policy of both sides must allow ptrace",
        )
    }
}

/// Returns the label in `/proc/self/attr/current`, if it is one that confines.
fn confining(text: &[u8]) -> Option<String> {
    let label = String::from_utf8_lossy(text);
    let label = label.trim_end_matches(['\n', '\0']);
    let free = label.is_empty() || label == "unconfined" || label == "kernel";
    (!free).then(|| label.to_owned())
}

fn same_namespace(tid: Tid, kind: &str) -> bool {
    let link = |who: &str| kernel_link(format!("{who}/ns/{kind}"));
    match (link("self"), link(&tid.to_string())) {
        (Ok(ours), Ok(theirs)) => ours == theirs,
        _ => false,
    }
}

/// Whether the process is in our user namespace. The kernel shows a process's namespaces only to
/// those who may trace it, but its map of users to everybody. Where that map equals ours, the
/// namespace is not what stands in the way.
fn same_user_namespace(tid: Tid) -> bool {
    let map = |who: &str| kernel_text(format!("{who}/uid_map")).ok();
    let unseen = kernel_link(format!("{tid}/ns/user")).is_err();
    same_namespace(tid, "user")
        || (unseen && map("self").is_some() && map("self") == map(&tid.to_string()))
}

fn same_root(tid: Tid) -> bool {
    same_place("self/root", &format!("{tid}/root")).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_may_look_at_ourselves() {
        let access = look(Pid::own()).unwrap();
        assert!(
            access.allowed
                && access.same_mounts
                && access.same_pid_namespace
                && access.same_user_namespace
        );
        assert!(!access.target_more_capable);
    }

    #[test]
    fn reasons_are_told_apart() {
        let fine = Access {
            allowed: false,
            ending: false,
            our_uid: 1000,
            target_uids: [1000; 3],
            ptrace_capability: false,
            files_of_other: None,
            admin_capability: false,
            yama: None,
            target_more_capable: false,
            same_user_namespace: true,
            label: None,
            same_pid_namespace: true,
            same_mounts: true,
        };
        let said = |access: Access| access.why_not().0;
        assert!(
            said(Access {
                target_uids: [0; 3],
                ..fine.clone()
            })
            .contains("user 0")
        );
        // Root of a container by default.
        for (uid, more, yama) in [(1002, false, None), (0, true, None), (0, false, Some(1))] {
            let (why, hint) = Access {
                our_uid: 0,
                target_uids: [uid; 3],
                target_more_capable: more,
                yama,
                ..fine.clone()
            }
            .why_not();
            assert!(
                why.ends_with("and midair is root without CAP_SYS_PTRACE"),
                "{why}"
            );
            assert!(hint.contains("--cap-add SYS_PTRACE"), "{hint}");
        }
        assert!(
            said(Access {
                yama: Some(1),
                ..fine.clone()
            })
            .contains("ptrace_scope is 1")
        );
        assert!(
            said(Access {
                yama: Some(3),
                ptrace_capability: true,
                ..fine.clone()
            })
            .contains("is 3")
        );
        assert!(
            said(Access {
                target_more_capable: true,
                ..fine.clone()
            })
            .contains("capabilities")
        );
        assert!(
            said(Access {
                same_user_namespace: false,
                ..fine.clone()
            })
            .contains("user namespace")
        );
        assert!(
            said(Access {
                ptrace_capability: true,
                files_of_other: Some(0),
                ..fine.clone()
            })
            .contains("CAP_DAC_READ_SEARCH")
        );
        assert!(said(fine.clone()).contains("dumpable"));
        let confined = Access {
            ptrace_capability: true,
            label: confining(b"narrow (enforce)\n"),
            ..fine.clone()
        };
        assert!(said(confined).ends_with("refuses: midair runs as narrow (enforce)"));
        assert_eq!(confining(b"unconfined\n"), None);
        assert!(
            said(Access {
                ptrace_capability: true,
                ..fine
            })
            .contains("security module")
        );
    }
}
