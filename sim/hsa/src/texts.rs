//! Texts whose length the runtime reports: names of symbols and URIs of code objects.
//!
//! | `SIM_HSA_TEXTS` | each text |
//! |---|---|
//! | not set | is reported and written as it is |
//! | a number | has so many bytes: it is cut, or `k` is appended |
//! | `grows` | grows between the first question for its length, which reports 10, and the next |
//!
//! What is reported is not what programs are looked up by. As in AMD's runtime, all of the text is
//! written, and no zero.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};

enum Mode {
    AsItIs,
    Bytes(usize),
    Grows,
}

static MODE: LazyLock<Mode> = LazyLock::new(|| match std::env::var("SIM_HSA_TEXTS").as_deref() {
    Ok("grows") => Mode::Grows,
    Ok(number) => number.parse().map_or(Mode::AsItIs, Mode::Bytes),
    Err(_) => Mode::AsItIs,
});
/// The symbols and code objects for whose text's length the program has asked.
static ASKED: LazyLock<Mutex<HashSet<u64>>> = LazyLock::new(Mutex::default);

/// Returns a text as it is written.
pub fn written(text: &str) -> Vec<u8> {
    let mut text = text.as_bytes().to_vec();
    if let Mode::Bytes(bytes) = *MODE {
        text.resize(bytes, b'k');
    }
    text
}

/// Returns the length that is reported for the text of a handle.
pub fn reported(handle: u64, text: &str) -> Vec<u8> {
    let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    let len = match *MODE {
        Mode::Grows if asked.insert(handle) => 10,
        _ => written(text).len() as u32,
    };
    len.to_ne_bytes().to_vec()
}
