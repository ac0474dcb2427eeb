//! Perfetto's events as bytes, without messages in between. Most of a trace are events, and
//! building, measuring and copying a message for each takes longer than everything else. The bytes
//! are exactly those that `prost` writes for the messages of `proto/perfetto.proto`.

use super::packets::Value;

/// The kinds of fields (source: the protocol buffers' encoding).
const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const BYTES: u8 = 2;

/// Appends a number with a variable length.
pub(super) fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Returns how many bytes a number with a variable length takes.
fn varint_len(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

fn tag(out: &mut Vec<u8>, field: u32, kind: u8) {
    varint(out, u64::from(field << 3) | u64::from(kind));
}

fn number(out: &mut Vec<u8>, field: u32, value: u64) {
    tag(out, field, VARINT);
    varint(out, value);
}

fn bytes(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    tag(out, field, BYTES);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn fixed(out: &mut Vec<u8>, field: u32, value: u64) {
    tag(out, field, FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

/// The fields of a `TrackEvent`, in the order of their numbers.
pub(super) struct Fields<'a> {
    pub(super) category: Option<u64>,
    /// The numbers of the annotations' names, and the annotations.
    pub(super) names: &'a [u64],
    pub(super) annotations: &'a [(&'a str, Value<'a>)],
    pub(super) of: i32,
    pub(super) name_iid: Option<u64>,
    pub(super) track: u64,
    pub(super) name: Option<&'a str>,
    pub(super) counter: Option<i64>,
    pub(super) real: Option<f64>,
    pub(super) flow: Option<u64>,
}

/// Appends a `TrackEvent`.
pub(super) fn event(out: &mut Vec<u8>, fields: &Fields<'_>) {
    if let Some(category) = fields.category {
        number(out, 3, category);
    }
    for (name, (_, value)) in fields.names.iter().zip(fields.annotations) {
        annotation(out, *name, value);
    }
    // An enumeration is a signed int32.
    number(out, 9, i64::from(fields.of).cast_unsigned());
    if let Some(name) = fields.name_iid {
        number(out, 10, name);
    }
    number(out, 11, fields.track);
    if let Some(name) = fields.name {
        bytes(out, 23, name.as_bytes());
    }
    if let Some(value) = fields.counter {
        number(out, 30, value.cast_unsigned());
    }
    if let Some(value) = fields.real {
        fixed(out, 44, value.to_bits());
    }
    if let Some(flow) = fields.flow {
        fixed(out, 47, flow);
    }
}

/// Appends an annotation.
#[inline]
fn annotation(out: &mut Vec<u8>, name: u64, value: &Value<'_>) {
    let (field, number) = match value {
        Value::Bool(value) => (2, u64::from(*value)),
        Value::Uint(value) => (3, *value),
        Value::Int(value) => (4, value.cast_unsigned()),
        _ => return any_annotation(out, name, value),
    };
    if name >= 0x80 {
        return any_annotation(out, name, value);
    }
    // Most are numbers. All of it is copied and then cut, which takes less time than copying a number
    // of bytes that is only known here.
    let mut bytes = [0; 16];
    let mut at = 5;
    let mut rest = number;
    while rest >= 0x80
        && let Some(to) = bytes.get_mut(at)
    {
        *to = rest as u8 | 0x80;
        rest >>= 7;
        at += 1;
    }
    if let Some(to) = bytes.get_mut(at) {
        *to = rest as u8;
    }
    let head = [4 << 3 | BYTES, at as u8 - 1, 1 << 3, name as u8, field << 3];
    for (to, from) in bytes.iter_mut().zip(head) {
        *to = from;
    }
    let end = out.len() + at + 1;
    out.extend_from_slice(&bytes);
    out.truncate(end);
}

fn any_annotation(out: &mut Vec<u8>, name: u64, value: &Value<'_>) {
    let of_value = match value {
        Value::Uint(value) => 1 + varint_len(*value),
        Value::Int(value) => 1 + varint_len(value.cast_unsigned()),
        Value::Real(_) => 9,
        Value::Bool(_) => 2,
        Value::Text(text) => 1 + varint_len(text.len() as u64) + text.len(),
    };
    tag(out, 4, BYTES);
    varint(out, (1 + varint_len(name) + of_value) as u64);
    number(out, 1, name);
    match value {
        Value::Bool(value) => number(out, 2, u64::from(*value)),
        Value::Uint(value) => number(out, 3, *value),
        Value::Int(value) => number(out, 4, value.cast_unsigned()),
        Value::Real(value) => fixed(out, 5, value.to_bits()),
        Value::Text(text) => bytes(out, 6, text.as_bytes()),
    }
}

/// Appends a packet with an event, as a field of the trace.
pub(super) fn packet(
    out: &mut Vec<u8>,
    (time, sequence, flags): (u64, u32, u32),
    event: &[u8],
    interned: Option<&[u8]>,
) {
    let of = |bytes: &[u8]| 1 + varint_len(bytes.len() as u64) + bytes.len();
    let len = 1
        + varint_len(time)
        + 1
        + varint_len(sequence.into())
        + of(event)
        + interned.map_or(0, of)
        + 1
        + varint_len(flags.into());
    tag(out, 1, BYTES);
    varint(out, len as u64);
    number(out, 8, time);
    number(out, 10, sequence.into());
    bytes(out, 11, event);
    if let Some(interned) = interned {
        bytes(out, 12, interned);
    }
    number(out, 13, flags.into());
}

#[cfg(test)]
mod tests {
    use super::super::packets::proto::{
        DebugAnnotation, InternedData, InternedString, TracePacket, TrackEvent,
    };
    use super::*;
    use prost::Message;

    #[test]
    fn lengths_are_those_of_what_is_written() {
        for number in [0, 1, 127, 128, 16_383, 16_384, u64::MAX >> 1, u64::MAX] {
            let mut out = Vec::new();
            varint(&mut out, number);
            assert_eq!(out.len(), varint_len(number), "{number}");
        }
    }

    #[test]
    fn bytes_are_those_of_prost() {
        let long = "x".repeat(300);
        let values = [
            (1, Value::Uint(u64::MAX)),
            (200, Value::Int(-5)),
            (3, Value::Real(0.25)),
            (4, Value::Bool(true)),
            (5, Value::Text(&long)),
            (6, Value::Text("")),
            (7, Value::Uint(0)),
            (8, Value::Uint(127)),
            (9, Value::Uint(128)),
            (127, Value::Uint(1 << 43)),
            (128, Value::Int(1)),
        ];
        let annotations = values.map(|(name, value)| {
            let mut message = DebugAnnotation {
                name_iid: Some(name),
                ..DebugAnnotation::default()
            };
            match value {
                Value::Uint(value) => message.uint_value = Some(value),
                Value::Int(value) => message.int_value = Some(value),
                Value::Real(value) => message.double_value = Some(value),
                Value::Bool(value) => message.bool_value = Some(value),
                Value::Text(value) => message.string_value = Some(value.to_owned()),
            }
            message
        });
        let interned = InternedData {
            event_names: vec![InternedString {
                iid: Some(1),
                name: Some(long.clone()),
            }],
            ..InternedData::default()
        };
        let event = TrackEvent {
            category_iids: vec![7],
            debug_annotations: annotations.to_vec(),
            r#type: Some(1),
            name_iid: Some(300),
            track_uuid: Some(u64::MAX),
            name: Some("a name".to_owned()),
            counter_value: Some(-1),
            double_counter_value: Some(1.5),
            flow_ids: vec![9],
        };
        let packet_of_prost = TracePacket {
            timestamp: Some(1 << 40),
            trusted_packet_sequence_id: Some(1),
            track_event: Some(event),
            interned_data: Some(interned.clone()),
            sequence_flags: Some(2),
            ..TracePacket::default()
        };
        let mut wanted = Vec::new();
        prost::encoding::message::encode(1, &packet_of_prost, &mut wanted);
        let mut ours = Vec::new();
        super::event(
            &mut ours,
            &Fields {
                category: Some(7),
                names: &values.map(|(name, _)| name),
                annotations: &values.map(|(_, value)| ("", value)),
                of: 1,
                name_iid: Some(300),
                track: u64::MAX,
                name: Some("a name"),
                counter: Some(-1),
                real: Some(1.5),
                flow: Some(9),
            },
        );
        let mut out = Vec::new();
        packet(
            &mut out,
            (1 << 40, 1, 2),
            &ours,
            Some(&interned.encode_to_vec()),
        );
        assert_eq!(out, wanted);
    }
}
