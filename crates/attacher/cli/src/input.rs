//! Options in a file: `--input`.
//!
//! As in AMD's tool (`docs/sources.md#rocprofv3`), an input file is a text with lines of counters,
//! or YAML or JSON with jobs, whose keys are the long names of options with underscores. A started
//! program runs once for each group of counters, as with AMD's tool. In a process that is attached
//! to, one session multiplexes the groups. Several jobs may differ only in their counters.

#![cfg_attr(
    not(test),
    expect(
        clippy::disallowed_methods,
        reason = "the file is the caller's, read with the caller's rights"
    )
)]

use midair_counters::definitions::yaml::{self, Node};
use midair_failure::{Failure, Kind};
use midair_session::as_real_user;
use midair_settings::options::option;
use midair_settings::{Given, Shape, Value};
use std::io::Read;

use crate::command::refused;

/// The most bytes of such a file.
const MOST: u64 = 4 << 20;

/// Reads the file that `--input` names, and gives its options to `given`.
///
/// # Errors
/// A file that cannot be read, that has values which an option would not take, or that contradicts
/// the command line.
pub fn take(given: &mut Given) -> Result<Taken, Failure> {
    let Some(path) = given.text("input").map(str::to_owned) else {
        return Ok(Taken::default());
    };
    let text = read(&path)?;
    let jobs = jobs(&path, &text)?;
    let taken = Taken {
        groups: jobs.groups.len(),
        directory: jobs.directory,
        take_turns: jobs.take_turns,
        mixed: jobs.mixed || jobs.take_turns && given.get("pmc").is_some(),
        interval: jobs.interval.clone(),
    };
    apply(&path, jobs, given)?;
    Ok(taken)
}

/// What matters of an input file where a program is started for each group of counters.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// How many groups of counters, at the end of the list, come from the file.
    pub groups: usize,
    /// The start of the names of the directories of their results, or empty without a file.
    pub directory: &'static str,
    /// Whether one run multiplexes them.
    pub take_turns: bool,
    /// Whether other groups are not multiplexed.
    pub mixed: bool,
    /// After how many dispatches the next group has its turn.
    pub interval: Option<String>,
}

fn usage(text: String) -> Failure {
    Failure::new(Kind::Usage, text)
}

/// Returns the file's text. It is read with the rights of the user who started us, since our own
/// rights may be greater.
fn read(path: &str) -> Result<String, Failure> {
    let read = || {
        let mut text = String::new();
        let file = std::fs::File::open(path)?;
        file.take(MOST + 1).read_to_string(&mut text)?;
        Ok::<String, std::io::Error>(text)
    };
    let read = as_real_user(read).flatten();
    let text = read.map_err(|error| usage(format!("--input {path}: {error}")))?;
    if text.len() as u64 > MOST {
        return Err(usage(format!("--input {path}: more than 4 MiB")));
    }
    Ok(text)
}

/// What a file asks for: the words of options, by their long names.
#[derive(Debug, Default, PartialEq, Eq)]
struct Jobs {
    /// A text for each group of counters.
    groups: Vec<String>,
    /// See [`Taken`].
    directory: &'static str,
    take_turns: bool,
    mixed: bool,
    interval: Option<String>,
    /// The other options.
    options: Vec<(String, Vec<String>)>,
}

fn jobs(path: &str, text: &str) -> Result<Jobs, Failure> {
    let extension = path.rsplit('/').next().unwrap_or(path).rsplit_once('.');
    match extension.map(|(_, extension)| extension) {
        Some("txt" | "text") => Ok(lines(text)),
        Some("yaml" | "yml" | "json") => {
            let root = yaml::parse(text).map_err(|why| usage(format!("--input {path}: {why}")))?;
            nodes(&root).map_err(|why| usage(format!("--input {path}: {why}")))
        }
        _ => Err(usage(format!(
            "--input {path}: the file extension must be .txt, .yaml or .json"
        ))),
    }
}

