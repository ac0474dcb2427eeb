//! `rocpd query`.

use crate::export::{Exported, Target, export};
use crate::unite::unite;
use crate::window::Window;
use crate::{Input, unreadable};
use midair_failure::{Failure, Kind};
use std::path::Path;

/// Runs a query over all databases, and writes its answer. The statements of `script` run first.
///
/// # Errors
/// When a statement cannot be run, or the answer cannot be written.
pub fn query(
    input: &Input,
    query: &str,
    script: Option<&Path>,
    window: Option<Window>,
    target: &Target,
    print: &mut dyn FnMut(&str),
) -> Result<Exported, Failure> {
    unite(input, window)?;
    if let Some(path) = script {
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, error))?;
        let ran = input.connection.execute_batch(&text);
        ran.map_err(|error| {
            let what = format!("cannot run the script {}: {error}", path.display());
            Failure::new(Kind::Usage, what)
        })?;
    }
    export(&input.connection, query, target, print)
}
