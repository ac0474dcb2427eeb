//! A copy of our library in a process without a worker thread, because the process was forked from
//! one that had been attached to.
//!
//! Our hooks are in its dispatch tables and lead to that copy. A second copy would take the first
//! one's hooks for the runtime's own functions, and its tools would find the first copy by name. So
//! the copy that is there is used again, provided that it comes from this very build.

use std::ffi::CString;
use std::fs::File;

use midair_procinfo::elf::ElfFile;
use midair_ptrace::RemoteAddr;
use midair_record::boot::ENTRY;

use crate::error::{During, EnterError};
use crate::inspection::Inspection;
use crate::payload::Payload;

/// The start of the file names of such copies.
const NAME: &[u8] = b"memfd:midair-agent-";

impl Inspection {
    /// Returns our libraries that are loaded there, with or without a worker thread. Each is given
    /// by its word ([`crate::Library::Opened`]), which is empty for the usual one. The target can
    /// choose these names, so they say what to expect and prove nothing.
    pub fn copies(&self) -> Vec<String> {
        let mut words: Vec<String> = self
            .modules
            .list
            .iter()
            .filter_map(|module| word_of(module.file_name()))
            .collect();
        words.sort();
        words.dedup();
        words
    }
}

/// Returns the word in `memfd:midair-agent-WORD-N.so`, which is empty in `memfd:midair-agent-N.so`.
fn word_of(name: &[u8]) -> Option<String> {
    let rest = std::str::from_utf8(name.strip_prefix(NAME)?).ok()?;
    let word = rest.split_once('-').map_or("", |(word, _)| word);
    word.bytes()
        .all(|byte| byte.is_ascii_alphanumeric())
        .then(|| word.to_owned())
}

/// Returns the address of the entry of the copy that is there, if there is one.
///
/// # Errors
/// [`EnterError::OtherBuild`] when the copy that is there comes from another build.
pub(crate) fn entry(
    look: &Inspection,
    library: Option<&Payload>,
) -> Result<Option<RemoteAddr>, EnterError> {
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
    let file = library.memory_file(&name).during(PHASE)?;
    let ours = ElfFile::open(File::from(file)).during(PHASE)?;
    let [entry] = ours.exported([ENTRY]).during(PHASE)?;
    let Some(entry) = entry.filter(|_| !ours.build_id.is_empty()) else {
        // Without a build id, builds cannot be distinguished.
        return Ok(None);
    };
    let memory = look.memory();
    for copy in copies {
        if copy.build_id(&memory).as_deref() != Some(&ours.build_id) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_told_by_their_words() {
        let word = |name: &str| word_of(name.as_bytes());
        assert_eq!(word("memfd:midair-agent-1023.so"), Some(String::new()));
        assert_eq!(
            word("memfd:midair-agent-cuda-9.so"),
            Some("cuda".to_owned())
        );
        for other in [
            "libmidair-cuda.so",
            "memfd:midair-tool",
            "memfd:midair-agent-\u{1b}[m-9.so",
        ] {
            assert_eq!(word(other), None, "{other}");
        }
        assert_eq!(
            word(&format!(
                "memfd:{}",
                crate::mappings::memfd_name("cuda", 99)
            )),
            Some("cuda".to_owned())
        );
        assert_eq!(
            word(&format!("memfd:{}", crate::mappings::memfd_name("", 99))),
            Some(String::new())
        );
    }
}
