//! Tidies the words of `midair` before they are parsed: forms that people type and for which clap
//! has no rule.

use midair_failure::{Failure, Kind};
use midair_session::Pid;
use midair_session::find::{Found, gpu_processes, named};
use midair_settings::Shape;
use midair_settings::commands::names_a_process;
use midair_settings::options::option;
use std::ffi::OsString;

/// Commands that take the table's options.
const RECORDING: [&str; 2] = ["attach", "run"];

/// Returns the words in the form that clap parses. `midair PID` and `midair -p PID` mean `midair
/// attach`, and formats may be separated by spaces, as in rocprofv3.
pub(crate) fn tidied(words: &[OsString]) -> Vec<OsString> {
    let mut words = words.to_vec();
    if words.get(1).is_some_and(|word| names_a_process(word)) {
        words.insert(1, "attach".into());
    }
    // `midair help` and `midair help COMMAND`.
    if words.get(1).is_some_and(|word| word == "help") {
        words.remove(1);
        words.truncate(2);
        words.push("--help".into());
    }
    let command = words.get(1).and_then(|word| word.to_str());
    if command.is_some_and(|command| RECORDING.contains(&command)) {
        join_formats(&mut words);
    }
    words
}

/// Turns `-f csv pftrace` into `-f csv,pftrace`.
fn join_formats(words: &mut Vec<OsString>) {
    let Some(Shape::SomeOf(known)) = option("output-format").map(|option| option.shape) else {
        return;
    };
    let is_list = |word: &OsString| {
        let word = word.to_str().unwrap_or_default();
        !word.is_empty()
            && word
                .split(',')
                .all(|part| known.contains(&part.to_ascii_lowercase().as_str()))
    };
    let mut at = 0;
    while let Some(word) = words.get(at).and_then(|word| word.to_str()) {
        if word == "--" {
            return;
        }
        at += 1;
        if !["-f", "--output-format"].contains(&word) {
            continue;
        }
        while words.get(at).is_some_and(is_list) && words.get(at + 1).is_some_and(is_list) {
            let next = words.remove(at + 1);
            if let Some(first) = words.get_mut(at) {
                first.push(",");
                first.push(next);
            }
        }
    }
}

/// Returns the process that a word means: a number, or the name of the one process with a GPU
/// runtime that has this name.
///
/// # Errors
/// [`Kind::NoProcess`] where no such process has the name, [`Kind::Usage`] where several have it,
/// and for 0.
pub(crate) fn process(word: &str) -> Result<Pid, Failure> {
    match word.parse() {
        Ok(0) => Err(Failure::new(Kind::Usage, "0 is no process")
            .hint("midair ps lists the processes that use a GPU")),
        Ok(number) => named(number),
        Err(_) => one_of(word, &gpu_processes()),
    }
}

fn one_of(word: &str, all: &[Found]) -> Result<Pid, Failure> {
    let program = |found: &Found| {
        let first = found.command.split(' ').next().unwrap_or_default();
        first.rsplit('/').next().unwrap_or_default().to_owned()
    };
    let is_it = |found: &&Found| found.name == word || program(found) == word;
    let mut those: Vec<&Found> = all.iter().filter(is_it).collect();
    if those.is_empty() {
        let mentions = |found: &&Found| found.command.contains(word);
        those = all.iter().filter(mentions).collect();
    }
    match those.as_slice() {
        [only] => Ok(only.pid),
        [] => Err(Failure::new(
            Kind::NoProcess,
            format!("no process with a GPU runtime is named '{word}'"),
        )
        .hint("midair ps lists the GPU processes; a PID works for any process")),
        several => {
            let several: Vec<String> = several
                .iter()
                .map(|found| format!("{} ({})", found.pid, found.name))
                .collect();
            Err(Failure::new(
                Kind::Usage,
                format!("'{word}' matches several processes: {}", several.join(", ")),
            )
            .hint("give the PID of one, or use --name for all of them"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tidy(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let words = tidied(&words);
        let words: Vec<&str> = words.iter().map(|word| word.to_str().unwrap()).collect();
        words.join(" ")
    }

    #[test]
    fn a_process_alone_is_attached_to() {
        for (given, wanted) in [
            ("midair 77 -d 1s", "midair attach 77 -d 1s"),
            ("midair -p 77", "midair attach -p 77"),
            ("midair -p77", "midair attach -p77"),
            ("midair --pid 77", "midair attach --pid 77"),
            ("midair --pid=77", "midair attach --pid=77"),
            ("midair ps", "midair ps"),
            ("midair help", "midair --help"),
            ("midair help attach", "midair attach --help"),
            ("midair attach help", "midair attach help"),
            ("midair --version", "midair --version"),
            ("midair", "midair"),
        ] {
            assert_eq!(tidy(given), wanted);
        }
    }

    #[test]
    fn formats_may_be_separated_by_spaces() {
        for (given, wanted) in [
            (
                "midair attach -f csv pftrace 77",
                "midair attach -f csv,pftrace 77",
            ),
            (
                "midair attach 77 -f csv json,rocpd PFTRACE",
                "midair attach 77 -f csv,json,rocpd,PFTRACE",
            ),
            (
                "midair attach --output-format csv 77",
                "midair attach --output-format csv 77",
            ),
            (
                "midair run -f csv json ./app -f csv json",
                "midair run -f csv,json ./app -f csv,json",
            ),
            (
                "midair run -f csv -- ./app -f csv json",
                "midair run -f csv -- ./app -f csv json",
            ),
            ("midair ps -f csv json", "midair ps -f csv json"),
        ] {
            assert_eq!(tidy(given), wanted);
        }
    }

    #[test]
    fn a_name_means_one_process() {
        let found = |pid: u32, name: &str, command: &str| Found {
            pid: Pid::new(pid).unwrap(),
            parent: None,
            start_ticks: 0,
            uids: [0; 3],
            name: name.to_owned(),
            command: command.to_owned(),
            runtimes: Vec::new(),
            readable: true,
        };
        let all = [
            found(10, "python3", "/usr/bin/python3 train.py"),
            found(11, "python3", "/usr/bin/python3 serve.py"),
            found(12, "main", "/opt/gemm --size 4"),
        ];
        assert_eq!(one_of("gemm", &all).unwrap().get(), 12);
        assert_eq!(one_of("train.py", &all).unwrap().get(), 10);
        let several = one_of("python3", &all).unwrap_err();
        assert_eq!(several.kind, Kind::Usage);
        assert!(
            several.what.contains("10 (python3), 11 (python3)"),
            "{several}"
        );
        assert_eq!(one_of("nothing", &all).unwrap_err().kind, Kind::NoProcess);
        assert_eq!(process("4242").unwrap().get(), 4242);
    }
}
