//! What was recorded.

use crate::error::{Error, Kind};
use crate::records::{Calls, Copies, Kernels, Markers};
use midair_failure::Failure;
use midair_output::{Format, Names};
use midair_results::Opened;
use midair_session::{Collected, as_real_user};
use std::path::{Path, PathBuf};

/// A finished recording. Its records are in a file without a name, and are read from there.
#[derive(Debug)]
pub struct Recording {
    pub(crate) opened: Opened,
    pub(crate) names: Names,
    warnings: Vec<String>,
    incomplete: Option<Error>,
}

impl Recording {
    /// Opens what was collected. `failed` is why collecting ended early, if it did.
    pub(crate) fn of(collected: Collected, failed: Option<Failure>) -> Result<Recording, Error> {
        let opened = collected.open()?;
        let (warnings, incomplete) = opened.conclusion();
        Ok(Recording {
            opened,
            names: Names::amd(),
            warnings,
            incomplete: failed.or(incomplete).map(Error::from),
        })
    }

    /// Returns the kernels, in the order in which they were collected.
    pub fn kernels(&self) -> Kernels<'_> {
        Kernels::of(self)
    }

    /// Returns the calls of HIP, HSA, CUDA and other libraries.
    pub fn calls(&self) -> Calls<'_> {
        Calls::of(self)
    }

    /// Returns the copies of memory.
    pub fn copies(&self) -> Copies<'_> {
        Copies::of(self)
    }

    /// Returns marks and ranges.
    pub fn markers(&self) -> Markers<'_> {
        Markers::of(self)
    }

    /// Returns how many records there are, with those that only describe others.
    pub fn records(&self) -> u64 {
        self.opened.trace().records.records()
    }

    /// Returns what the user should know about the recording.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns why the recording is incomplete, if it is: records were lost, could not be stored, or
    /// the process was killed.
    pub fn incomplete(&self) -> Option<&Error> {
        self.incomplete.as_ref()
    }

    /// Writes files in this format, whose names start with `path`, and returns them. They take the
    /// place of others.
    ///
    /// # Errors
    /// [`Kind::Output`]; then no file is left.
    pub fn to_file(&self, format: Format, path: impl AsRef<Path>) -> Result<Vec<PathBuf>, Error> {
        let (directory, name) = place(path.as_ref())?;
        let written = as_real_user(|| self.opened.write(format, (directory, name)));
        let written = written.map_err(|error| Error::new(Kind::Output, error.to_string()))?;
        Ok(written?)
    }

    /// Writes one file in this format of several recordings, each with its labels (keys and texts), which a
    /// profile for pprof shows.
    ///
    /// # Errors
    /// [`Kind::Output`]; then no file is left.
    #[doc(hidden)]
    pub fn to_file_labelled(
        all: Vec<(Recording, Vec<(String, String)>)>,
        format: Format,
        path: impl AsRef<Path>,
    ) -> Result<Vec<PathBuf>, Error> {
        let place = place(path.as_ref())?;
        let all = all.into_iter();
        let all = all.map(|(recording, labels)| (recording.opened, labels));
        let all = all.collect();
        let written = as_real_user(|| Opened::write_labelled(all, format, place));
        let written = written.map_err(|error| Error::new(Kind::Output, error.to_string()))?;
        Ok(written?)
    }
}

/// Returns the directory and the name of a path.
fn place(path: &Path) -> Result<(&Path, &str), Error> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| {
        Error::new(
            Kind::Output,
            format!("the file name of {} is not UTF-8", path.display()),
        )
    })?;
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    Ok((directory, name))
}
