//! The global definitions: what the numbers in events stand for.
//!
//! They are written as they come. Names that were written are remembered, up to a limit. Beyond it a
//! name may be defined again with another number, which is allowed, so memory has a limit however
//! many names there are.

use super::bytes::{self, Chunks, Take};
use crate::files::{OutputFile, WriteError};
use foldhash::fast::RandomState;
use midair_trace::limits::{self, Budget};
use std::collections::HashMap;
use std::io;

/// The size of the file's chunks (libotf2's own).
pub(super) const CHUNK: usize = 4 << 20;
/// The most names and regions that are remembered, and the most bytes of names.
const MOST: usize = 1 << 16;
const MOST_BYTES: usize = 32 << 20;

/// Types of records.
mod kind {
    pub(super) const CLOCK: u8 = 5;
    pub(super) const STRING: u8 = 10;
    pub(super) const ATTRIBUTE: u8 = 11;
    pub(super) const TREE_NODE: u8 = 12;
    pub(super) const GROUP: u8 = 13;
    pub(super) const LOCATION: u8 = 14;
    pub(super) const REGION: u8 = 15;
    pub(super) const METRIC_MEMBER: u8 = 19;
    pub(super) const METRIC_CLASS: u8 = 20;
    pub(super) const TREE_NODE_DOMAIN: u8 = 27;
    pub(super) const GROUP_PROPERTY: u8 = 28;
}

/// `OTF2_UNDEFINED_UINT32`.
const NONE: u32 = u32::MAX;
/// Ticks a second: times are in nanoseconds.
const RESOLUTION: u64 = 1_000_000_000;
/// The place of the clock's record: behind the head of the first chunk.
const CLOCK_AT: u64 = 18;
/// Types of values (`OTF2_Type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Type {
    U64 = 4,
    Double = 10,
    String = 11,
}

/// What a region is for (`OTF2_RegionRole`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Role {
    Function = 1,
    DataTransfer = 30,
    Allocate = 35,
    Deallocate = 36,
}

/// What a region belongs to (`OTF2_Paradigm`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Paradigm {
    User = 1,
    Cuda = 5,
    Hip = 23,
}

/// Parts of the system that have a meaning (`OTF2_SystemTreeDomain`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Domain {
    Machine = 0,
    AcceleratorDevice = 7,
}

/// `OTF2_LocationGroupType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GroupType {
    Process = 1,
    Accelerator = 2,
}

/// `OTF2_LocationType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LocationType {
    Thread = 1,
    Stream = 2,
    Metric = 3,
}

impl Take for OutputFile {
    fn take(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.put(bytes)
    }
    fn failed(&self, error: io::Error) -> WriteError {
        OutputFile::failed(self, error)
    }
}

/// The file of definitions.
pub(super) struct Definitions {
    chunks: Chunks<OutputFile>,
    /// How many there are.
    count: u64,
    record: Vec<u8>,
    content: Vec<u8>,
    strings: HashMap<Box<str>, u32, RandomState>,
    bytes: Budget<MOST_BYTES>,
    next_string: u32,
    regions: HashMap<(u32, Role, Paradigm), u32, RandomState>,
    next_region: u32,
    attributes: HashMap<(u32, Type), u32, RandomState>,
    next_attribute: u32,
    metrics: HashMap<(u32, u32), u32, RandomState>,
    next_metric: u32,
    tree_nodes: u32,
    groups: u32,
}

impl Definitions {
    pub(super) fn begin(file: OutputFile) -> Result<Definitions, WriteError> {
        let mut definitions = Definitions {
            chunks: Chunks::begin(file, CHUNK),
            count: 1,
            record: Vec::new(),
            content: Vec::new(),
            strings: HashMap::default(),
            bytes: Budget::default(),
            next_string: 0,
            regions: HashMap::default(),
            next_region: 0,
            attributes: HashMap::default(),
            next_attribute: 0,
            metrics: HashMap::default(),
            next_metric: 0,
            tree_nodes: 0,
            groups: 0,
        };
        // Readers want to know the clock first. Its numbers are known at the end.
        let clock = clock(0, 0);
        definitions.chunks.room(clock.len())?;
        definitions.chunks.put(&clock);
        // The empty text is the first one, as in all archives of libotf2.
        definitions.string("")?;
        Ok(definitions)
    }

    /// Writes a record, which `put` fills.
    fn put(&mut self, kind: u8, put: impl FnOnce(&mut Vec<u8>)) -> Result<(), WriteError> {
        self.content.clear();
        put(&mut self.content);
        self.record.clear();
        bytes::record(&mut self.record, kind, &self.content);
        self.chunks.room(self.record.len())?;
        self.chunks.put(&self.record);
        self.count += 1;
        Ok(())
    }

    /// Returns the number of a text.
    pub(super) fn string(&mut self, text: &str) -> Result<u32, WriteError> {
        if let Some(number) = self.strings.get(text) {
            return Ok(*number);
        }
        let number = self.next_string;
        self.next_string += 1;
        let kept = limits::cut(text.into(), midair_demangle::LONGEST);
        self.put(kind::STRING, |out| {
            bytes::u32(out, number);
            bytes::text(out, &kept);
        })?;
        if self.strings.len() < MOST && self.bytes.take(text.len()) {
            self.strings.insert(text.into(), number);
        }
        Ok(number)
    }

