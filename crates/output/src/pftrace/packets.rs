//! Packets of a trace, one after the other into its file.
//!
//! Names are interned: written once with a number, then named by it. The table of names is kept
//! small: what does not fit, such as millions of different messages, is written in full each time.

use crate::files::{OutputFile, WriteError};
use crate::model::Process;
use proto::track_event::Type;
use proto::{
    CounterDescriptor, DebugAnnotation, InternedData, InternedString, TracePacket, TrackDescriptor,
    TrackEvent,
};
use std::collections::{HashMap, HashSet};

/// The messages of `proto/perfetto.proto`.
pub(super) mod proto {
    include!(concat!(env!("OUT_DIR"), "/midair.perfetto.rs"));
}

/// Flags of a sequence: what was interned before is forgotten; this packet needs what was interned.
const CLEARED: u32 = 1;
const NEEDS_INTERNED: u32 = 2;
/// The sequence of the first session in a file.
const FIRST: u32 = 1;
/// CLOCK_BOOTTIME among Perfetto's clocks.
const BOOTTIME: u32 = 6;
/// Bytes among Perfetto's units of counters.
const UNIT_BYTES: i32 = 3;
/// Names of events beyond this many, or longer together than so many bytes, are not interned.
const MOST_NAMES: usize = 1 << 14;
const MOST_NAME_BYTES: usize = 4 << 20;

/// A value of a debug annotation.
#[derive(Clone, Copy)]
pub(super) enum Value<'a> {
    Uint(u64),
    Int(i64),
    Real(f64),
    Bool(bool),
    Text(&'a str),
}

/// A slice, or an instant.
pub(super) struct Event<'a> {
    pub(super) category: &'static str,
    pub(super) name: &'a str,
    pub(super) track: u64,
    pub(super) flow: Option<u64>,
    pub(super) annotations: &'a [(&'a str, Value<'a>)],
}

/// The file, and what was already defined in it.
pub(super) struct Packets<'f> {
    file: &'f mut OutputFile,
    /// The sequence that all packets of this process are of.
    sequence: u32,
    buffer: Vec<u8>,
    categories: HashMap<String, u64>,
    annotations: HashMap<String, u64>,
    names: HashMap<String, u64>,
    name_bytes: usize,
    /// Tracks that were described.
    described: HashSet<u64>,
    /// What keeps numbers of this process apart from those of others, in traces that are put together.
    process: u64,
}

