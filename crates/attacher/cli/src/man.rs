//! Manual pages, generated from the clap commands that also parse the words.

use std::io;
use std::path::Path;

use clap::Command;
use clap::builder::PossibleValue;
use midair_output::WriteError;
use midair_output::files::FileSet;

use crate::{avail, help, midair, rocpd, rocprofv3};

/// The names of the pages.
pub const PAGES: [&str; 26] = [
    "midair",
    "midair-attach",
    "midair-flame",
    "midair-run",
    "midair-top",
    "midair-why",
    "midair-ps",
    "midair-doctor",
    "midair-show",
    "midair-counters",
    "midair-metrics",
    "midair-demo",
    "midair-fleet",
    "midair-serve",
    "midair-compute",
    "rocprofv3",
    "rocprof-compute",
    "rocprof-compute-profile",
    "rocprof-compute-live",
    "rocprof-compute-analyze",
    "rocprofv3-avail",
    "rocpd",
    "rocpd-convert",
    "rocpd-query",
    "rocpd-summary",
    "rocpd-merge",
];

/// The words that name a page: its name, or the command's.
pub(crate) fn words() -> Vec<PossibleValue> {
    let word = |page: &'static str| {
        let word = PossibleValue::new(page);
        match page.strip_prefix("midair-") {
            Some(command) => word.alias(command),
            None => word,
        }
    };
    PAGES.into_iter().map(word).collect()
}

/// Returns the name of the page that a word means.
pub(crate) fn name(word: &str) -> String {
    match PAGES.contains(&word) {
        true => word.to_owned(),
        false => format!("midair-{word}"),
    }
}

/// Returns one page, in troff.
pub fn page(name: &str) -> io::Result<Vec<u8>> {
    let unknown = || io::Error::new(io::ErrorKind::NotFound, "no such page");
    let command: Command = match name {
        "rocprofv3" => rocprofv3::command(),
        "midair" => midair::command(),
        "rocprof-compute" => midair_compute::command::command(),
        "rocpd" => rocpd::command(),
        "rocprofv3-avail" => avail::command(),
        _ if name.starts_with("rocp") => {
            let (program, mut command) = match name.strip_prefix("rocprof-compute-") {
                Some(_) => ("rocprof-compute", midair_compute::command::command()),
                None => ("rocpd", rocpd::command()),
            };
            let subcommand = name
                .strip_prefix(program)
                .and_then(|it| it.strip_prefix('-'));
            let subcommand = subcommand.ok_or_else(unknown)?;
            // Options of the program also belong to the subcommand.
            command.build();
            let command = command
                .find_subcommand(subcommand)
                .ok_or_else(unknown)?
                .clone();
            command
                .bin_name(format!("{program} {subcommand}"))
                .display_name(name.to_owned())
        }
        _ => {
            let subcommand = name.strip_prefix("midair-").ok_or_else(unknown)?;
            let command = midair::command();
            let command = command
                .find_subcommand(subcommand)
                .ok_or_else(unknown)?
                .clone();
            command
                .bin_name(format!("midair {subcommand}"))
                .display_name(name.to_owned())
        }
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(command)
        .title(name.to_uppercase())
        .source(concat!("midair ", env!("CARGO_PKG_VERSION")))
        .manual("midair")
        .render(&mut page)?;
    page.extend_from_slice(sections(name).as_bytes());
    Ok(page)
}

/// Returns the sections behind those that are made of the options.
fn sections(name: &str) -> String {
    let mut out = String::new();
    let mut section = |title: &str, entries: &[(&str, &str)]| {
        out.push_str(&format!(".SH \"{title}\"\n"));
        for (term, words) in entries {
            out.push_str(&format!(
                ".TP\n\\fB{}\\fR\n{}\n",
                escaped(term),
                escaped(words)
            ));
        }
    };
    let records = matches!(name, "midair" | "midair-attach" | "rocprofv3");
    if records || matches!(name, "midair-doctor" | "midair-why") {
        section("EXIT STATUS", &help::EXIT);
    }
    if records || name == "midair-run" {
        section("FILES", &help::FILES);
    }
    if let Some(examples) = help::examples(name) {
        out.push_str(".SH \"EXAMPLES\"\n.nf\n");
        for line in examples.lines() {
            out.push_str(&format!("{}\n", escaped(line)));
        }
        out.push_str(".fi\n");
    }
    out
}

/// Returns text in which troff finds no commands.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text,
    }
}

