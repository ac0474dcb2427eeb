//! Samples of program counters: `profile --pc-sampling`, or `-b 21`.
//!
//! They are taken in an attach, or a run of the program, of their own: what takes samples executes
//! instructions, which counters would count.

use super::collect::{Collection, Follow};
use super::watch::Attach;
use super::{given, text, usage};
use crate::analyze::words;
use crate::console::{Console, Level};
use crate::files;
use clap::ArgMatches;
use midair_failure::Failure;
use midair_output::files::Directory;
use std::path::{Path, PathBuf};

/// The number and the name of the panel that shows samples.
const PANEL: [&str; 2] = ["21", "pc_sampling"];
/// What follows the process's number in a file's name.
const END: &str = "_ps_file_results.json";
/// AMD's interval, in cycles or in microseconds.
const INTERVAL: &str = "1048576";

/// How samples are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sampling {
    method: String,
    interval: String,
    /// Whether counters are collected, too.
    pub(super) counts: bool,
}

impl Sampling {
    /// Reads the options. None if no samples are asked for.
    ///
    /// # Errors
    /// When options of samples are given alone, or the interval is none.
    pub(super) fn of(matches: &ArgMatches) -> Result<Option<Sampling>, Failure> {
        let blocks: Vec<String> = words(matches, "block")
            .iter()
            .flat_map(|word| word.split(','))
            .map(|word| word.trim().to_owned())
            .collect();
        let is_panel = |word: &String| PANEL.contains(&word.as_str());
        let is_asked = given(matches, "pc-sampling") || blocks.iter().any(is_panel);
        let parts = ["pc-sampling-method", "pc-sampling-interval"];
        if let (false, Some(part)) = (is_asked, parts.iter().find(|part| given(matches, part))) {
            return Err(usage(format!("--{part} requires --pc-sampling")));
        }
        if !is_asked {
            return Ok(None);
        }
        let interval = text(matches, "pc-sampling-interval");
        let interval = interval.unwrap_or_else(|| INTERVAL.to_owned());
        if interval.parse::<u32>().is_err() {
            return Err(usage(format!(
                "--pc-sampling-interval {interval} is not a number"
            )));
        }
        let method = text(matches, "pc-sampling-method");
        Ok(Some(Sampling {
            method: method.unwrap_or_else(|| "stochastic".to_owned()),
            interval,
            counts: blocks.iter().any(|word| !is_panel(word)) || given(matches, "set"),
        }))
    }

    /// Returns the words for the collecting program.
    fn words(&self) -> Vec<String> {
        let unit = match self.method.as_str() {
            "host_trap" => "time",
            _ => "cycles",
        };
        let words = [
            "--pc-sampling-beta-enabled",
            "--pc-sampling-method",
            &self.method,
            "--pc-sampling-unit",
            unit,
            "--pc-sampling-interval",
            &self.interval,
        ];
        words.map(str::to_owned).to_vec()
    }

    /// Takes samples as `of` collects, and puts the files into the workload directory. Returns the exit code
    /// of the collecting program.
    ///
    /// # Errors
    /// When it cannot be started, or a file cannot be moved.
    pub(super) fn collect(
        &self,
        of: &Collection,
        (directory, place): (&Path, &Directory),
        console: &Console,
    ) -> Result<u8, Failure> {
        let out = directory.join("out/samples");
        files::make(&out)?;
        let collection = Collection {
            groups: Vec::new(),
            definitions: None,
            launches: None,
            overhead: None,
            turns: None,
            live: None,
            sampling: Some(self.words()),
            directory: out,
            ..of.clone()
        };
        console.note(&format!(
            "samples of program counters: {}, each {} {}",
            self.method,
            self.interval,
            match self.method.as_str() {
                "host_trap" => "us",
                _ => "cycles",
            }
        ));
        let attach = collection.pid.clone().map(|pid| Attach {
            pid,
            duration: collection.duration.clone(),
        });
        let code = collection.run(console, &mut Said { console, attach })?;
        // Whoever can write to the directory may have put a link in its place.
        let found = match files::is_directory(&place.at("out")) {
            true => found(&place.at("out")),
            false => Vec::new(),
        };
        for file in &found {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            files::rename(file, place, &name)?;
        }
        if found.is_empty() {
            console.warning("no samples of program counters were collected");
        }
        Ok(code)
    }
}

/// Returns the files with samples below a directory.
fn found(below: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut open = vec![below.to_owned()];
    while let Some(directory) = open.pop() {
        for path in files::entries(&directory).unwrap_or_default() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if files::is_directory(&path) {
                open.push(path);
            } else if name.ends_with(END) {
                all.push(path);
            }
        }
    }
    all.sort();
    all
}

/// Passes on what the collecting program prints.
struct Said<'c> {
    console: &'c Console,
    attach: Option<Attach>,
}

impl Follow for Said<'_> {
    fn tick(&mut self) -> bool {
        false
    }

    fn line(&mut self, text: &str) {
        self.console.passed_on(text);
    }

    fn said(&mut self, text: &str) {
        self.console.text(&format!("{text}\n"));
        let sentence = self.attach.as_ref().and_then(|it| it.sentence(text));
        if let Some(sentence) = sentence
            && self.console.level >= Level::Normal
        {
            self.console.text(&format!("{sentence}\n"));
        }
    }
}
