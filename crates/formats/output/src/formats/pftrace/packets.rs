//! The packets of a trace, written one after the other into its file.
//!
//! Names are interned: a name is written once with a number, and then referred to by the number.
//! The table of names is kept small. Names that do not fit, such as millions of different messages,
//! are written in full each time.

use super::annotations::Annotations;
use super::callstacks::Callstacks;
use super::interner::Interner;
use super::messages::{
    Clock, ClockSnapshot, CounterDescriptor, InternedData, TracePacket, TracePacketDefaults,
    TrackDescriptor, Type,
};
use super::wire::{self, Fields};
use crate::files::{OutputFile, WriteError};
use crate::job::Job;
use foldhash::fast::RandomState;
use midair_domain::KindSet;
use midair_trace::api::Names;
use prost::Message;
use std::borrow::Cow;
use std::collections::HashSet;

/// Flags of a sequence: everything interned before is forgotten; this packet needs interned data.
const CLEARED: u32 = 1;
const NEEDS_INTERNED: u32 = 2;
/// The sequence of the first session in a file.
const FIRST: u32 = 1;
/// CLOCK_BOOTTIME among Perfetto's clocks.
const BOOTTIME: u32 = 6;
/// Bytes among Perfetto's units of counters.
const UNIT_BYTES: i32 = 3;
/// The number of bytes that are gathered before they are passed on. The file's own buffer is not
/// larger, so they are copied only once.
const BLOCK: usize = 128 * 1024;
/// From this number of an operation on, its name is looked up for each event. A target can invent
/// any number; the meaningful ones are smaller.
const MOST_KNOWN: usize = 1 << 12;

/// The name of an event.
#[derive(Clone, Copy)]
pub(super) enum Name<'a> {
    Text(&'a str),
    /// The name of an operation of a kind.
    Operation(&'a Names, u8, u32),
}

/// A slice, or an instant. Its annotations are the ones that were added last.
pub(super) struct Event<'a> {
    /// The domain that names the category.
    pub(super) kind: u8,
    pub(super) name: Name<'a>,
    pub(super) track: u64,
    pub(super) flow: Option<u64>,
    /// Whose stack it has, by its correlation id.
    pub(super) correlation: u64,
    /// The number of a kernel's dispatch, or 0.
    pub(super) dispatch: u64,
}

/// The file, and what has been defined in it.
pub(super) struct Packets<'f> {
    file: &'f mut OutputFile,
    /// The sequence to which all packets of this process belong.
    sequence: u32,
    /// Packets that were not passed on yet.
    buffer: Vec<u8>,
    annotations: Annotations,
    callstacks: Callstacks<'f>,
    categories: Interner,
    /// The numbers of the categories of kinds. A kind without a number has 0.
    of_kinds: [u64; KindSet::LIMIT as usize],
    names: Interner,
    /// The numbers of the names of operations by kind. An operation without a number has 0.
    operations: Vec<Vec<u64>>,
    /// The tracks that were described.
    described: HashSet<u64, RandomState>,
    /// Keeps the numbers of this process different from other processes' numbers, where traces are
    /// merged.
    process: u64,
}

