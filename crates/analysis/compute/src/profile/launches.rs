//! What options of `profile` ask for that several versions of AMD's tool spell differently.

use super::{given, usage};
use crate::analyze::words;
use crate::command::SHORT_D;
use clap::ArgMatches;
use midair_failure::Failure;
use std::ffi::OsString;
use std::path::PathBuf;

/// Which launches of each kernel to count, and where to write.
#[derive(Debug, Default, PartialEq)]
pub(super) struct LaunchOptions {
    /// Launches: `3`, `1-5` or `1:5`; empty: all.
    pub launches: Vec<String>,
    /// The directory for the files.
    pub directory: Option<PathBuf>,
}

impl LaunchOptions {
    /// Reads `--kernel-iteration-range`, `--output-directory`, and `-d`, which is one of them (AMD-177).
    ///
    /// # Errors
    /// When words of `-d` are launches and directories, or when it repeats another option.
    pub(super) fn of(matches: &ArgMatches) -> Result<LaunchOptions, Failure> {
        let mut asked = LaunchOptions {
            launches: words(matches, "kernel-iteration-range"),
            directory: matches.get_one("output-directory").cloned(),
        };
        let short: Vec<OsString> = matches
            .get_many(SHORT_D)
            .map(|words| words.cloned().collect())
            .unwrap_or_default();
        let is_launch = |word: &OsString| word.to_str().is_some_and(is_launches);
        match short.as_slice() {
            [] => {}
            all if all.iter().all(is_launch) => {
                if !asked.launches.is_empty() {
                    return Err(usage(
                        "-d and --kernel-iteration-range are the same option here",
                    ));
                }
                asked.launches = all
                    .iter()
                    .map(|word| word.to_string_lossy().into_owned())
                    .collect();
            }
            [directory] => {
                if given(matches, "output-directory") {
                    return Err(usage("-d and --output-directory are the same option here"));
                }
                asked.directory = Some(directory.into());
            }
            all => {
                let all: Vec<_> = all.iter().map(|word| word.to_string_lossy()).collect();
                return Err(usage(format!(
                    "-d {}: these are neither launches nor one directory",
                    all.join(" ")
                ))
                .hint("use --kernel-iteration-range 1 3-5, or --output-directory DIR"));
            }
        }
        let launches = asked.launches.iter().flat_map(|word| word.split(','));
        if let Some(none) = launches.map(str::trim).find(|word| *word == "0") {
            return Err(usage(format!("launch {none} does not exist"))
                .hint("launches of each kernel are counted from 1"));
        }
        Ok(asked)
    }
}

/// Whether a word is a list of launches: `3`, `1-5`, `1:5`, `1,3-5`.
fn is_launches(word: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    word.split(',')
        .map(str::trim)
        .all(|part| match part.split_once(['-', ':']) {
            Some((first, last)) => is_number(first) && is_number(last),
            None => is_number(part),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &[&str]) -> Result<LaunchOptions, Failure> {
        let matches = crate::command::command()
            .try_get_matches_from([&["rocprof-compute", "profile"], words].concat())
            .unwrap();
        LaunchOptions::of(matches.subcommand_matches("profile").unwrap())
    }

    #[test]
    fn d_is_what_each_version_means_by_it() {
        let launches = |words: &[&str]| asked(words).unwrap().launches;
        assert_eq!(launches(&["-d", "1", "3:5"]), ["1", "3:5"]);
        assert_eq!(launches(&["-d", "1,3-5", "-n", "x"]), ["1,3-5"]);
        assert_eq!(launches(&["--dispatch", "2"]), ["2"]);
        assert_eq!(launches(&["-d", "out"]), [""; 0]);
        for words in [
            &["-d", "out/1"][..],
            &["-d", "./1"],
            &["--output-directory", "1"],
        ] {
            let directory = asked(words).unwrap().directory.unwrap();
            assert_eq!(directory, PathBuf::from(words[1]));
        }
        for (words, what) in [
            (
                &["-d", "1", "out"][..],
                "neither launches nor one directory",
            ),
            (&["-d", "a", "b"], "neither launches nor one directory"),
            (&["-d", "a", "--output-directory", "b"], "the same option"),
            (&["-d", "1", "--dispatch", "2"], "the same option"),
            (&["-d", "0"], "launch 0 does not exist"),
            (&["--kernel-iteration-range", "1,0"], "launch 0"),
        ] {
            let failure = asked(words).unwrap_err();
            assert!(failure.what.contains(what), "{words:?}: {}", failure.what);
        }
    }
}
