//! The table: on the terminal while it grows, and at the end as json, as a page and in the
//! documentation.

use crate::arguments::Arguments;
use crate::cell::Cell;
use crate::tally::{Tally, at};
use midair_tests::Result;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The result of a cell by one attach method.
pub struct Line {
    row: u8,
    cell: String,
    by: &'static str,
    good: bool,
    tally: Tally,
}

impl Line {
    /// Makes the line of a cell.
    pub fn of(cell: &Cell, by: &'static str, tally: Tally) -> Line {
        let line = Line {
            row: cell.row,
            cell: cell.name.clone(),
            by,
            good: by != "midair" || cell.passes(&tally),
            tally,
        };
        eprintln!("    {}", line.progress());
        line
    }

    fn progress(&self) -> String {
        if let Some(why) = &self.tally.left_out {
            return format!("{}: LEFT OUT, NOT TESTED: {why}", self.by);
        }
        let tally = &self.tally;
        let mut text = format!(
            "{}: {} in {}, refused {}, failed {}, hung {}, crashed {}, wrong {}, EINTR {}, left {}; attach {} stop {}{}",
            self.by,
            tally.cycles,
            tally.entered,
            tally.refusals(),
            tally.failed,
            tally.hung,
            tally.crashed,
            tally.wrong,
            tally.eintr,
            tally.residue,
            three(&tally.attach),
            three(&tally.stopped),
            if self.good { "" } else { "  <== NOT RIGHT" },
        );
        for (name, (count, arguments)) in &tally.refused {
            let _infallible = write!(text, "\n        {count} {name}: {arguments}");
        }
        for note in &tally.notes {
            let _infallible = write!(text, "\n        {note}");
        }
        text
    }
}

/// The whole report.
pub struct Report {
    lines: Vec<Line>,
    /// The state of the machine and the sources at the start, since a user may commit while this
    /// runs.
    machine: Vec<(&'static str, String)>,
    about: Vec<String>,
    left_out: Vec<String>,
    began: Instant,
    load: String,
    command: String,
}

impl Report {
    /// Makes an empty report.
    pub fn new(arguments: &Arguments) -> Report {
        Report {
            lines: Vec::new(),
            machine: Self::machine(),
            about: arguments.notes.clone(),
            left_out: Vec::new(),
            began: Instant::now(),
            load: load(),
            command: std::env::args().skip(1).collect::<Vec<_>>().join(" "),
        }
    }

    /// Adds a program that takes part.
    pub fn about(&mut self, text: String) {
        self.about.push(text);
    }

    /// Adds a program that does not take part.
    pub fn left_out(&mut self, why: &str) {
        eprintln!("LEFT OUT, NOT TESTED: {why}");
        self.left_out.push(why.to_owned());
    }

    /// Adds a finished cell.
    pub fn add(&mut self, line: Line) {
        self.lines.push(line);
    }

    /// Returns whether nothing of midair's went wrong.
    pub fn is_good(&self) -> bool {
        self.lines.iter().all(|line| line.good)
    }

    /// Writes the files that were asked for, and prints the sums on the terminal.
    ///
    /// # Errors
    /// Fails when the files cannot be written.
    pub fn write(&self, arguments: &Arguments) -> Result<()> {
        self.write_files(arguments)?;
        eprintln!("{}", self.sums());
        Ok(())
    }

    /// Writes the files as they are so far, because a run takes long and may be cut short.
    ///
    /// # Errors
    /// Fails when the files cannot be written.
    pub fn write_files(&self, arguments: &Arguments) -> Result<()> {
        let page = self.page();
        // A table without our own method is another one, and does not replace the table with it.
        let (name, markers, short) = match arguments.only_others {
            true => ("torture-others", OTHERS, self.others_only()),
            false => ("torture", ALL, page.clone()),
        };
        if let Some(dir) = &arguments.out {
            std::fs::create_dir_all(dir)?;
            let (page_at, json_at) = (
                dir.join(format!("{name}.md")),
                dir.join(format!("{name}.json")),
            );
            match arguments.part() {
                Some(part) => put_part(&page_at, &json_at, &part, &page, self.json())?,
                None => {
                    std::fs::write(page_at, &page)?;
                    std::fs::write(json_at, serde_json::to_string_pretty(&self.json())? + "\n")?;
                }
            }
        }
        if let Some(docs) = &arguments.docs {
            put_between(docs, markers, &short)?;
        }
        Ok(())
    }