/// Reads a text in which a line with `pmc:` is a group. Everything else in the file is ignored, as
/// in AMD's tool.
fn lines(text: &str) -> Jobs {
    let group = |line: &str| {
        let line = line.split('#').next().unwrap_or_default();
        let (_, names) = line.split_once("pmc:")?;
        Some(names.trim().to_owned()).filter(|names| !names.is_empty())
    };
    Jobs {
        groups: text.lines().filter_map(group).collect(),
        directory: "pmc_",
        ..Jobs::default()
    }
}

fn nodes(root: &Node) -> Result<Jobs, String> {
    let Some(Node::List(jobs)) = root.get("jobs") else {
        return Err("no list 'jobs' found".to_owned());
    };
    let mut all = Jobs {
        directory: "pass_",
        ..Jobs::default()
    };
    for job in jobs {
        let Node::Map(entries) = job else {
            return Err("a job must be a map of options".to_owned());
        };
        if job.get("pmc").is_some() && job.get("pmc_groups").is_some() {
            return Err("a job has pmc or pmc_groups, not both".to_owned());
        }
        for (key, value) in entries {
            match (key.as_str(), value) {
                (_, Node::Null) => {}
                ("pmc", value) => all.groups.push(words(key, value)?.join(" ")),
                ("pmc_group_interval", value) => {
                    let number = words(key, value)?.join(" ");
                    if number.parse::<u64>().is_err() {
                        return Err(format!("{key} must be a number"));
                    }
                    all.interval = Some(number);
                }
                ("pmc_groups", Node::List(groups)) => {
                    all.take_turns = true;
                    for group in groups {
                        all.groups.push(words(key, group)?.join(" "));
                    }
                }
                ("pmc_groups", _) => return Err("pmc_groups must be a list of lists".to_owned()),
                _ => {
                    let long = key.replace('_', "-");
                    let new = words(key, value)?;
                    match all.options.iter().find(|(known, _)| *known == long) {
                        Some((_, known)) if *known != new => {
                            return Err(format!(
                                "jobs have different {key}: an attach counts all groups in one session"
                            ));
                        }
                        Some(_) => {}
                        None => all.options.push((long, new)),
                    }
                }
            }
        }
    }
    all.mixed = all.take_turns && jobs.iter().any(|job| job.get("pmc").is_some());
    all.groups.retain(|group| !group.trim().is_empty());
    Ok(all)
}

fn words(key: &str, value: &Node) -> Result<Vec<String>, String> {
    let word = |node: &Node| node.scalar().map(str::to_owned);
    let words = match value {
        Node::List(all) => all.iter().map(word).collect(),
        one => word(one).map(|word| vec![word]),
    };
    words.ok_or_else(|| format!("{key} must be a text or a list of texts"))
}