    /// Returns the number of a region. `symbol` is the kernel's name in the code object.
    pub(super) fn region(
        &mut self,
        name: &str,
        symbol: Option<&str>,
        role: Role,
        paradigm: Paradigm,
    ) -> Result<u32, WriteError> {
        let name = self.string(name)?;
        if let Some(number) = self.regions.get(&(name, role, paradigm)) {
            return Ok(*number);
        }
        let symbol = match symbol {
            Some(symbol) => self.string(symbol)?,
            None => name,
        };
        let number = self.next_region;
        self.next_region += 1;
        self.put(kind::REGION, |out| {
            bytes::u32(out, number);
            bytes::u32(out, name);
            // No description, the type that versions before 1.1 had, no file, first and last line.
            out.extend_from_slice(&[0, 0]);
            bytes::u32(out, NONE);
            out.extend_from_slice(&[0, 0]);
            bytes::u32(out, symbol);
            out.extend_from_slice(&[role as u8, paradigm as u8]);
            bytes::u32(out, 0);
        })?;
        if self.regions.len() < MOST {
            self.regions.insert((name, role, paradigm), number);
        }
        Ok(number)
    }

    /// Returns the number of an attribute, or none where there are too many.
    pub(super) fn attribute(
        &mut self,
        name: &str,
        of: Type,
        description: &str,
    ) -> Result<Option<u32>, WriteError> {
        let name = self.string(name)?;
        if let Some(number) = self.attributes.get(&(name, of)) {
            return Ok(Some(*number));
        }
        if self.attributes.len() >= MOST {
            return Ok(None);
        }
        let description = self.string(description)?;
        let number = self.next_attribute;
        self.next_attribute += 1;
        self.put(kind::ATTRIBUTE, |out| {
            bytes::u32(out, number);
            bytes::u32(out, name);
            out.push(of as u8);
            bytes::u32(out, description);
        })?;
        self.attributes.insert((name, of), number);
        Ok(Some(number))
    }

    /// Returns the number of a metric that has a value from each of its times to the next, or none
    /// where there are too many.
    pub(super) fn metric(&mut self, name: &str, unit: &str) -> Result<Option<u32>, WriteError> {
        let (name, unit) = (self.string(name)?, self.string(unit)?);
        if let Some(number) = self.metrics.get(&(name, unit)) {
            return Ok(Some(*number));
        }
        if self.metrics.len() >= MOST {
            return Ok(None);
        }
        // Each class has one member, with the same number.
        let number = self.next_metric;
        self.next_metric += 1;
        self.put(kind::METRIC_MEMBER, |out| {
            bytes::u32(out, number);
            bytes::u32(out, name);
            // No description, of another type, OTF2_METRIC_ABSOLUTE_NEXT, to the base 10.
            out.extend_from_slice(&[0, 0, 0x31, Type::Double as u8, 1, 0]);
            bytes::u32(out, unit);
        })?;
        self.put(kind::METRIC_CLASS, |out| {
            bytes::u32(out, number);
            out.push(1);
            bytes::u32(out, number);
            // Asynchronous, recorded by a GPU.
            out.extend_from_slice(&[2, 3]);
        })?;
        self.metrics.insert((name, unit), number);
        Ok(Some(number))
    }

    /// Adds a part of the system below another one.
    pub(super) fn tree_node(
        &mut self,
        name: &str,
        class: &str,
        domain: Domain,
        parent: Option<u32>,
    ) -> Result<u32, WriteError> {
        let (name, class) = (self.string(name)?, self.string(class)?);
        let number = self.tree_nodes;
        self.tree_nodes += 1;
        self.put(kind::TREE_NODE, |out| {
            bytes::u32(out, number);
            bytes::u32(out, name);
            bytes::u32(out, class);
            bytes::u32(out, parent.unwrap_or(NONE));
        })?;
        self.put(kind::TREE_NODE_DOMAIN, |out| {
            bytes::u32(out, number);
            out.push(domain as u8);
        })?;
        Ok(number)
    }

    /// Adds a process, or the part of a device that a process uses.
    pub(super) fn group(
        &mut self,
        name: &str,
        of: GroupType,
        tree_node: u32,
        creator: Option<u32>,
    ) -> Result<u32, WriteError> {
        let name = self.string(name)?;
        let number = self.groups;
        self.groups += 1;
        self.put(kind::GROUP, |out| {
            bytes::u32(out, number);
            bytes::u32(out, name);
            out.push(of as u8);
            bytes::u32(out, tree_node);
            bytes::u32(out, creator.unwrap_or(NONE));
        })?;
        Ok(number)
    }

