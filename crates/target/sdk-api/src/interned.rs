//! Texts that tools may use for the rest of the process's life.
//!
//! AMD's library keeps each text that a callback's data points to forever, and tools keep structs
//! with these pointers (source: `docs/sources.md#register`). So a text is stored here once, however
//! often it is given out. The number of texts is bounded by what the process loads.

use crate::state::STATE;
use std::ffi::{CStr, CString};
use std::sync::PoisonError;

/// Returns the text up to its first zero byte, at an address that never changes. Equal texts have
/// the same address. Called on the worker thread.
pub(crate) fn intern(bytes: &[u8]) -> &'static CStr {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    let text = CString::new(bytes.get(..end).unwrap_or_default()).unwrap_or_default();
    let mut all = STATE
        .interned
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let all = all.get_or_insert_default();
    if let Some(known) = all.get(text.as_c_str()) {
        return known;
    }
    // The text lives as long as the process, as in AMD's library.
    let text: &'static CStr = Box::leak(text.into_boxed_c_str());
    all.insert(text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_kept_once_and_for_ever() {
        let first = intern(b"vector_add.kd");
        let others: Vec<&CStr> = (0..1000)
            .map(|number| intern(format!("kernel {number}").as_bytes()))
            .collect();
        assert_eq!(intern(b"vector_add.kd\0more").as_ptr(), first.as_ptr());
        assert_eq!(first, c"vector_add.kd");
        assert_eq!(others[999], c"kernel 999");
        assert_eq!(intern(b""), c"");
    }
}