fn apply(path: &str, jobs: Jobs, given: &mut Given) -> Result<(), Failure> {
    for (long, words) in jobs.options {
        let known = option(&long).filter(|option| option.long != "input");
        let Some(known) = known else {
            let text = format!("--input {path}: unknown option {}", long.replace('-', "_"));
            return Err(usage(text));
        };
        // AMD writes a flag as a key with the value true.
        let words = match known.shape {
            Shape::Flag => Vec::new(),
            _ => words,
        };
        let earlier = given.get(&long).cloned();
        given.give(known, &words).map_err(refused)?;
        if let Some(earlier) = earlier
            && given.get(&long) != Some(&earlier)
        {
            return Err(usage(format!(
                "--{long} has different values on the command line and in {path}"
            )));
        }
    }
    if let Some(pmc) = option("pmc").filter(|_| !jobs.groups.is_empty()) {
        let mut groups = match given.get("pmc") {
            Some(Value::Texts(groups)) => groups.clone(),
            _ => Vec::new(),
        };
        groups.extend(jobs.groups);
        given.give(pmc, &groups).map_err(refused)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given_by(name: &str, text: &str, mut given: Given) -> Result<Given, Failure> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap().to_owned();
        given.give(option("input").unwrap(), &[path]).unwrap();
        take(&mut given)?;
        Ok(given)
    }

    fn groups(given: &Given) -> Vec<String> {
        match given.get("pmc") {
            Some(Value::Texts(groups)) => groups.clone(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn lines_of_a_text_are_groups() {
        let text = "# pmc: X\npmc: SQ_WAVES GRBM_COUNT # both\ngpu: 0\n\npmc: TCC_HIT\npmc:\n";
        let given = given_by("in.txt", text, Given::new()).unwrap();
        assert_eq!(groups(&given), ["SQ_WAVES GRBM_COUNT", "TCC_HIT"]);
        // These follow the command line's groups.
        let mut first = Given::new();
        first.give(option("pmc").unwrap(), &["A".into()]).unwrap();
        let given = given_by("in.text", text, first).unwrap();
        assert_eq!(groups(&given), ["A", "SQ_WAVES GRBM_COUNT", "TCC_HIT"]);
    }

    #[test]
    fn jobs_of_yaml_and_json_are_options_and_groups() {
        let yaml = "jobs:\n  - pmc:\n      - SQ_WAVES\n      - GRBM_COUNT\n    kernel_include_regex: vadd\n    kernel_iteration_range: [\"[1-2]\", \"[5]\"]\n    truncate_kernels: true\n    output_format: [csv, json]\n  - pmc_groups:\n      - [TCC_HIT]\n      - [TCC_MISS, TCC_REQ]\n    truncate_kernels: true\n";
        let json = r#"{"jobs":[{"pmc":["SQ_WAVES","GRBM_COUNT"],"kernel_include_regex":"vadd","kernel_iteration_range":["[1-2]","[5]"],"truncate_kernels":true,"output_format":["csv","json"],"output_directory":null},{"pmc_groups":[["TCC_HIT"],["TCC_MISS","TCC_REQ"]],"truncate_kernels":true}]}"#;
        for (name, text) in [("in.yaml", yaml), ("in.yml", yaml), ("in.json", json)] {
            let given = given_by(name, text, Given::new()).unwrap();
            assert_eq!(
                groups(&given),
                ["SQ_WAVES GRBM_COUNT", "TCC_HIT", "TCC_MISS TCC_REQ"]
            );
            assert_eq!(given.text("kernel-include-regex"), Some("vadd"));
            assert!(given.is_on("truncate-kernels"), "{name}");
            let formats = Value::Texts(vec!["csv".into(), "json".into()]);
            assert_eq!(given.get("output-format"), Some(&formats));
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_the_file() {
        for (name, text, why) in [
            ("in", "", "file extension must be"),
            ("in.json", "{}", "no list 'jobs'"),
            ("in.yaml", "jobs:\n  - x: &a 1\n", "line 2"),
            (
                "in.yaml",
                "jobs:\n  - no_such: 1\n",
                "unknown option no_such",
            ),
            (
                "in.yaml",
                "jobs:\n  - output_file: a\n  - output_file: b\n",
                "different output_file",
            ),
            (
                "in.yaml",
                "jobs:\n  - pmc: [A]\n    pmc_groups: [[B]]\n",
                "not both",
            ),
            ("in.yaml", "jobs:\n  - pmc: [[A]]\n", "a list of texts"),
            (
                "in.yaml",
                "jobs:\n  - input: x.yaml\n",
                "unknown option input",
            ),
            (
                "in.yaml",
                "jobs:\n  - rocshmem_trace: true\n",
                "--rocshmem-trace",
            ),
        ] {
            let failure = given_by(name, text, Given::new()).unwrap_err();
            assert!(failure.what.contains(why), "{name} {text}: {failure}");
        }
        let mut other = Given::new();
        let file = option("output-file").unwrap();
        other.give(file, &["a".into()]).unwrap();
        let text = "jobs:\n  - output_file: b\n";
        let failure = given_by("in.yaml", text, other).unwrap_err();
        assert!(failure.what.contains("--output-file"), "{failure}");
        let mut nowhere = Given::new();
        let input = option("input").unwrap();
        nowhere.give(input, &["/no/such.txt".into()]).unwrap();
        assert_eq!(take(&mut nowhere).unwrap_err().kind, Kind::Usage);
    }
}
