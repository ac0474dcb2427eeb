//! Tests that passed on a second try.
//!
//! A test may lose a race once; one that loses it often has a cause, and the run fails until that is
//! found. Each such test is run [`AGAIN`] times more, alone, within the same run, and may fail once:
//! that needs nothing from earlier runs, so it holds on machines that start empty, too. Each run also
//! leaves a file with its list below `target/flaky` (or below the directory that `MIDAIR_FLAKY`
//! names), and a test that is on more than one of the last ten fails the run as well.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::run::{Outcome, failed, target_directory};

/// Runs that are looked back on, this one among them.
const RUNS: usize = 10;
/// How often a test that needed a second try is run once more.
const AGAIN: usize = 5;
/// No run begins later: some tests take a minute, and the suite has half an hour.
const TIME: Duration = Duration::from_secs(150);
/// In so many of them a test may be on the list, and so often may it fail when it is run once more:
/// AMD's runtimes end in an abort by themselves in one exit of dozens.
const ALLOWED: usize = 1;

/// Where nextest writes how each test went (.config/nextest.toml).
fn report() -> PathBuf {
    target_directory().join("nextest/default/junit.xml")
}

fn directory() -> PathBuf {
    std::env::var_os("MIDAIR_FLAKY").map_or_else(|| target_directory().join("flaky"), PathBuf::from)
}

/// Before the tests: what an earlier run reported is not this one's.
pub fn begin() {
    // It may not be there.
    let _ = fs::remove_file(report());
}

/// After the tests: keeps this run's list, and fails for tests that are on too many, and for those
/// that fail once more. `run`: runs one test of a binary, alone, without a second try. Nothing where there
/// is no report, as without nextest.
pub fn end(run: &mut dyn FnMut(&str, &str) -> Outcome<()>) -> Outcome<()> {
    let Ok(report) = fs::read_to_string(report()) else {
        return Ok(());
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let number = now.map_or(0, |since| since.as_nanos());
    let tests = flaky_tests(&report);
    let listed = judge(&directory(), number, &tests);
    listed.and(once_more(&tests, run))
}

/// Runs the tests again. All are run before the answer.
fn once_more(tests: &[String], run: &mut dyn FnMut(&str, &str) -> Outcome<()>) -> Outcome<()> {
    let mut failures = Vec::new();
    let limit = Instant::now() + TIME;
    for (binary, test) in tests.iter().filter_map(|line| line.split_once(' ')) {
        println!("== once more, alone: {binary} {test}");
        let rounds = (0..AGAIN).take_while(|_| Instant::now() < limit);
        let lost = rounds.filter(|_| run(binary, test).is_err()).count();
        if lost > ALLOWED {
            failures.push(format!("  {binary} {test} ({lost} of {AGAIN} times)"));
        }
    }
    if failures.is_empty() {
        return Ok(());
    }
    failed(format!(
        "passed on a second try, and failed again alone; find the cause:\n{}",
        failures.join("\n")
    ))
}

/// Keeps `tests` as the list of run `number`, the newest, and judges all.
fn judge(directory: &Path, number: u128, tests: &[String]) -> Outcome<()> {
    let kept = keep(directory, number, tests);
    let lists = match kept {
        Ok(lists) => lists,
        Err(error) => return failed(format!("{}: {error}", directory.display())),
    };
    if !tests.is_empty() {
        println!("== passed on a second try");
        tests.iter().for_each(|test| println!("{test}"));
    }
    let again = too_often(&lists);
    if again.is_empty() {
        return Ok(());
    }
    let words: Vec<String> = again
        .iter()
        .map(|(test, count)| format!("  {test} ({count} of {})", lists.len()))
        .collect();
    failed(format!(
        "passed only on a second try in more than {ALLOWED} of the last {RUNS} runs; find the cause:\n{}",
        words.join("\n")
    ))
}

/// Writes a list and gives those of the last runs; older ones are removed.
fn keep(directory: &Path, number: u128, tests: &[String]) -> std::io::Result<Vec<String>> {
    fs::create_dir_all(directory)?;
    let text: String = tests.iter().map(|test| format!("{test}\n")).collect();
    fs::write(directory.join(format!("{number:039}")), text)?;
    let mut runs: Vec<PathBuf> = fs::read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    runs.sort();
    let old = runs.len().saturating_sub(RUNS);
    for run in runs.drain(..old) {
        fs::remove_file(run)?;
    }
    runs.iter().map(fs::read_to_string).collect()
}

/// Tests on more lists than allowed, with their number.
fn too_often(lists: &[String]) -> Vec<(&str, usize)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for test in lists.iter().flat_map(|list| list.lines()) {
        *counts.entry(test).or_default() += 1;
    }
    counts.retain(|_, count| *count > ALLOWED);
    counts.into_iter().collect()
}