impl<'f> Packets<'f> {
    /// Starts a sequence behind what is in the file, with the packet that names the clock of all
    /// times.
    pub(super) fn begin(
        file: &'f mut OutputFile,
        job: &'f Job<'f>,
        sequence: u32,
    ) -> Result<Packets<'f>, WriteError> {
        let process = &job.trace.process;
        let time = process.init_time;
        let mut packets = Packets {
            file,
            sequence,
            buffer: Vec::new(),
            annotations: Annotations::default(),
            callstacks: Callstacks::new(&job.index.stacks),
            categories: Interner::default(),
            of_kinds: [0; KindSet::LIMIT as usize],
            names: Interner::default(),
            operations: Vec::new(),
            described: HashSet::default(),
            process: mix(process.node.hash(), &[u64::from(process.pid), time]),
        };
        // There is only one snapshot in a file. Snapshots of later sessions could run backwards,
        // which readers take for an error. All times are of one clock, so one is enough.
        let snapshot = (sequence == FIRST).then(|| ClockSnapshot {
            clocks: vec![Clock {
                clock_id: Some(BOOTTIME),
                timestamp: Some(time),
            }],
            primary_trace_clock: Some(BOOTTIME),
        });
        packets.put(&TracePacket {
            clock_snapshot: snapshot,
            sequence_flags: Some(CLEARED),
            trace_packet_defaults: Some(TracePacketDefaults {
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
            &Fields {
                real,
                ..of(Type::Counter, track)
            },
        )
    }

    /// Writes a slice with its start and end.
    pub(super) fn slice(
        &mut self,
        event: &Event<'_>,
        start: u64,
        end: u64,
    ) -> Result<(), WriteError> {
        self.event(event, Type::SliceBegin, start)?;
        // Only a damaged record ends before it starts. Its end would close another slice, so it is
        // moved.
        self.put_event(end.max(start), &of(Type::SliceEnd, event.track))
    }

    /// Writes an instant.
    pub(super) fn instant(&mut self, event: &Event<'_>, time: u64) -> Result<(), WriteError> {
        self.event(event, Type::Instant, time)
    }

    /// Starts the annotations of the next event.
    pub(super) fn annotate(&mut self) -> &mut Annotations {
        self.annotations.begin()
    }

    /// Goes on with them.
    pub(super) fn annotations(&mut self) -> &mut Annotations {
        &mut self.annotations
    }

    fn event(&mut self, event: &Event<'_>, of: Type, time: u64) -> Result<(), WriteError> {
        let mut new = InternedData {
            debug_annotation_names: self.annotations.take_new(),
            ..InternedData::default()
        };
        let category = match self.of_kinds.get_mut(usize::from(event.kind)) {
            Some(0) | None => self.category(&mut new, event.kind),
            Some(known) => *known,
        };
        let (name_iid, name) = match event.name {
            Name::Text(text) => {
                let number = self.names.number_if_few(&mut new.event_names, text);
                (number, number.is_none().then_some(Cow::Borrowed(text)))
            }
            Name::Operation(names, kind, operation) => {
                let known = self.operations.get(usize::from(kind));
                match known.and_then(|known| known.get(operation as usize)) {
                    Some(0) | None => self.operation(&mut new, names, (kind, operation)),
                    Some(known) => (Some(*known), None),
                }
            }
        };
        let callstack = self
            .callstacks
            .number(&mut new, event.correlation, event.dispatch);
        let something_new = !new.callstacks.is_empty()
            || !new.event_categories.is_empty()
            || !new.debug_annotation_names.is_empty()
            || !new.event_names.is_empty();
        let new = something_new.then(|| new.encode_to_vec());
        let fields = Fields {
            category: Some(category),
            annotations: self.annotations.bytes(),
            name_iid,
            name: name.as_deref(),
            flow: event.flow,
            callstack,
            ..self::of(of, event.track)
        };
        let head = (time, self.sequence, NEEDS_INTERNED);
        wire::packet(&mut self.buffer, head, &fields, new.as_deref());
        self.pass_on(BLOCK)
    }

    /// Gives the category of a kind its number.
    #[cold]
    fn category(&mut self, new: &mut InternedData, kind: u8) -> u64 {
        let domain = midair_domain::domain(kind);
        let category = domain.and_then(|domain| domain.files.category);
        let category = category.unwrap_or_default();
        let number = self.categories.number(&mut new.event_categories, category);
        if let Some(known) = self.of_kinds.get_mut(usize::from(kind)) {
            *known = number;
        }
        number
    }

    /// Returns the number of an operation's name, or the name itself where there are too many.
    #[cold]
    fn operation<'n>(
        &mut self,
        new: &mut InternedData,
        names: &'n Names,
        (kind, operation): (u8, u32),
    ) -> (Option<u64>, Option<Cow<'n, str>>) {
        let name = names.operation(kind, operation);
        let Some(number) = self.names.number_if_few(&mut new.event_names, &name) else {
            return (None, Some(name));
        };
        let (kind, operation) = (usize::from(kind), operation as usize);
        if operation < MOST_KNOWN {
            if self.operations.len() <= kind {
                self.operations.resize_with(kind + 1, Vec::new);
            }
            if let Some(known) = self.operations.get_mut(kind) {
                known.resize(known.len().max(operation + 1), 0);
                if let Some(known) = known.get_mut(operation) {
                    *known = number;
                }
            }
        }
        (Some(number), None)
    }

    fn put_event(&mut self, time: u64, fields: &Fields<'_>) -> Result<(), WriteError> {
        let head = (time, self.sequence, NEEDS_INTERNED);
        wire::packet(&mut self.buffer, head, fields, None);
        self.pass_on(BLOCK)
    }
}

/// Makes an event of a track without further fields.
fn of<'a>(of: Type, track: u64) -> Fields<'a> {
    Fields {
        category: None,
        annotations: &[],
        of: of.into(),
        name_iid: None,
        track,
        name: None,
        counter: None,
        real: None,
        flow: None,
        callstack: None,
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