impl<'f> Packets<'f> {
    /// Begins a sequence, behind what is in the file, with the packet that names the clock of all times.
    pub(super) fn begin(
        file: &'f mut OutputFile,
        process: &Process,
        sequence: u32,
    ) -> Result<Packets<'f>, WriteError> {
        let time = process.init_time;
        let mut packets = Packets {
            file,
            sequence,
            buffer: Vec::new(),
            categories: HashMap::new(),
            annotations: HashMap::new(),
            names: HashMap::new(),
            name_bytes: 0,
            described: HashSet::new(),
            process: mix(process.node.hash(), &[u64::from(process.pid), time]),
        };
        // One snapshot in a file: those of later sessions could run backwards, which readers take for a
        // fault. All times are of one clock, so one is enough.
        let snapshot = (sequence == FIRST).then(|| proto::ClockSnapshot {
            clocks: vec![proto::clock_snapshot::Clock {
                clock_id: Some(BOOTTIME),
                timestamp: Some(time),
            }],
            primary_trace_clock: Some(BOOTTIME),
        });
        packets.put(&TracePacket {
            clock_snapshot: snapshot,
            sequence_flags: Some(CLEARED),
            trace_packet_defaults: Some(proto::TracePacketDefaults {
                timestamp_clock_id: Some(BOOTTIME),
            }),
            first_packet_on_sequence: Some(true),
            ..packet(sequence, time)
        })?;
        Ok(packets)
    }

    /// The process's own track.
    pub(super) fn process(&self) -> u64 {
        self.process
    }

    /// A number for a thing of this process.
    pub(super) fn uuid(&self, parts: &[u64]) -> u64 {
        mix(self.process, parts)
    }

    /// The flow of a correlation id.
    pub(super) fn flow(&self, correlation: u64) -> u64 {
        self.process ^ correlation
    }

    /// A trace is the field 1 of a message, repeated: each packet with its length in front.
    fn put(&mut self, packet: &TracePacket) -> Result<(), WriteError> {
        self.buffer.clear();
        prost::encoding::message::encode(1, packet, &mut self.buffer);
        self.file.put(&self.buffer)
    }

    /// Whether a track is still to be described; from now on it is.
    pub(super) fn describe(&mut self, uuid: u64) -> bool {
        self.described.insert(uuid)
    }

    /// Describes a track.
    pub(super) fn track(&mut self, track: TrackDescriptor) -> Result<(), WriteError> {
        self.put(&TracePacket {
            timestamp: None,
            track_descriptor: Some(track),
            ..packet(self.sequence, 0)
        })
    }

    /// Describes a track of bytes below the process.
    pub(super) fn counter_track(&mut self, uuid: u64, name: &str) -> Result<(), WriteError> {
        self.track(TrackDescriptor {
            uuid: Some(uuid),
            name: Some(name.to_owned()),
            parent_uuid: Some(self.process),
            counter: Some(CounterDescriptor {
                unit: Some(UNIT_BYTES),
            }),
            ..TrackDescriptor::default()
        })
    }

    /// A counter's value from a time on.
    pub(super) fn counter(&mut self, track: u64, time: u64, value: u64) -> Result<(), WriteError> {
        let event = TrackEvent {
            r#type: Some(Type::Counter.into()),
            track_uuid: Some(track),
            counter_value: Some(i64::try_from(value).unwrap_or(i64::MAX)),
            ..TrackEvent::default()
        };
        self.put(&TracePacket {
            track_event: Some(event),
            ..packet(self.sequence, time)
        })
    }

    /// Describes a track of plain numbers below the process.
    pub(super) fn number_track(&mut self, uuid: u64, name: &str) -> Result<(), WriteError> {
        self.track(TrackDescriptor {
            uuid: Some(uuid),
            name: Some(name.to_owned()),
            parent_uuid: Some(self.process),
            counter: Some(CounterDescriptor { unit: None }),
            ..TrackDescriptor::default()
        })
    }

    /// A number from a time on.
    pub(super) fn number(&mut self, track: u64, time: u64, value: f64) -> Result<(), WriteError> {
        let event = TrackEvent {
            r#type: Some(Type::Counter.into()),
            track_uuid: Some(track),
            double_counter_value: Some(value),
            ..TrackEvent::default()
        };
        self.put(&TracePacket {
            track_event: Some(event),
            ..packet(self.sequence, time)
        })
    }

    /// A slice with its begin and end.
    pub(super) fn slice(
        &mut self,
        event: &Event<'_>,
        start: u64,
        end: u64,
    ) -> Result<(), WriteError> {
        self.event(event, Type::SliceBegin, start)?;
        let event = TrackEvent {
            r#type: Some(Type::SliceEnd.into()),
            track_uuid: Some(event.track),
            ..TrackEvent::default()
        };
        // An end before the begin, which only a damaged record has, would end something else.
        self.put(&TracePacket {
            track_event: Some(event),
            ..packet(self.sequence, end.max(start))
        })
    }

    /// An instant.
    pub(super) fn instant(&mut self, event: &Event<'_>, time: u64) -> Result<(), WriteError> {
        self.event(event, Type::Instant, time)
    }

    fn event(&mut self, event: &Event<'_>, of: Type, time: u64) -> Result<(), WriteError> {
        let mut new = InternedData::default();
        let category = intern(
            &mut self.categories,
            &mut new.event_categories,
            event.category,
        );
        let mut annotations = Vec::with_capacity(event.annotations.len());
        for (name, value) in event.annotations {
            let number = intern(&mut self.annotations, &mut new.debug_annotation_names, name);
            annotations.push(annotation(number, value));
        }
        let name_iid = self.intern_name(&mut new, event.name);
        let name = match name_iid {
            Some(_) => None,
            None => Some(event.name.to_owned()),
        };
        let something_new = new != InternedData::default();
        self.put(&TracePacket {
            interned_data: something_new.then_some(new),
            track_event: Some(TrackEvent {
                category_iids: vec![category],
                debug_annotations: annotations,
                r#type: Some(of.into()),
                name_iid,
                track_uuid: Some(event.track),
                name,
                flow_ids: event.flow.into_iter().collect(),
                ..TrackEvent::default()
            }),
            ..packet(self.sequence, time)
        })
    }

    fn intern_name(&mut self, new: &mut InternedData, name: &str) -> Option<u64> {
        if let Some(known) = self.names.get(name) {
            return Some(*known);
        }
        if self.names.len() >= MOST_NAMES || self.name_bytes + name.len() > MOST_NAME_BYTES {
            return None;
        }
        let number = self.names.len() as u64 + 1;
        self.name_bytes += name.len();
        self.names.insert(name.to_owned(), number);
        new.event_names.push(interned(number, name));
        Some(number)
    }
}

/// A number from several, the same each time.
fn mix(seed: u64, parts: &[u64]) -> u64 {
    parts.iter().fold(seed, |mixed, part| {
        // The finishing steps of splitmix64: every bit counts in every bit.
        let mut mixed = (mixed ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}

/// A packet of our sequence with a time and nothing else.
fn packet(sequence: u32, time: u64) -> TracePacket {
    TracePacket {
        timestamp: Some(time),
        trusted_packet_sequence_id: Some(sequence),
        sequence_flags: Some(NEEDS_INTERNED),
        ..TracePacket::default()
    }
}

fn intern(known: &mut HashMap<String, u64>, new: &mut Vec<InternedString>, name: &str) -> u64 {
    if let Some(number) = known.get(name) {
        return *number;
    }
    let next = known.len() as u64 + 1;
    known.insert(name.to_owned(), next);
    new.push(interned(next, name));
    next
}

fn interned(number: u64, name: &str) -> InternedString {
    InternedString {
        iid: Some(number),
        name: Some(name.to_owned()),
    }
}

fn annotation(name: u64, value: &Value<'_>) -> DebugAnnotation {
    let mut annotation = DebugAnnotation {
        name_iid: Some(name),
        ..DebugAnnotation::default()
    };
    match value {
        Value::Uint(value) => annotation.uint_value = Some(*value),
        Value::Int(value) => annotation.int_value = Some(*value),
        Value::Real(value) => annotation.double_value = Some(*value),
        Value::Bool(value) => annotation.bool_value = Some(*value),
        Value::Text(value) => annotation.string_value = Some((*value).to_owned()),
    }
    annotation
}
