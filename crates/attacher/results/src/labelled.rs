//! Several recordings as one file, each with labels of its own.

use crate::finished::Opened;
use midair_failure::{Failure, Kind};
use midair_output::{Format, Names, Numbering, Plan};
use std::path::{Path, PathBuf};

impl Opened {
    /// Writes files in this format of several recordings, each with its labels (keys and texts), whose names
    /// start with `prefix`. They take the place of others.
    ///
    /// # Errors
    /// [`Kind::Output`]; then no file is left.
    pub fn write_labelled(
        parts: Vec<(Opened, Vec<(String, String)>)>,
        format: Format,
        (directory, prefix): (&Path, &str),
    ) -> Result<Vec<PathBuf>, Failure> {
        let plan = parts.first().map(|(opened, _)| opened.plan().clone());
        let (parts, labels): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        let plan = Plan {
            directory: directory.to_owned(),
            prefix: prefix.to_owned(),
            numbering: Numbering::Replace,
            formats: vec![format],
            labels,
            ..plan.unwrap_or_default()
        };
        let traces: Vec<_> = parts.into_iter().map(Opened::into_trace).collect();
        midair_output::write_together(&traces, &Names::amd(), &plan)
            .map_err(|error| Failure::new(Kind::Output, error.to_string()))
    }
}
