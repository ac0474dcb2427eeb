//! What a row's facts in JSON tell of a record, and pieces of records.

use midair_record::event::{Header, MAX_RECORD, Plain, Untimed, flag};
use serde_json::Value;

/// Returns the header of a record of this kind.
pub(super) fn header(kind: u8, operation: u32) -> Header {
    Header {
        kind,
        operation,
        ..Header::default()
    }
}

/// Returns a text as far as a record has room for it.
pub(super) fn cut<T: Plain>(text: &[u8]) -> &[u8] {
    let room = MAX_RECORD.saturating_sub(size_of::<T>());
    text.get(..room).unwrap_or(text)
}

/// Returns a column of JSON. What is none is null.
pub(super) fn object(text: Option<&str>) -> Value {
    match text {
        // Most rows.
        None | Some("{}") => Value::Null,
        Some(text) => serde_json::from_str(text).unwrap_or(Value::Null),
    }
}

/// Where and when the work of a row was.
pub(super) struct Place {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) correlation: u64,
    pub(super) tid: u32,
}

/// Returns the number of a graph, and the number of its node, as CUDA has them.
pub(super) fn graph((graph, node): (i64, i64)) -> (u32, u64) {
    (graph as u32, node as u64)
}

/// Returns a header with the flags that a row's facts tell.
pub(super) fn with_flags(mut header: Header, extdata: &Value) -> Header {
    if extdata.get("open_at_detach").and_then(Value::as_bool) == Some(true) {
        header.flags |= flag::OPEN_AT_DETACH;
    }
    if extdata.get("untimed").is_some() {
        header.flags |= flag::UNTIMED;
    }
    header
}

/// Returns the number of the reason for which work has no times.
pub(super) fn untimed(extdata: &Value) -> u32 {
    let Some(reason) = extdata.get("untimed").and_then(Value::as_str) else {
        return Untimed::Timed as u32;
    };
    let known = Untimed::ALL.iter().find(|known| known.text() == reason);
    // A reason of another version keeps the flag alone.
    known.map_or(Untimed::Timed as u32, |known| *known as u32)
}
