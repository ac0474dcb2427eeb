//! The documents: generates the page of options, checks what can be checked of the others, and
//! builds the book.
#![forbid(unsafe_code)]

mod book;
pub mod circles;
mod compatibility;
mod documents;
mod environment;
mod words;

use std::fs;
use std::path::PathBuf;

use midair_settings::{commands, reference};

use midair_dev_kit::run::{At, Outcome, failed, root};

/// Runs `cargo xtask docs`.
pub fn docs_task(words: &[String]) -> Outcome<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => write_options(),
        ["--check"] => check_options().and_then(|()| documents::check()),
        ["--book"] => check_options().and_then(|()| book::build()),
        _ => failed("takes --check, --book or nothing"),
    }
}

/// Around the table of commands in SECURITY.md.
const COMMANDS: [&str; 2] = [
    "<!-- commands: made by `cargo xtask docs` from crates/between/settings/src/commands.rs -->\n",
    "<!-- end of commands -->",
];

fn write_options() -> Outcome<()> {
    let path = root().join("docs/options.md");
    fs::write(&path, reference::markdown()).at("writing", &path)?;
    let path = root().join(compatibility::PAGE);
    fs::write(&path, compatibility::markdown()?).at("writing", &path)?;
    let (path, _, made) = security()?;
    fs::write(&path, made).at("writing", &path)?;
    let (path, _, made) = variables()?;
    fs::write(&path, made).at("writing", &path)
}

/// Returns SECURITY.md: its path, its text, and what its text should be.
fn security() -> Outcome<(PathBuf, String, String)> {
    with_table("SECURITY.md", COMMANDS, &commands::markdown())
}

/// Returns the same of the page of environment variables.
fn variables() -> Outcome<(PathBuf, String, String)> {
    let page = "docs/dev/environment.md";
    with_table(page, environment::MARKERS, &environment::markdown())
}

fn with_table(page: &str, markers: [&str; 2], table: &str) -> Outcome<(PathBuf, String, String)> {
    let path = root().join(page);
    let found = fs::read_to_string(&path).at("reading", &path)?;
    let parts = found
        .split_once(markers[0])
        .and_then(|(before, rest)| Some((before, rest.split_once(markers[1])?.1)));
    let Some((before, after)) = parts else {
        return failed(format!("{page} has no place for its table"));
    };
    let made = format!("{before}{}{table}{}{after}", markers[0], markers[1]);
    Ok((path, found, made))
}

fn check_options() -> Outcome<()> {
    let path = root().join("docs/options.md");
    let found = fs::read_to_string(&path).at("reading", &path)?;
    if found != reference::markdown() {
        return failed(
            "docs/options.md is not what the table of options makes: run cargo xtask docs",
        );
    }
    let path = root().join(compatibility::PAGE);
    let found = fs::read_to_string(&path).at("reading", &path)?;
    if found != compatibility::markdown()? {
        return failed("docs/compatibility.md is not what its table makes: run cargo xtask docs");
    }
    for (path, found, made) in [security()?, variables()?] {
        if found != made {
            return failed(format!(
                "{} has another table: run cargo xtask docs",
                path.display()
            ));
        }
    }
    Ok(())
}
