//! The packets of a trace, written one after the other into its file.
//!
//! Names are interned: a name is written once with a number, and then referred to by the number.
//! The table of names is kept small. Names that do not fit, such as millions of different messages,
//! are written in full each time.

use super::wire::{self, Fields};
use crate::files::{OutputFile, WriteError};
use crate::model::Process;
use foldhash::fast::RandomState;
use prost::Message;
use proto::track_event::Type;
use proto::{CounterDescriptor, InternedData, InternedString, TracePacket, TrackDescriptor};
use std::collections::{HashMap, HashSet};

/// The messages of `proto/perfetto.proto`.
pub(super) mod proto {
    include!(concat!(env!("OUT_DIR"), "/midair.perfetto.rs"));
}

/// Flags of a sequence: everything interned before is forgotten; this packet needs interned data.
const CLEARED: u32 = 1;
const NEEDS_INTERNED: u32 = 2;
/// The sequence of the first session in a file.
const FIRST: u32 = 1;
/// CLOCK_BOOTTIME among Perfetto's clocks.
const BOOTTIME: u32 = 6;
/// Bytes among Perfetto's units of counters.
const UNIT_BYTES: i32 = 3;
/// Further names of events are not interned, where there are more than this, or where they take
/// more bytes than the limit.
const MOST_NAMES: usize = 1 << 14;
/// The number of bytes that are gathered before they are passed on. The file's own buffer is not
/// larger, so they are copied only once.
const BLOCK: usize = 128 * 1024;
/// The number of places in which texts are remembered by their addresses.
const PLACES: usize = 512;
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

/// The file, and what has been defined in it.
pub(super) struct Packets<'f> {
    file: &'f mut OutputFile,
    /// The sequence to which all packets of this process belong.
    sequence: u32,
    /// Packets that were not passed on yet.
    buffer: Vec<u8>,
    /// An event under construction, and the numbers of the names of its annotations.
    fields: Vec<u8>,
    numbers: Vec<u64>,
    categories: Interner,
    annotations: Interner,
    names: Interner,
    /// The tracks that were described.
    described: HashSet<u64, RandomState>,
    /// Keeps the numbers of this process different from those of others, where traces are merged.
    process: u64,
}

