//! The files of code objects that the process has loaded, for thread traces: AMD's decoder shows
//! instructions by them. Each is copied as soon as it is recorded, since the program may unload it.

use crate::instructions::copied::{Copied, MOST};
use crate::rights;
use midair_domain::KindSet;
use midair_output::Index;
use midair_procinfo::Pid;
use midair_record::event::kind;
use midair_settings::Settings;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The start of an ELF file.
const ELF: &[u8] = b"\x7fELF";

/// The files that were copied.
#[derive(Debug, Default)]
pub(crate) struct CodeObjects {
    images: BTreeMap<u64, Arc<[u8]>>,
    /// The code objects that were looked at.
    seen: BTreeSet<u64>,
    bytes: usize,
}

impl CodeObjects {
    /// Copies the code objects that were not looked at yet.
    pub(crate) fn look(&mut self, pid: Pid, index: &Index) {
        if index.code_objects.len() == self.seen.len() {
            return;
        }
        for (number, object) in &index.code_objects {
            if !self.seen.insert(*number) {
                continue;
            }
            let left = MOST.saturating_sub(self.bytes);
            if let Ok(copied) = Copied::read(pid, object, left)
                && copied.bytes.starts_with(ELF)
            {
                self.bytes += copied.bytes.len();
                self.images.insert(*number, copied.bytes.into());
            }
        }
    }

    /// Returns what to do with the traces of a session, if there are any.
    pub(crate) fn note(settings: &Settings, index: &Index) -> Option<String> {
        let traces = KindSet::of(&[kind::THREAD_TRACE]);
        index.has(traces).then(|| {
            let look = |name: &str| {
                let is_obeyed = !rights::is_privileged();
                is_obeyed.then(|| std::env::var_os(name)).flatten()
            };
            let decoder = midair_aqlprofile::decoder(settings, look);
            midair_aqlprofile::decoder_note(decoder.as_deref())
        })
    }

    /// Returns the files, by the numbers of their code objects.
    pub(crate) fn images(&self) -> BTreeMap<u64, Arc<[u8]>> {
        self.images.clone()
    }
}
