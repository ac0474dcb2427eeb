//! The files of a window: the records between two moments of a session that goes on.

use crate::recorder::Disk;
use crate::rights;
use midair_counters::CounterPlan;
use midair_failure::{Failure, Kind};
use midair_output::Window;
use midair_output::table::Style;
use midair_record::spool::DROP_SLOTS;
use midair_results::{Cost, Finished, Identity, Written};
use midair_settings::{OUTPUT_PATH, Settings};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What the files of a window tell besides its records.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) identity: Identity,
    pub(super) settings: Settings,
    pub(super) notes: Vec<String>,
    pub(super) counters: CounterPlan,
    pub(super) code: BTreeMap<u64, Arc<[u8]>>,
    pub(super) disk: Option<Disk>,
    pub(super) unrecorded_ns: u64,
}

impl Parts {
    /// Writes the files of a window, in a directory of their own.
    pub(super) fn write(mut self, window: Window, from: u64, to: u64) -> Result<Written, Failure> {
        let cannot = |error: std::io::Error| {
            Failure::new(Kind::Output, format!("cannot store records: {error}"))
        };
        let write = move || {
            let records = window.between(from, to).map_err(cannot)?;
            let directory = midair_results::window_directory(&self.settings, &self.identity)?;
            self.settings.set(OUTPUT_PATH, directory);
            let finished = Finished {
                identity: self.identity,
                settings: self.settings,
                records,
                dropped: [0; DROP_SLOTS],
                outcome: 0,
                ended: None,
                failure: None,
                notes: self.notes,
                counters: self.counters,
                gpu: None,
                session_ns: None,
                unrecorded_ns: self.unrecorded_ns,
                cost: Cost::default(),
                only_others: false,
                why_empty: None,
                code: self.code,
            };
            let written = finished.write(Style::default())?;
            match &self.disk {
                Some(disk) => within(disk, written),
                None => Ok(written),
            }
        };
        rights::as_real_user(write).unwrap_or_else(|error| Err(rights::cannot_drop(&error)))
    }
}

/// Returns the files, if they fit into what the windows may take of the disk. Otherwise they are
/// removed.
#[expect(clippy::disallowed_methods, reason = "files that were written here")]
fn within(disk: &Disk, written: Written) -> Result<Written, Failure> {
    let size = |file: &PathBuf| file.metadata().map_or(0, |file| file.len());
    let bytes: u64 = written.files.iter().map(size).sum();
    let taken = disk.taken.fetch_add(bytes, Relaxed);
    if taken.saturating_add(bytes) <= disk.most {
        return Ok(written);
    }
    disk.taken.fetch_sub(bytes, Relaxed);
    for file in &written.files {
        let _ = std::fs::remove_file(file);
    }
    if let Some(directory) = written.files.first().and_then(|file| file.parent()) {
        // This fails, as it should, where the directory also has other files.
        let _ = std::fs::remove_dir(directory);
    }
    Err(Failure::new(
        Kind::Output,
        format!("the window of {bytes} bytes would exceed --keep-disk"),
    ))
}