    fn machine() -> Vec<(&'static str, String)> {
        let said = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).output();
            let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
            text.unwrap_or_default().trim().to_owned()
        };
        let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpu.lines().find_map(|line| line.strip_prefix("model name"));
        let model = model.unwrap_or("").trim_start_matches([' ', '\t', ':']);
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        vec![
            ("machine", format!("{cores} cores, {model}")),
            ("kernel", said("uname", &["-sr"])),
            ("date", said("date", &["-u", "+%Y-%m-%d %H:%M UTC"])),
            (
                "commit",
                said(
                    "git",
                    &[
                        "-C",
                        env!("CARGO_MANIFEST_DIR"),
                        "describe",
                        "--always",
                        "--dirty",
                    ],
                ),
            ),
        ]
    }

    fn json(&self) -> Value {
        let lines = self.lines.iter().map(|line| {
            json!({"row": line.row, "cell": line.cell, "by": line.by, "good": line.good, "tally": line.tally.json()})
        });
        json!({
            "about": self.machine.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
            "others": self.about,
            "left_out": self.left_out,
            "load_before": self.load,
            "load_after": load(),
            "arguments": self.command,
            "build": if cfg!(debug_assertions) { "debug" } else { "release" },
            "took_s": self.began.elapsed().as_secs(),
            "cells": lines.collect::<Vec<_>>(),
        })
    }

    /// Returns the attach methods that have a line, in the order of their first lines.
    fn methods(&self) -> Vec<&'static str> {
        let mut methods = Vec::new();
        for line in &self.lines {
            if !methods.contains(&line.by) {
                methods.push(line.by);
            }
        }
        methods
    }

    /// Returns what the page says of the other methods: where and when they ran, and their sums.
    fn others_only(&self) -> String {
        let mut text = self.head();
        for method in self.methods() {
            let _infallible = writeln!(text, "* {}", self.sums_of(method));
        }
        text
    }

    /// Returns where, when and how the matrix was run, and which programs took part.
    fn head(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.machine {
            let _infallible = writeln!(text, "* {name}: {value}");
        }
        let _infallible = writeln!(text, "* {}", self.about_the_run());
        for about in &self.about {
            let _infallible = writeln!(text, "* {about}");
        }
        for why in &self.left_out {
            let _infallible = writeln!(text, "* left out, not tested: {why}");
        }
        text
    }

    fn about_the_run(&self) -> String {
        format!(
            "load before {}, after {}; {} build; `cargo xtask torture {}` took {:.0} s",
            self.load,
            load(),
            if cfg!(debug_assertions) {
                "debug"
            } else {
                "release"
            },
            self.command,
            self.began.elapsed().as_secs_f64()
        )
    }

    /// Returns the sums of each attach method.
    fn sums(&self) -> String {
        let sums = self
            .methods()
            .into_iter()
            .map(|method| self.sums_of(method));
        sums.collect::<Vec<_>>().join("\n* ")
    }

    fn sums_of(&self, method: &str) -> String {
        let lines: Vec<&Line> = self.lines.iter().filter(|line| line.by == method).collect();
        let mut sum = Tally::default();
        let (mut bad, mut left_out, mut refused) = (0, 0, 0);
        for line in &lines {
            let tally = &line.tally;
            sum.cycles += tally.cycles;
            refused += tally.refusals();
            sum.entered += tally.entered;
            sum.hung += tally.hung;
            sum.crashed += tally.crashed;
            sum.wrong += tally.wrong;
            sum.eintr += tally.eintr;
            sum.residue += tally.residue;
            sum.failed += tally.failed;
            bad += usize::from(!line.good);
            left_out += usize::from(tally.left_out.is_some());
        }
        format!(
            "{method}: {} cells, {} cycles, {} in, {refused} refused, {} failed, {} hung; targets that crashed {}, went wrong {}, were not as before {}; EINTR {}; {}{left_out} cells left out",
            lines.len() - left_out,
            sum.cycles,
            sum.entered,
            sum.failed,
            sum.hung,
            sum.crashed,
            sum.wrong,
            sum.residue,
            sum.eintr,
            // Only the sums of our own method say how many cells are not right.
            match method {
                "midair" => format!("{bad} cells are not right, "),
                _ => String::new(),
            },
        )
    }

    /// Returns the table as Markdown.
    fn page(&self) -> String {
        let mut text = self.head();
        let _infallible = writeln!(text, "* {}\n", self.sums());
        text += "| row | cell | by | cycles | in | refused | failed | hung | crashed | wrong | EINTR | left | attach p50 / p99 / max ms | stop p50 / p99 / max ms | gap of busy threads, at rest / with p50 / max ms | way |\n";
        text += "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
        let mut notes = String::new();
        for (number, line) in self.lines.iter().enumerate() {
            self.row_of(line, number + 1, &mut text, &mut notes);
        }
        if !notes.is_empty() {
            let _infallible = writeln!(text, "\n{notes}");
        }
        text
    }

    fn row_of(&self, line: &Line, number: usize, text: &mut String, notes: &mut String) {
        let tally = &line.tally;
        let name = match line.good {
            true => line.cell.clone(),
            false => format!("**NOT RIGHT** {}", line.cell),
        };
        if let Some(why) = &tally.left_out {
            let _infallible = writeln!(
                text,
                "| {} | {name} | {} | left out, not tested: {why} |||||||||||||",
                line.row, line.by
            );
            return;
        }
        let refused: Vec<String> = tally
            .refused
            .iter()
            .map(|(name, (count, _))| format!("{count} {name}"))
            .collect();
        let tiers: Vec<String> = tally
            .tiers
            .iter()
            .map(|(tier, count)| format!("{count} {tier}"))
            .collect();
        let mark = if tally.notes.is_empty() {
            String::new()
        } else {
            format!(" ({number})")
        };
        let gap = match at(&tally.gaps, 0.5) {
            Some(_) => format!(
                "{} / {} / {}",
                ms(at(&tally.rest, 0.5)),
                ms(at(&tally.gaps, 0.5)),
                ms(at(&tally.gaps, 1.0))
            ),
            None => String::new(),
        };
        let eintr = match tally.eintr_own {
            0 => tally.eintr.to_string(),
            own => format!("{} (+{own} of the borrowed)", tally.eintr),
        };
        let _infallible = writeln!(
            text,
            "| {} | {name}{mark} | {} | {} | {} | {} | {} | {} | {} | {} | {eintr} | {} | {} | {} | {gap} | {} |",
            line.row,
            line.by,
            tally.cycles,
            tally.entered,
            if refused.is_empty() {
                "0".to_owned()
            } else {
                refused.join(", ")
            },
            tally.failed,
            tally.hung,
            tally.crashed,
            tally.wrong,
            tally.residue,
            three(&tally.attach),
            three(&tally.stopped),
            tiers.join(", "),
        );
        for note in &tally.notes {
            let note = note.replace('|', "/");
            let _infallible = writeln!(notes, "* ({number}) {}: {note}", line.by);
        }
    }
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("?").to_owned()
}

