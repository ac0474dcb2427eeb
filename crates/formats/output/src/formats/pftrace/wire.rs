//! Perfetto's events as bytes, without messages in between. Most of a trace are events, and
//! building, measuring and copying a message for each takes longer than everything else. The bytes
//! are exactly those that `prost` writes for [`super::messages`].

/// The kinds of fields (source: the protocol buffers' encoding).
const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const BYTES: u8 = 2;

/// The first number whose variable length is more than eight bytes.
const LONG: u64 = 1 << 56;
/// The first number of a field or name that takes two bytes.
const TWO_BYTES: u64 = 0x80;

/// Returns how many bytes a number with a variable length takes.
#[inline]
fn varint_len(number: u64) -> usize {
    (70 - (number | 1).leading_zeros() as usize) / 7
}

/// Returns a number below [`LONG`] with a variable length, its first byte lowest, and how many
/// bytes it takes. All groups of seven bits are moved to their bytes at once: first two halves, then
/// four quarters, then eight groups.
#[inline]
fn spread(number: u64) -> (u64, usize) {
    let halves = (number & 0x0fff_ffff) | (number & 0x00ff_ffff_f000_0000) << 4;
    let quarters = (halves & 0x0000_3fff_0000_3fff) | (halves & 0x0fff_c000_0fff_c000) << 2;
    let groups = (quarters & 0x007f_007f_007f_007f) | (quarters & 0x3f80_3f80_3f80_3f80) << 1;
    let len = varint_len(number);
    // All bytes but the last one say that another follows.
    let follows = 0x0080_8080_8080_8080 >> (8 * (8 - len));
    (groups | follows, len)
}

/// Appends the lower bytes of a word. All of it is copied and then cut, which takes less time than
/// copying a number of bytes that is only known here.
#[inline]
fn piece(out: &mut Vec<u8>, word: u128, len: usize) {
    let end = out.len() + len;
    out.extend_from_slice(&word.to_le_bytes());
    out.truncate(end);
}

/// Appends a number with a variable length.
#[inline]
fn varint(out: &mut Vec<u8>, number: u64) {
    if number < LONG {
        let (word, len) = spread(number);
        piece(out, u128::from(word), len);
    } else {
        long_varint(out, number);
    }
}

fn long_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= TWO_BYTES {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[inline]
fn tag_of(field: u32, kind: u8) -> u64 {
    u64::from(field << 3) | u64::from(kind)
}

/// Appends a field with a number.
#[inline]
fn number(out: &mut Vec<u8>, field: u32, value: u64) {
    let tag = tag_of(field, VARINT);
    if tag < TWO_BYTES && value < LONG {
        let (word, len) = spread(value);
        piece(out, u128::from(tag) | u128::from(word) << 8, len + 1);
    } else {
        varint(out, tag);
        long_varint(out, value);
    }
}

fn bytes(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    begin(out, field, value.len());
    out.extend_from_slice(value);
}

/// Appends what comes before this many bytes of a field.
#[inline]
fn begin(out: &mut Vec<u8>, field: u32, len: usize) {
    varint(out, tag_of(field, BYTES));
    varint(out, len as u64);
}

fn fixed(out: &mut Vec<u8>, field: u32, value: u64) {
    varint(out, tag_of(field, FIXED64));
    out.extend_from_slice(&value.to_le_bytes());
}

/// The fields of a `TrackEvent`, in the order of their numbers.
pub(super) struct Fields<'a> {
    pub(super) category: Option<u64>,
    /// As the functions below make them.
    pub(super) annotations: &'a [u8],
    pub(super) of: i32,
    pub(super) name_iid: Option<u64>,
    pub(super) track: u64,
    pub(super) name: Option<&'a str>,
    pub(super) counter: Option<i64>,
    pub(super) real: Option<f64>,
    pub(super) flow: Option<u64>,
    pub(super) callstack: Option<u64>,
}

impl Fields<'_> {
    /// Returns an enumeration as it is written, which is as a signed int32.
    #[inline]
    fn of(&self) -> u64 {
        i64::from(self.of).cast_unsigned()
    }

    /// Returns how many bytes [`Fields::put`] appends.
    #[inline]
    fn len(&self) -> usize {
        let number = |value: Option<u64>, tag: usize| value.map_or(0, |it| tag + varint_len(it));
        number(self.category, 1)
            + self.annotations.len()
            + number(Some(self.of()), 1)
            + number(self.name_iid, 1)
            + number(Some(self.track), 1)
            + self
                .name
                .map_or(0, |name| 2 + varint_len(name.len() as u64) + name.len())
            + number(self.counter.map(i64::cast_unsigned), 2)
            + self.real.map_or(0, |_| 10)
            + self.flow.map_or(0, |_| 10)
            + number(self.callstack, 2)
    }

    /// Appends a `TrackEvent`.
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        if let Some(category) = self.category {
            number(out, 3, category);
        }
        out.extend_from_slice(self.annotations);
        number(out, 9, self.of());
        if let Some(name) = self.name_iid {
            number(out, 10, name);
        }
        number(out, 11, self.track);
        if let Some(name) = self.name {
            bytes(out, 23, name.as_bytes());
        }
        if let Some(value) = self.counter {
            number(out, 30, value.cast_unsigned());
        }
        if let Some(value) = self.real {
            fixed(out, 44, value.to_bits());
        }
        if let Some(flow) = self.flow {
            fixed(out, 47, flow);
        }
        if let Some(callstack) = self.callstack {
            number(out, 56, callstack);
        }
    }
}

/// Appends an annotation with a number, by the number of its name.
#[inline]
pub(super) fn uint(out: &mut Vec<u8>, name: u64, value: u64) {
    annotation(out, name, 3, value);
}

