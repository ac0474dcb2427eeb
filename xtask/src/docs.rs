//! The reference page of options.

use std::fs;

use midair_settings::reference;

use crate::run::{At, Outcome, failed, root};

/// `cargo xtask docs`.
pub fn docs_task(words: &[String]) -> Outcome<()> {
    let check = match words {
        [] => false,
        [word] if word == "--check" => true,
        _ => return failed("takes --check or nothing"),
    };
    let path = root().join("docs/options.md");
    let page = reference::markdown();
    if check {
        let found = fs::read_to_string(&path).at("reading", &path)?;
        return if found == page {
            Ok(())
        } else {
            failed("docs/options.md is not what the table of options makes: run cargo xtask docs")
        };
    }
    fs::create_dir_all(root().join("docs")).at("making", &root().join("docs"))?;
    fs::write(&path, page).at("writing", &path)
}
