//! A copy of our library that a process has without a thread of ours: its parent had been attached to when it was forked.
//!
//! Our hooks are in its tables, and lead into that copy; a second copy beside it would take the first one's for the runtime's own, and
//! its tools would find the first one by its name. So that copy is used again, if it is of this very build.

use std::ffi::CString;
use std::fs::File;

use midair_procinfo::elf::ElfFile;
use midair_ptrace::{RemoteAddr, memfd_with};
use midair_record::boot::ENTRY;

use crate::error::{During, EnterError};
use crate::look::Look;

/// What the file names of such copies begin with.
const NAME: &[u8] = b"memfd:midair-agent-";

/// The address of the entry of the copy that is there, if there is one.
///
/// # Errors
/// [`EnterError::OtherBuild`] when what is there is another build.
pub(crate) fn entry(look: &Look, library: Option<&[u8]>) -> Result<Option<RemoteAddr>, EnterError> {
    const PHASE: &str = "looking for a copy of our library";
    let Some(library) = library else {
        return Ok(None);
    };
    let mut copies = look
        .modules
        .list
        .iter()
        .filter(|module| module.file_name().starts_with(NAME))
        .peekable();
    if copies.peek().is_none() {
        return Ok(None);
    }
    let name = CString::new("midair-look").unwrap_or_default();
    let file = memfd_with(&name, library).during(PHASE)?;
    let ours = ElfFile::open(File::from(file)).during(PHASE)?;
    let [entry] = ours.exported([ENTRY]).during(PHASE)?;
    let Some(entry) = entry.filter(|_| !ours.build_id.is_empty()) else {
        // Nothing to tell builds apart by.
        return Ok(None);
    };
    let memory = look.memory();
    for copy in copies {
        if copy.build_id(memory).as_deref() != Some(&ours.build_id) {
            continue;
        }
        let code = copy.parts.iter().find(|part| part.execute);
        let bias = code.and_then(|part| ours.bias(part.start, part.offset));
        if let Some(bias) = bias {
            return Ok(Some(RemoteAddr::new(entry.wrapping_add(bias))));
        }
    }
    Err(EnterError::OtherBuild { pid: look.pid })
}
