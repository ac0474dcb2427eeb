//! The documents: generates the page of options, checks what can be checked of the others, and
//! builds the book.

use std::fs;

use midair_settings::reference;

use crate::run::{At, Outcome, failed, root};
use crate::{book, documents};

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

fn write_options() -> Outcome<()> {
    let path = root().join("docs/options.md");
    fs::write(&path, reference::markdown()).at("writing", &path)
}

fn check_options() -> Outcome<()> {
    let path = root().join("docs/options.md");
    let found = fs::read_to_string(&path).at("reading", &path)?;
    if found == reference::markdown() {
        Ok(())
    } else {
        failed("docs/options.md is not what the table of options makes: run cargo xtask docs")
    }
}
