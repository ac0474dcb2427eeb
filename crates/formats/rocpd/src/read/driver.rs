//! Events of the kernel driver.

use super::facts::Place;
use midair_record::event::{Header, KfdEvent, encode};
use serde_json::Value;

/// Returns an event as a record.
pub(super) fn event(header: Header, place: &Place, facts: &Value) -> Vec<u8> {
    let number = |key: &str| facts.get(key).and_then(Value::as_u64).unwrap_or(0);
    let error = facts.get("error_code").and_then(Value::as_i64);
    let domain = midair_domain::domain(header.kind);
    let event = KfdEvent {
        header,
        start: place.start,
        end: place.end,
        address: number("address"),
        end_address: number("end_address"),
        tracing_kind: domain.and_then(|domain| domain.number).map_or(0, u32::from),
        pid: place.tid,
        from: number("from") as u32,
        to: number("to") as u32,
        prefetch: number("prefetch") as u32,
        preferred: number("preferred") as u32,
        error: error.unwrap_or(0) as i32,
        count: number("count") as u32,
    };
    encode(&event, &[])
}
