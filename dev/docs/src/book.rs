//! The book in `docs/`, built by mdBook.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use midair_dev_kit::run::{Failure, Outcome, cargo, output, root, run, target_directory};

/// The version of mdBook for which the book is written. If another one is installed, that one is
/// used and its version is printed.
const VERSION: &str = "0.5.4";

/// Builds the book into `target/book`, for `cargo xtask docs --book`.
///
/// # Errors
/// Fails when mdBook cannot be had or does not accept the book.
pub fn build() -> Outcome<()> {
    let mdbook = mdbook()?;
    let book = target_directory().join("book");
    let mut command = Command::new(mdbook);
    command.arg("build").arg("--dest-dir").arg(&book);
    run(command.arg(root().join("docs")))?;
    println!("{}", book.join("index.html").display());
    Ok(())
}

/// Returns mdBook: the one below the target directory, or the one in `PATH`. Otherwise it is
/// installed once from crates.io.
fn mdbook() -> Outcome<PathBuf> {
    let tools = target_directory().join("tools");
    let own = tools.join("bin/mdbook");
    if let Some(found) = version(&own) {
        return Ok(known(own, &found));
    }
    let installed = PathBuf::from("mdbook");
    if let Some(found) = version(&installed) {
        return Ok(known(installed, &found));
    }
    println!(
        "installing mdbook {VERSION} below {} (once; some minutes)",
        tools.display()
    );
    let mut install = cargo(&[
        "install",
        "mdbook",
        "--locked",
        "--debug",
        "--version",
        VERSION,
    ]);
    // Without its server and watcher, building it is half the work. Even without optimisation it
    // needs only a second for this book.
    install.args(["--no-default-features", "--features", "search", "--root"]);
    run(install.arg(&tools)).map_err(|failure| {
        Failure(format!(
            "{failure}; the book needs mdbook {VERSION} from crates.io, which needs a network once (or install one that is in PATH)"
        ))
    })?;
    Ok(own)
}

/// Returns what a program answers to `--version`, or `None` if there is no such program.
fn version(program: &PathBuf) -> Option<String> {
    let mut command = Command::new(program);
    let said = output(command.arg("--version").stdin(Stdio::null())).ok()?;
    Some(String::from_utf8_lossy(&said).trim().to_owned())
}

fn known(program: PathBuf, found: &str) -> PathBuf {
    if !found.ends_with(VERSION) {
        eprintln!("using {found}; the book is written for mdbook v{VERSION}");
    }
    program
}