/// Writes every page into a directory, as `NAME.1`.
pub fn write_all(directory: &Path) -> Result<(), WriteError> {
    let mut files = FileSet::new(directory, "")?;
    for name in PAGES {
        let mut file = files.create(&format!("{name}.1"))?;
        let page = page(name).map_err(|source| file.failed(source))?;
        file.put(&page)?;
        file.readable_by_all()?;
        files.add(file)?;
    }
    files.commit().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_settings::Front;

    fn text(name: &str) -> String {
        // troff escapes a hyphen with a backslash.
        String::from_utf8(page(name).unwrap())
            .unwrap()
            .replace('\\', "")
    }

    #[test]
    fn every_option_is_on_its_page() {
        for (name, front) in [
            ("rocprofv3", Front::Rocprofv3),
            ("midair-attach", Front::Midair),
        ] {
            let page = text(name);
            assert!(
                page.contains(&format!(".TH {}", name.to_uppercase())),
                "{page:.200}"
            );
            let mut seen = 0;
            for option in crate::command::options_of(front).filter(|option| !option.hidden) {
                assert!(
                    page.contains(&format!("--{}", option.long)),
                    "{name}: --{}",
                    option.long
                );
                seen += 1;
            }
            assert!(seen > 80, "{name}: only {seen} options");
        }
    }

    #[test]
    fn pages_have_examples_codes_and_files() {
        for (name, wanted) in [
            ("midair", ["EXIT STATUS", "FILES", "EXAMPLES"]),
            ("midair-attach", ["EXIT STATUS", "FILES", "EXAMPLES"]),
            ("midair-run", ["FILES", "EXAMPLES", "midair run"]),
            ("rocprofv3", ["EXIT STATUS", "FILES", "results.pftrace"]),
            ("midair-doctor", ["EXIT STATUS", "36", "10-29"]),
        ] {
            let page = text(name);
            for word in wanted {
                assert!(page.contains(word), "{name}: {word}");
            }
        }
    }

    #[test]
    fn options_of_rocprof_compute_are_on_its_pages() {
        for (name, options) in [
            (
                "rocprof-compute-profile",
                &[
                    "--attach-pid",
                    "--target-error",
                    "--set",
                    "--roofline",
                    "--overwrite",
                ][..],
            ),
            (
                "rocprof-compute-live",
                &["--attach-pid", "--interval-msec", "--block"],
            ),
            (
                "rocprof-compute-analyze",
                &["--html", "--path", "--normal-unit", "--list-metrics"],
            ),
            (
                "rocprof-compute",
                &["profile", "live", "analyze", "--list-sets"],
            ),
        ] {
            let page = text(name);
            for option in options {
                assert!(page.contains(option), "{name}: {option} is not in {page}");
            }
        }
        let all = midair_compute::command::command();
        for command in all.get_subcommands() {
            let page = text(&format!("rocprof-compute-{}", command.get_name()));
            let shown = command.get_arguments().filter(|it| !it.is_hide_set());
            for long in shown.filter_map(clap::Arg::get_long) {
                assert!(page.contains(&format!("--{long}")), "--{long}: {page}");
            }
        }
    }

    #[test]
    fn all_pages_are_written() {
        let directory = tempfile::tempdir().unwrap();
        let below = directory.path().join("man1");
        write_all(&below).unwrap();
        for name in PAGES {
            let page = std::fs::read_to_string(below.join(format!("{name}.1"))).unwrap();
            assert!(
                page.contains(&format!(".TH {}", name.to_uppercase())),
                "{name}: {page}"
            );
        }
        assert!(page("nothing").is_err());
    }
}