    /// Adds a text about a process.
    pub(super) fn property(
        &mut self,
        group: u32,
        name: &str,
        value: &str,
    ) -> Result<(), WriteError> {
        let (name, value) = (self.string(name)?, self.string(value)?);
        self.put(kind::GROUP_PROPERTY, |out| {
            bytes::u32(out, group);
            bytes::u32(out, name);
            // Once as versions before 2.0 had it, where all values were texts.
            bytes::u32(out, value);
            out.push(Type::String as u8);
            bytes::u32(out, value);
        })
    }

    /// Adds a location, which has a file of events.
    pub(super) fn location(
        &mut self,
        number: u64,
        name: &str,
        of: LocationType,
        events: u64,
        group: u32,
    ) -> Result<(), WriteError> {
        let name = self.string(name)?;
        self.put(kind::LOCATION, |out| {
            bytes::u64(out, number);
            bytes::u32(out, name);
            out.push(of as u8);
            bytes::u64(out, events);
            bytes::u32(out, group);
        })
    }

    /// Writes the clock, which counts from the first to the last event. Returns the file and the
    /// number of definitions.
    pub(super) fn end(self, first: u64, last: u64) -> Result<(OutputFile, u64), WriteError> {
        let count = self.count;
        let mut file = self.chunks.end()?;
        file.patch(CLOCK_AT, &clock(first, last.saturating_sub(first)))?;
        Ok((file, count))
    }
}

/// Returns the record of the clock. Its numbers have their full length, so that they can be written
/// later.
fn clock(offset: u64, length: u64) -> Vec<u8> {
    let mut content = Vec::new();
    bytes::u64(&mut content, RESOLUTION);
    for number in [offset, length] {
        content.push(8);
        content.extend_from_slice(&number.to_le_bytes());
    }
    // When that was by the clock on the wall is not known.
    bytes::u64(&mut content, u64::MAX);
    let mut out = Vec::new();
    bytes::record(&mut out, kind::CLOCK, &content);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::FileSet;

    fn definitions(directory: &std::path::Path) -> Definitions {
        let files = FileSet::new(directory, "r").unwrap();
        Definitions::begin(files.create("results.def").unwrap()).unwrap()
    }

    /// Names are remembered up to a limit. Those beyond it get another number each time.
    #[test]
    fn so_many_names_are_remembered_and_no_more() {
        let directory = tempfile::tempdir().unwrap();
        let mut all = definitions(directory.path());
        // The empty text is the first one.
        for number in 1..MOST + 2 {
            assert_eq!(all.string(&number.to_string()).unwrap(), number as u32);
        }
        let last = MOST as u32 - 1;
        assert_eq!(all.string(&last.to_string()).unwrap(), last);
        assert_eq!(all.string(&MOST.to_string()).unwrap(), last + 3);
        assert_eq!(all.string(&MOST.to_string()).unwrap(), last + 4);
        assert_eq!(all.string("").unwrap(), 0);
    }

    #[test]
    fn so_many_bytes_of_names_are_remembered_and_no_more() {
        let directory = tempfile::tempdir().unwrap();
        let mut all = definitions(directory.path());
        let half = |letter: &str| letter.repeat(MOST_BYTES / 2);
        let [a, b, c] = ["a", "b", "c"].map(half);
        for (name, number) in [(&a, 1), (&b, 2), (&c, 3), (&a, 1), (&b, 2), (&c, 4)] {
            assert_eq!(all.string(name).unwrap(), number);
        }
    }

    #[test]
    fn so_many_regions_are_remembered_and_no_more() {
        let directory = tempfile::tempdir().unwrap();
        let mut all = definitions(directory.path());
        let roles = [
            Role::Function,
            Role::DataTransfer,
            Role::Allocate,
            Role::Deallocate,
        ];
        let mut of = |number: usize| {
            let role = roles[number % roles.len()];
            let name = (number / roles.len()).to_string();
            let region = all.region(&name, None, role, Paradigm::Hip);
            region.unwrap() as usize
        };
        for number in 0..=MOST {
            assert_eq!(of(number), number);
        }
        assert_eq!([0, MOST - 1].map(&mut of), [0, MOST - 1]);
        assert_eq!([MOST, MOST].map(&mut of), [MOST + 1, MOST + 2]);
    }

    /// Attributes and metrics beyond their limits are left out.
    #[test]
    fn so_many_attributes_and_metrics_are_defined_and_no_more() {
        let directory = tempfile::tempdir().unwrap();
        let mut all = definitions(directory.path());
        let types = [Type::U64, Type::String];
        let mut attribute = |number: usize| {
            let name = (number / types.len()).to_string();
            let attribute = all.attribute(&name, types[number % types.len()], "");
            attribute.unwrap().map(|number| number as usize)
        };
        for number in 0..MOST {
            assert_eq!(attribute(number), Some(number));
        }
        assert_eq!([MOST, MOST - 1].map(attribute), [None, Some(MOST - 1)]);
        let mut metric = |number: usize| {
            let (name, unit) = ((number / 256).to_string(), (number % 256).to_string());
            let metric = all.metric(&name, &unit);
            metric.unwrap().map(|number| number as usize)
        };
        for number in 0..MOST {
            assert_eq!(metric(number), Some(number));
        }
        assert_eq!([MOST, MOST - 1].map(metric), [None, Some(MOST - 1)]);
    }
}
