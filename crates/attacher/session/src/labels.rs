//! Where a process belongs: its container, pod, job, rank and program, as monitors group processes.
//! All of it are words of the process or of whoever started it, so they are short and clean, and nothing
//! follows from them.

use crate::answer;
use crate::find::cgroup;
use midair_failure::plain;
use midair_procinfo::files::{MOST_WORDS, kernel_text_up_to, words};
use midair_procinfo::{Pid, task};
use midair_settings::Settings;

/// The most characters of a label.
const LONGEST: usize = 128;
/// The variables of batch systems with the number of a job.
const JOBS: [&str; 4] = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID"];
/// The digits of a container's id, and the characters of a pod's.
const CONTAINER: usize = 64;
const POD: usize = 36;

/// The labels; what is not known is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels {
    /// The cgroup's path.
    pub cgroup: String,
    /// The container's id.
    pub container: String,
    /// The id of its pod.
    pub pod: String,
    /// The number of its job in a batch system.
    pub job: String,
    /// Its MPI rank.
    pub rank: String,
    /// The program's name, or of Python the module or script.
    pub program: String,
}

impl Labels {
    /// Reads the labels of a process. None where it does not answer in time.
    pub fn of(pid: Pid) -> Option<Labels> {
        answer::within(pid, answer::LIMIT, move || read(pid)).ok()
    }
}

impl Labels {
    /// Returns the labels that are known: keys and texts.
    pub fn pairs(self) -> Vec<(String, String)> {
        let all = [
            ("program", self.program),
            ("container", self.container),
            ("pod", self.pod),
            ("job", self.job),
            ("rank", self.rank),
            ("cgroup", self.cgroup),
        ];
        let known = all.into_iter().filter(|(_, text)| !text.is_empty());
        known.map(|(key, text)| (key.to_owned(), text)).collect()
    }
}

fn read(pid: Pid) -> Labels {
    let Ok(Some(live)) = task::live(pid) else {
        return Labels::default();
    };
    let environment = kernel_text_up_to(format!("{live}/environ"), MOST_WORDS).unwrap_or_default();
    let variable = |name: &str| {
        let mut all = environment.split(|byte| *byte == 0);
        let value = all.find_map(|word| word.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
        value.map(|value| String::from_utf8_lossy(value).into_owned())
    };
    let choice = Settings::new().rank_choice(variable).ok();
    let rank = choice.and_then(|choice| choice.rank?.rank);
    let cgroup = cgroup(pid).unwrap_or_default();
    Labels {
        container: container(&cgroup).unwrap_or_default().to_owned(),
        pod: pod(&cgroup).unwrap_or_default(),
        job: clean(
            &JOBS
                .iter()
                .find_map(|name| variable(name))
                .unwrap_or_default(),
        ),
        rank: rank.map(|rank| rank.to_string()).unwrap_or_default(),
        program: clean(program(&words(live, "cmdline"))),
        cgroup: clean(&cgroup),
    }
}

fn clean(text: &str) -> String {
    plain::line(text).chars().take(LONGEST).collect()
}

/// Returns the id of a container in a cgroup's path, as Docker, containerd, CRI-O and Podman name them.
fn container(cgroup: &str) -> Option<&str> {
    let parts = cgroup.rsplit(|char: char| !char.is_ascii_alphanumeric());
    let mut ids = parts.filter(|part| part.len() == CONTAINER);
    ids.find(|part| part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Returns the id of a pod in the path of a cgroup of Kubernetes'.
fn pod(cgroup: &str) -> Option<String> {
    let is_id = |text: &&str| {
        text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-' || byte == b'_',
            _ => byte.is_ascii_hexdigit(),
        })
    };
    let mut starts = cgroup.match_indices("pod").map(|(at, _)| at + "pod".len());
    let id = starts.find_map(|at| cgroup.get(at..at + POD).filter(is_id));
    id.map(|id| id.replace('_', "-"))
}

/// Returns the name of a program by its words.
fn program(words: &[String]) -> &str {
    let name = |path: &String| -> usize { path.rfind('/').map_or(0, |at| at + 1) };
    let Some((first, rest)) = words.split_first() else {
        return "";
    };
    let file = first.get(name(first)..).unwrap_or_default();
    if !file.starts_with("python") {
        return file;
    }
    let mut rest = rest.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "-m" => return rest.next().map_or(file, String::as_str),
            "-c" => return file,
            "-W" | "-X" => drop(rest.next()),
            option if option.starts_with('-') => {}
            script => return script.get(name(word)..).unwrap_or(script),
        }
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn containers_and_pods_by_their_cgroups() {
        let pod_id = "8f1c2d3e-1111-2222-3333-444455556666";
        for path in [
            format!("/docker/{ID}"),
            format!("/system.slice/docker-{ID}.scope"),
            format!("/machine.slice/libpod-{ID}.scope/container"),
        ] {
            assert_eq!((container(&path), pod(&path)), (Some(ID), None), "{path}");
        }
        for path in [
            format!("/kubepods/burstable/pod{pod_id}/{ID}"),
            format!(
                "/kubepods.slice/kubepods-pod{}.slice/cri-containerd-{ID}.scope",
                pod_id.replace('-', "_")
            ),
        ] {
            assert_eq!(container(&path), Some(ID));
            assert_eq!(pod(&path).as_deref(), Some(pod_id), "{path}");
        }
        for path in ["/", "/user.slice/user-0.slice", "/podman/pod", "/x/podzzzz"] {
            assert_eq!((container(path), pod(path)), (None, None));
        }
    }

    #[test]
    fn programs_by_their_words() {
        for (line, wanted) in [
            (
                "/usr/bin/python3.12 -u -W ignore /x/train.py --lr 1",
                "train.py",
            ),
            (
                "python -m vllm.entrypoints.openai.api_server --port 1",
                "vllm.entrypoints.openai.api_server",
            ),
            ("python3 -c import", "python3"),
            ("/opt/llama-server -m model", "llama-server"),
            ("", ""),
        ] {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            assert_eq!(program(&words), wanted, "{line}");
        }
    }

    #[test]
    fn ours() {
        let labels = Labels::of(Pid::own()).unwrap();
        assert!(labels.program.contains("midair_session"), "{labels:?}");
        assert!(labels.cgroup.starts_with('/'), "{labels:?}");
    }
}