fn three(times: &[Duration]) -> String {
    match times.is_empty() {
        true => String::new(),
        false => [0.5, 0.99, 1.0].map(|part| ms(at(times, part))).join(" / "),
    }
}

fn ms(time: Option<Duration>) -> String {
    match time.map(|time| time.as_secs_f64() * 1e3) {
        None => String::new(),
        Some(ms) if ms < 10.0 => format!("{ms:.2}"),
        Some(ms) if ms < 100.0 => format!("{ms:.1}"),
        Some(ms) => format!("{ms:.0}"),
    }
}

/// The markers at the start and the end of the part of a page that is generated here.
type Markers<'a> = [&'a str; 2];
const ALL: Markers<'_> = ["<!-- torture: begin -->", "<!-- torture: end -->"];
const OTHERS: Markers<'_> = [
    "<!-- torture, the others: begin -->",
    "<!-- torture, the others: end -->",
];

/// Replaces the text between the markers of a page.
fn put_between(path: &Path, [begin, end]: Markers<'_>, text: &str) -> Result<()> {
    let page = std::fs::read_to_string(path)?;
    let parts = page.split_once(begin).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(end)?;
        Some((before, after))
    });
    let (before, after) = parts.ok_or_else(|| format!("{} has no markers", path.display()))?;
    std::fs::write(path, format!("{before}{begin}\n{text}{end}{after}"))?;
    Ok(())
}

