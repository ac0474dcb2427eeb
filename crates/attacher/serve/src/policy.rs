//! Which processes a request may name.

use crate::usage::usage;
use midair_failure::Failure;
use midair_session::Found;
use midair_session::find::cgroup;
use regex_lite::{Regex, RegexBuilder};

/// The most bytes of a compiled expression.
const MOST_REGEX: usize = 1 << 20;

/// What `--only-user`, `--only-cgroup` and `--only-name` say. Of each kind that was given, one must
/// match.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    users: Vec<u32>,
    cgroups: Vec<String>,
    names: Vec<Regex>,
}

impl Policy {
    pub(crate) fn new(
        users: Vec<u32>,
        cgroups: &[&str],
        names: &[&str],
    ) -> Result<Policy, Failure> {
        let cgroup = |path: &&str| match path.strip_prefix('/') {
            Some(_) => Ok(path.trim_end_matches('/').to_owned()),
            None => Err(usage(format!("--only-cgroup {path} does not start with /"))),
        };
        let name = |text: &&str| {
            let compiled = RegexBuilder::new(text).size_limit(MOST_REGEX).build();
            compiled.map_err(|error| usage(format!("--only-name {text}: {error}")))
        };
        Ok(Policy {
            users,
            cgroups: cgroups.iter().map(cgroup).collect::<Result<_, _>>()?,
            names: names.iter().map(name).collect::<Result<_, _>>()?,
        })
    }

    /// Whether a process may be named. It must use a GPU.
    pub(crate) fn allows(&self, found: &Found) -> bool {
        found.uses_a_gpu()
            && self.allows_users(found.uids)
            && (self.names.is_empty() || self.names.iter().any(|it| it.is_match(&found.command)))
            && (self.cgroups.is_empty()
                || cgroup(found.pid).is_some_and(|path| self.allows_cgroup(&path)))
    }

    /// Real, effective and saved: what a set-uid program holds is its file's owner's, whoever starts it.
    fn allows_users(&self, uids: [u32; 3]) -> bool {
        self.users.is_empty() || uids.iter().all(|uid| self.users.contains(uid))
    }

    fn allows_cgroup(&self, path: &str) -> bool {
        let below = |above: &String| {
            let rest = path.strip_prefix(above.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.cgroups.is_empty() || self.cgroups.iter().any(below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_is_itself_or_below_and_no_neighbour() {
        let policy = Policy::new(vec![7], &["/kube/", "/x"], &[]).unwrap();
        for (path, wanted) in [
            ("/kube", true),
            ("/kube/pod", true),
            ("/kubes", false),
            ("/", false),
            ("/x/y/z", true),
            ("/y/x", false),
        ] {
            assert_eq!(policy.allows_cgroup(path), wanted, "{path}");
        }
    }

    #[test]
    fn a_set_uid_program_is_not_its_starter_s() {
        let policy = Policy::new(vec![7, 8], &[], &[]).unwrap();
        assert!(policy.allows_users([7; 3]) && policy.allows_users([7, 8, 8]));
        for uids in [[0; 3], [7, 0, 0], [7, 7, 0], [0, 7, 7]] {
            assert!(!policy.allows_users(uids), "{uids:?}");
        }
        assert!(Policy::default().allows_users([0; 3]));
    }
}