impl<'f> Packets<'f> {
    /// Begins a sequence behind what is in the file, with the packet that names the clock of all
    /// times.
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
            fields: Vec::new(),
            numbers: Vec::new(),
            categories: Interner::default(),
            annotations: Interner::default(),
            names: Interner::default(),
            described: HashSet::default(),
            process: mix(process.node.hash(), &[u64::from(process.pid), time]),
        };
        // There is only one snapshot in a file. Snapshots of later sessions could run backwards,
        // which readers take for an error. All times are of one clock, so one is enough.
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

    /// Returns the process's own track.
    pub(super) fn process(&self) -> u64 {
        self.process
    }

    /// Returns a number for a thing of this process.
    pub(super) fn uuid(&self, parts: &[u64]) -> u64 {
        mix(self.process, parts)
    }

    /// Returns the flow of a correlation id.
    pub(super) fn flow(&self, correlation: u64) -> u64 {
        self.process ^ correlation
    }

    /// Writes a packet with its length before it. A trace is a message whose field 1 is repeated
    /// for each packet.
    fn put(&mut self, packet: &TracePacket) -> Result<(), WriteError> {
        prost::encoding::message::encode(1, packet, &mut self.buffer);
        self.pass_on(BLOCK)
    }

    /// Passes packets on, if there are so many bytes of them.
    fn pass_on(&mut self, least: usize) -> Result<(), WriteError> {
        if self.buffer.len() < least {
            return Ok(());
        }
        self.file.put(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// Passes on what is left.
    pub(super) fn finish(&mut self) -> Result<(), WriteError> {
        self.pass_on(0)
    }

    /// Whether a track has not been described yet. From now on it counts as described.
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

    /// Describes a track of bytes, below the process.
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

    /// Writes a counter's value, which is valid from a time on.
    pub(super) fn counter(&mut self, track: u64, time: u64, value: u64) -> Result<(), WriteError> {
        let counter = Some(i64::try_from(value).unwrap_or(i64::MAX));
        self.put_event(
            time,
            None,
            &Fields {
                counter,
                ..of(Type::Counter, track)
            },
        )
    }

    /// Describes a track of plain numbers, below the process.
    pub(super) fn number_track(&mut self, uuid: u64, name: &str) -> Result<(), WriteError> {
        self.track(TrackDescriptor {
            uuid: Some(uuid),
            name: Some(name.to_owned()),
            parent_uuid: Some(self.process),
            counter: Some(CounterDescriptor { unit: None }),
            ..TrackDescriptor::default()
        })
    }

    /// Writes a number, which is valid from a time on.
    pub(super) fn number(&mut self, track: u64, time: u64, value: f64) -> Result<(), WriteError> {
        let real = Some(value);
        self.put_event(
            time,
            None,
            &Fields {
                real,
                ..of(Type::Counter, track)
            },
        )
    }

    /// Writes a slice with its begin and end.
    pub(super) fn slice(
        &mut self,
        event: &Event<'_>,
        start: u64,
        end: u64,
    ) -> Result<(), WriteError> {
        self.event(event, Type::SliceBegin, start)?;
        // Only a damaged record ends before it begins. Its end would close another slice, so it is
        // moved.
        self.put_event(end.max(start), None, &of(Type::SliceEnd, event.track))
    }

    /// Writes an instant.
    pub(super) fn instant(&mut self, event: &Event<'_>, time: u64) -> Result<(), WriteError> {
        self.event(event, Type::Instant, time)
    }

    fn event(&mut self, event: &Event<'_>, of: Type, time: u64) -> Result<(), WriteError> {
        let mut new = InternedData::default();
        let category = self
            .categories
            .number(&mut new.event_categories, event.category);
        let mut numbers = std::mem::take(&mut self.numbers);
        numbers.clear();
        for (name, _) in event.annotations {
            let new = &mut new.debug_annotation_names;
            numbers.push(self.annotations.number(new, name));
        }
        let name_iid = self.names.number_if_few(&mut new.event_names, event.name);
        let something_new = !new.event_categories.is_empty()
            || !new.debug_annotation_names.is_empty()
            || !new.event_names.is_empty();
        let new = something_new.then(|| new.encode_to_vec());
        let fields = Fields {
            category: Some(category),
            names: &numbers,
            annotations: event.annotations,
            name_iid,
            name: name_iid.is_none().then_some(event.name),
            flow: event.flow,
            ..self::of(of, event.track)
        };
        let written = self.put_event(time, new.as_deref(), &fields);
        self.numbers = numbers;
        written
    }

    fn put_event(
        &mut self,
        time: u64,
        interned: Option<&[u8]>,
        fields: &Fields<'_>,
    ) -> Result<(), WriteError> {
        self.fields.clear();
        wire::event(&mut self.fields, fields);
        let head = (time, self.sequence, NEEDS_INTERNED);
        wire::packet(&mut self.buffer, head, &self.fields, interned);
        self.pass_on(BLOCK)
    }
}

/// Makes an event of a track without further fields.
fn of<'a>(of: Type, track: u64) -> Fields<'a> {
    Fields {
        category: None,
        names: &[],
        annotations: &[],
        of: of.into(),
        name_iid: None,
        track,
        name: None,
        counter: None,
        real: None,
        flow: None,
    }
}

/// Names and their numbers, which begin at 1.
#[derive(Default)]
struct Interner {
    numbers: HashMap<String, u64>,
    texts: Vec<String>,
    bytes: usize,
    /// The address and the number of texts that were seen, in a place that follows from the address.
    /// Most texts come from the same address each time, and comparing a text takes a fraction of the
    /// time of hashing it.
    seen: Vec<(usize, u64)>,
}

impl Interner {
    fn known(&mut self, name: &str) -> Option<u64> {
        let address = name.as_ptr().addr();
        // Texts lie close together, so the lower bits differ most.
        let place = (address ^ address >> 9) % PLACES;
        if let Some((seen, number)) = self.seen.get(place)
            && *seen == address
            && let Some(text) = self.texts.get((*number as usize).wrapping_sub(1))
            && text == name
        {
            return Some(*number);
        }
        let number = *self.numbers.get(name)?;
        self.seen.resize(PLACES, (0, 0));
        if let Some(seen) = self.seen.get_mut(place) {
            *seen = (address, number);
        }
        Some(number)
    }

    fn number(&mut self, new: &mut Vec<InternedString>, name: &str) -> u64 {
        if let Some(number) = self.known(name) {
            return number;
        }
        let number = self.numbers.len() as u64 + 1;
        self.bytes += name.len();
        self.numbers.insert(name.to_owned(), number);
        self.texts.push(name.to_owned());
        new.push(interned(number, name));
        number
    }

    /// Does the same as [`Interner::number`], but returns none where there are too many names
    /// already.
    fn number_if_few(&mut self, new: &mut Vec<InternedString>, name: &str) -> Option<u64> {
        if let Some(number) = self.known(name) {
            return Some(number);
        }
        let is_full = self.numbers.len() >= MOST_NAMES || self.bytes + name.len() > MOST_NAME_BYTES;
        (!is_full).then(|| self.number(new, name))
    }
}

/// Makes a number from several, the same each time.
fn mix(seed: u64, parts: &[u64]) -> u64 {
    parts.iter().fold(seed, |mixed, part| {
        // These are the finishing steps of splitmix64, in which every bit of the input affects
        // every bit of the result.
        let mut mixed = (mixed ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}

/// Makes a packet of our sequence with only a time.
fn packet(sequence: u32, time: u64) -> TracePacket {
    TracePacket {
        timestamp: Some(time),
        trusted_packet_sequence_id: Some(sequence),
        sequence_flags: Some(NEEDS_INTERNED),
        ..TracePacket::default()
    }
}

fn interned(number: u64, name: &str) -> InternedString {
    InternedString {
        iid: Some(number),
        name: Some(name.to_owned()),
    }
}