/// Tests of a report in JUnit's form that failed first and passed then: `BINARY TEST`.
fn flaky_tests(report: &str) -> Vec<String> {
    let mut found = Vec::new();
    for case in report.split("<testcase ").skip(1) {
        let case = case.split("</testcase>").next().unwrap_or(case);
        let head = case.split('>').next().unwrap_or(case);
        // One without anything inside ends in `/>`; the next case is not its own.
        if head.ends_with('/') || !case.contains("<flakyFailure") {
            continue;
        }
        let value = |name: &str| {
            let (_, rest) = head.split_once(&format!("{name}=\""))?;
            rest.split_once('"').map(|(value, _)| value)
        };
        if let (Some(binary), Some(test)) = (value("classname"), value("name")) {
            found.push(format!("{binary} {test}"));
        }
    }
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"<testsuites>
    <testsuite name="midair-tests::e2e">
        <testcase name="idle::waits" classname="midair-tests::e2e" time="1">
            <flakyFailure message="thread panicked: a > b" type="test failure"/>
        </testcase>
        <testcase name="calls::all" classname="midair-tests::e2e" time="2"/>
        <testcase name="calls::fails" classname="midair-tests::e2e" time="2">
            <failure type="test failure"><![CDATA[x]]></failure>
            <rerunFailure type="test failure"/>
        </testcase>
        <testcase name="trees::twice" classname="midair-tests::e2e" time="3">
            <flakyFailure type="test failure"/>
            <flakyFailure type="test failure"/>
        </testcase>
    </testsuite>
    </testsuites>"#;

    #[test]
    fn those_that_passed_on_a_second_try_are_found() {
        let expected = [
            "midair-tests::e2e idle::waits",
            "midair-tests::e2e trees::twice",
        ];
        assert_eq!(flaky_tests(REPORT), expected);
        assert!(flaky_tests("").is_empty());
    }

    #[test]
    fn a_test_that_fails_twice_again_alone_is_a_failure() {
        let tests = ["b::e2e good", "b::e2e bad"].map(str::to_owned);
        let mut runs = Vec::new();
        let said = once_more(&tests, &mut |binary, test| {
            runs.push(format!("{binary} {test}"));
            match (test, runs.len()) {
                ("good", 3) | ("bad", 7 | 9) => failed("it failed"),
                _ => Ok(()),
            }
        });
        let said = said.unwrap_err().to_string();
        assert!(
            said.contains("b::e2e bad (2 of 5 times)") && !said.contains("good"),
            "{said}"
        );
        assert_eq!((runs.len(), runs[4].as_str()), (10, "b::e2e good"));
        assert!(once_more(&tests[..1], &mut |_, _| Ok(())).is_ok());
        assert!(once_more(&[], &mut |_, _| failed("not called")).is_ok());
    }

    #[test]
    fn twice_in_ten_runs_is_a_failure_and_once_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("flaky");
        let mut number = 0;
        let mut run = |tests: &[&str]| {
            number += 1;
            let tests: Vec<String> = tests.iter().map(ToString::to_string).collect();
            judge(&at, number, &tests).map_err(|failure| failure.to_string())
        };
        assert_eq!(run(&["a"]), Ok(()));
        assert_eq!(run(&["b"]), Ok(()));
        for _ in 0..7 {
            assert_eq!(run(&[]), Ok(()));
        }
        // The tenth run: the first still counts.
        let said = run(&["a"]).unwrap_err();
        assert!(
            said.contains("a (2 of 10)") && !said.contains("b ("),
            "{said}"
        );
        // In the eleventh it does not, and the list of the tenth does.
        assert_eq!(run(&[]), Ok(()));
        assert!(run(&["a"]).is_err());
        assert_eq!(fs::read_dir(&at).unwrap().count(), RUNS);
    }
}