/// Appends an annotation with a signed number.
#[inline]
pub(super) fn int(out: &mut Vec<u8>, name: u64, value: i64) {
    annotation(out, name, 4, value.cast_unsigned());
}

/// Appends an annotation with the value true.
pub(super) fn yes(out: &mut Vec<u8>, name: u64) {
    annotation(out, name, 2, 1);
}

#[inline]
fn annotation(out: &mut Vec<u8>, name: u64, field: u8, value: u64) {
    if name >= TWO_BYTES || value >= LONG {
        return long_annotation(out, name, field, value);
    }
    let (word, len) = spread(value);
    // The field of the event and its length, the name, and the field of the value.
    let head = tag_of(4, BYTES)
        | (len as u64 + 3) << 8
        | tag_of(1, VARINT) << 16
        | name << 24
        | u64::from(field << 3) << 32;
    piece(out, u128::from(head) | u128::from(word) << 40, len + 5);
}

fn long_annotation(out: &mut Vec<u8>, name: u64, field: u8, value: u64) {
    begin_annotation(out, name, 1 + varint_len(value));
    number(out, field.into(), value);
}

/// Appends what comes before a value that takes this many bytes.
fn begin_annotation(out: &mut Vec<u8>, name: u64, value: usize) {
    begin(out, 4, 1 + varint_len(name) + value);
    number(out, 1, name);
}

/// Appends an annotation with a real number.
pub(super) fn real(out: &mut Vec<u8>, name: u64, value: f64) {
    begin_annotation(out, name, 9);
    fixed(out, 5, value.to_bits());
}

/// Appends an annotation with a text.
pub(super) fn text(out: &mut Vec<u8>, name: u64, text: &str) {
    let len = text.len();
    begin_annotation(out, name, 1 + varint_len(len as u64) + len);
    bytes(out, 6, text.as_bytes());
}

/// Appends a packet with an event, as a field of the trace.
#[inline]
pub(super) fn packet(
    out: &mut Vec<u8>,
    (time, sequence, flags): (u64, u32, u32),
    event: &Fields<'_>,
    interned: Option<&[u8]>,
) {
    let of = |len: usize| 1 + varint_len(len as u64) + len;
    let event_len = event.len();
    let len = 1
        + varint_len(time)
        + 1
        + varint_len(sequence.into())
        + of(event_len)
        + interned.map_or(0, |interned| of(interned.len()))
        + 1
        + varint_len(flags.into());
    begin(out, 1, len);
    number(out, 8, time);
    number(out, 10, sequence.into());
    begin(out, 11, event_len);
    event.put(out);
    if let Some(interned) = interned {
        bytes(out, 12, interned);
    }
    number(out, 13, flags.into());
}

#[cfg(test)]
mod tests {
    use super::super::messages::{
        DebugAnnotation, InternedData, InternedString, TracePacket, TrackEvent,
    };
    use super::*;
    use prost::Message;

    #[test]
    fn lengths_are_those_of_what_is_written() {
        let powers = (0..64).map(|bit| 1_u64 << bit);
        for number in powers.flat_map(|power| [power - 1, power, power + 1, power | (power / 3)]) {
            let (mut out, mut wanted) = (Vec::new(), Vec::new());
            varint(&mut out, number);
            prost::encoding::encode_varint(number, &mut wanted);
            assert_eq!(out, wanted, "{number}");
            assert_eq!(out.len(), varint_len(number), "{number}");
        }
    }

    #[test]
    fn bytes_are_those_of_prost() {
        let long = "x".repeat(300);
        enum Value<'a> {
            Uint(u64),
            Int(i64),
            Real(f64),
            Bool(bool),
            Text(&'a str),
        }
        let values = [
            (1, Value::Uint(u64::MAX)),
            (2, Value::Uint((1 << 56) - 1)),
            (300, Value::Bool(true)),
            (301, Value::Text("x")),
            (302, Value::Real(-1.0)),
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
        let annotations = values.iter().map(|(name, value)| {
            let mut message = DebugAnnotation {
                name_iid: Some(*name),
                ..DebugAnnotation::default()
            };
            match value {
                Value::Uint(value) => message.uint_value = Some(*value),
                Value::Int(value) => message.int_value = Some(*value),
                Value::Real(value) => message.double_value = Some(*value),
                Value::Bool(value) => message.bool_value = Some(*value),
                Value::Text(value) => message.string_value = Some((*value).to_owned()),
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
            debug_annotations: annotations.collect(),
            r#type: Some(1),
            name_iid: Some(300),
            track_uuid: Some(u64::MAX),
            name: Some("a name".to_owned()),
            counter_value: Some(-1),
            double_counter_value: Some(1.5),
            flow_ids: vec![9],
            callstack_iid: Some(130),
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
        for (name, value) in values {
            match value {
                Value::Uint(value) => uint(&mut ours, name, value),
                Value::Int(value) => int(&mut ours, name, value),
                Value::Real(value) => real(&mut ours, name, value),
                Value::Bool(_) => yes(&mut ours, name),
                Value::Text(value) => super::text(&mut ours, name, value),
            }
        }
        let fields = Fields {
            category: Some(7),
            annotations: &ours,
            of: 1,
            name_iid: Some(300),
            track: u64::MAX,
            name: Some("a name"),
            counter: Some(-1),
            real: Some(1.5),
            flow: Some(9),
            callstack: Some(130),
        };
        let mut out = Vec::new();
        packet(
            &mut out,
            (1 << 40, 1, 2),
            &fields,
            Some(&interned.encode_to_vec()),
        );
        assert_eq!(out, wanted);
    }
}