/// Puts the run of some of the other attach methods into the files of all of them: a part of the
/// page, and the entry `by` of the json file. All that is there of other runs stays.
fn put_part(page: &Path, json: &Path, part: &str, text: &str, run: Value) -> Result<()> {
    let read = |path: &Path, otherwise: &str| match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(otherwise.to_owned()),
        read => read,
    };
    let markers = ["begin", "end"].map(|word| format!("<!-- {part}: {word} -->"));
    let [begin, end] = &markers;
    let before = read(page, "")?;
    if !before.contains(begin.as_str()) {
        std::fs::write(page, format!("{before}\n{begin}\n{end}\n"))?;
    }
    put_between(page, [begin, end], &format!("## {part}\n\n{text}"))?;
    let mut all: Value = serde_json::from_str(&read(json, "{}")?)?;
    all["by"][part] = run;
    std::fs::write(json, serde_json::to_string_pretty(&all)? + "\n")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_keeps_what_is_outside_of_the_markers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page.md");
        let page = |all: &str, others: &str| {
            let ([a, b], [c, d]) = (ALL, OTHERS);
            format!("a\n{a}\n{all}\n{b}\nm\n{c}\n{others}\n{d}\nz\n")
        };
        std::fs::write(&path, page("old", "old")).unwrap();
        put_between(&path, ALL, "new\n").unwrap();
        put_between(&path, OTHERS, "newer\n").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, page("new", "newer"));
        std::fs::write(&path, "nothing").unwrap();
        assert!(put_between(&path, ALL, "new").is_err());
    }

    #[test]
    fn a_part_leaves_the_rows_of_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let (page, json) = (dir.path().join("t.md"), dir.path().join("t.json"));
        put_part(&page, &json, "one", "first\n", json!({"cells": 1})).unwrap();
        assert!(
            std::fs::read_to_string(&page)
                .unwrap()
                .contains("## one\n\nfirst\n")
        );
        std::fs::write(&page, "| the | others |\n").unwrap();
        std::fs::write(&json, r#"{"cells": ["others"]}"#).unwrap();
        for (part, text) in [("one", "first\n"), ("two", "second\n"), ("one", "third\n")] {
            put_part(&page, &json, part, text, json!({ "cells": text })).unwrap();
        }
        let text = std::fs::read_to_string(&page).unwrap();
        let one = "<!-- one: begin -->\n## one\n\nthird\n<!-- one: end -->\n";
        let two = "<!-- two: begin -->\n## two\n\nsecond\n<!-- two: end -->\n";
        assert_eq!(text, format!("| the | others |\n\n{one}\n{two}"));
        let all: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
        let parts = json!({"one": {"cells": "third\n"}, "two": {"cells": "second\n"}});
        assert_eq!(all, json!({"cells": ["others"], "by": parts}));
    }

    #[test]
    fn times_have_three_figures() {
        let text = |ns| ms(Some(Duration::from_nanos(ns)));
        assert_eq!(
            [text(123_456), text(12_345_678), text(1_234_567_890)],
            ["0.12", "12.3", "1235"]
        );
    }
}
