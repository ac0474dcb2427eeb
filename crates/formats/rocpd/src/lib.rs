//! What AMD's command `rocpd` does with rocpd databases, its own and midair's.
//!
//! * [`input`]: one or many databases behind one connection.
//! * [`convert()`]: the records of a database, in any format that midair writes. `read` makes
//!   records of rows, and the writers of an attach do the rest, so there is one path per format.
//! * [`query()`] and [`summary()`]: SQL, and its answers as files ([`export`]).
//! * [`merge()`]: many databases in one file. [`package()`]: an index of them.
//! * [`window`]: only what happened in a part of the time.
//!
//! Rows are streamed: memory depends on how many kernels, calls and threads there are.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod convert;
mod counters;
pub mod export;
mod index;
pub mod input;
mod merge;
mod modern;
mod package;
mod query;
mod read;
mod summary;
mod tables;
mod text;
mod unite;
pub mod window;

pub use convert::{Converted, CsvForm, convert};
pub use export::{Exported, Format, Target};
pub use input::{Input, Part};
pub use merge::merge;
pub use package::{Gather, package};
pub use query::query;
pub use summary::{Names as SummaryNames, Options as SummaryOptions, summary};
pub use window::{Bound, Window};

use midair_failure::{Failure, Kind};
use std::fmt::Display;
use std::path::Path;

/// Returns the failure to read a database.
fn unreadable(path: &Path, why: impl Display) -> Failure {
    Failure::new(
        Kind::Input,
        format!("cannot read {}: {why}", path.display()),
    )
    .hint("rocpd reads .db files of midair and of AMD's rocprofv3")
}

/// Returns the failure of a statement.
fn sql(what: &str, error: &rusqlite::Error) -> Failure {
    Failure::new(Kind::Input, format!("cannot {what}: {error}"))
        .hint("rocpd reads .db files of midair and of AMD's rocprofv3")
}

/// Returns the failure to write a file.
fn unwritable(path: &Path, why: impl Display) -> Failure {
    Failure::new(
        Kind::Output,
        format!("cannot write {}: {why}", path.display()),
    )
}
