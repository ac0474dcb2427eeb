//! Finds tests that passed only on a second try.
//!
//! A test may lose a race once. One that loses it often has a cause, and the run fails until that
//! is found. Each such test is run [`AGAIN`] times more in the same run, alone, and may fail once.
//! This needs nothing from earlier runs, so it also works on machines that start empty. Each run
//! also leaves a file with its list below `target/flaky`, or below the directory that
//! `MIDAIR_FLAKY` names. The run also fails if a test is on more than one list of the last ten.
//!
//! nextest's own settings do not give this: there a second try either passes or fails the run
//! (`flaky-result`), whatever further tries would say, and nothing is kept from run to run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use midair_dev_kit::run::{Outcome, failed, target_directory};

/// How many runs are looked at, including this one.
const RUNS: usize = 10;
/// How often a test that needed a second try is run again.
const AGAIN: usize = 5;
/// No further run starts after this time, because some tests take a minute and the suite has half
/// an hour.
const TIME: Duration = Duration::from_secs(150);
/// On how many lists a test may be, and how often it may fail when it is run again. It is not 0,
/// because AMD's runtimes abort by themselves in one exit of dozens.
const ALLOWED: usize = 1;

/// Returns the path of nextest's report on each test (.config/nextest.toml).
fn report() -> PathBuf {
    target_directory().join("nextest/default/junit.xml")
}

fn directory() -> PathBuf {
    std::env::var_os("MIDAIR_FLAKY").map_or_else(|| target_directory().join("flaky"), PathBuf::from)
}

/// Prepares the tests: a report of an earlier run must not be taken for this one's.
pub fn begin() {
    // The report need not exist.
    let _ = fs::remove_file(report());
}

/// Ends the tests: keeps this run's list, and fails for tests that are on too many lists and for
/// those that fail again. `run` runs one test of a binary, alone and without a second try. Without
/// a report, as without nextest, it does nothing.
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

/// Runs the tests again. All of them are run before the result is given.
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

/// Keeps `tests` as the list of run `number`, which is the newest, and judges all lists.
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

/// Writes a list, returns the lists of the last runs, and removes older ones.
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

/// Returns the tests that are on more lists than allowed, with the number of lists.
fn too_often(lists: &[String]) -> Vec<(&str, usize)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for test in lists.iter().flat_map(|list| list.lines()) {
        *counts.entry(test).or_default() += 1;
    }
    counts.retain(|_, count| *count > ALLOWED);
    counts.into_iter().collect()
}

/// Returns the tests of a JUnit report that failed first and then passed, as `BINARY TEST`.
fn flaky_tests(report: &str) -> Vec<String> {
    let mut found = Vec::new();
    for case in report.split("<testcase ").skip(1) {
        let case = case.split("</testcase>").next().unwrap_or(case);
        let head = case.split('>').next().unwrap_or(case);
        // A case without contents ends in `/>`. What follows does not belong to it.
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
        // This is the tenth run, and the first one still counts.
        let said = run(&["a"]).unwrap_err();
        assert!(
            said.contains("a (2 of 10)") && !said.contains("b ("),
            "{said}"
        );
        // In the eleventh run the first one does not count any more, but the tenth does.
        assert_eq!(run(&[]), Ok(()));
        assert!(run(&["a"]).is_err());
        assert_eq!(fs::read_dir(&at).unwrap().count(), RUNS);
    }
}
