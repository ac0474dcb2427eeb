//! Attributes of events: what is known of a call or of work besides its name and its times.

use super::bytes;
use super::definitions::{Definitions, Type};
use crate::files::WriteError;

/// The most bytes of one event's attributes, well below the size of a chunk. A dispatch with more
/// counters keeps the first ones.
const MOST_BYTES: usize = 96 << 10;

/// The attributes of our own. Counters have further ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    Category,
    Correlation,
    Thread,
    Stream,
    Queue,
    Dispatch,
    Kernel,
    GridX,
    GridY,
    GridZ,
    WorkgroupX,
    WorkgroupY,
    WorkgroupZ,
    Registers,
    Lds,
    Scratch,
    Bytes,
    From,
    To,
    Address,
    Agent,
    Value,
    Result,
    Context,
    Graph,
    GraphNode,
    Untimed,
    Open,
    End,
}

/// Name, type and description of each, in the order of [`Name`].
const NAMES: [(&str, Type, &str); 29] = [
    ("category", Type::String, "the domain of the record"),
    (
        "correlation_id",
        Type::U64,
        "what a call and its work have in common",
    ),
    ("thread_id", Type::U64, "the thread that made the call"),
    ("stream_id", Type::U64, "the number of the stream"),
    ("queue_id", Type::U64, "the number of the queue"),
    ("dispatch_id", Type::U64, "the number of the dispatch"),
    ("kernel_id", Type::U64, "the number of the kernel"),
    ("grid_size_x", Type::U64, "work-items of the grid"),
    ("grid_size_y", Type::U64, "work-items of the grid"),
    ("grid_size_z", Type::U64, "work-items of the grid"),
    ("workgroup_size_x", Type::U64, "work-items of a workgroup"),
    ("workgroup_size_y", Type::U64, "work-items of a workgroup"),
    ("workgroup_size_z", Type::U64, "work-items of a workgroup"),
    ("vgpr_count", Type::U64, "registers of a work-item"),
    (
        "group_segment_size",
        Type::U64,
        "bytes of LDS or shared memory of a workgroup",
    ),
    (
        "private_segment_size",
        Type::U64,
        "bytes of scratch memory of a work-item",
    ),
    (
        "bytes",
        Type::U64,
        "bytes that are copied, set or allocated",
    ),
    ("source", Type::String, "the agent that is read"),
    ("destination", Type::String, "the agent that is written"),
    ("address", Type::U64, "the address of the memory"),
    ("agent", Type::String, "the agent of the memory"),
    ("value", Type::U64, "the value that is set or counted"),
    ("result", Type::U64, "what the call returned"),
    ("context_id", Type::U64, "the number of the CUDA context"),
    ("graph_id", Type::U64, "the number of the graph"),
    (
        "graph_node_id",
        Type::U64,
        "the number of the node in the graph",
    ),
    (
        "untimed",
        Type::String,
        "why the work has no times: it is shown where it was launched",
    ),
    (
        "open_at_detach",
        Type::U64,
        "1 if the call had not returned when the recording ended",
    ),
    (
        "end",
        Type::U64,
        "the time of the end, where too much overlaps to show it",
    ),
];

/// Attributes under construction.
pub(super) struct Attributes {
    known: [Option<u32>; NAMES.len()],
    pub(super) count: u64,
    pub(super) bytes: Vec<u8>,
}

impl Attributes {
    pub(super) fn new() -> Attributes {
        Attributes {
            known: [None; NAMES.len()],
            count: 0,
            bytes: Vec::new(),
        }
    }

    /// Starts the attributes of the next event.
    pub(super) fn clear(&mut self) {
        self.count = 0;
        self.bytes.clear();
    }

    /// Returns the number of an attribute.
    pub(super) fn number_of(
        &mut self,
        definitions: &mut Definitions,
        name: Name,
    ) -> Result<Option<u32>, WriteError> {
        let (Some(known), Some((text, of, description))) =
            (self.known.get_mut(name as usize), NAMES.get(name as usize))
        else {
            return Ok(None);
        };
        if known.is_none() {
            *known = definitions.attribute(text, *of, description)?;
        }
        Ok(*known)
    }

    fn begin(&mut self, attribute: u32, of: Type) {
        self.count += 1;
        bytes::u32(&mut self.bytes, attribute);
        self.bytes.push(of as u8);
    }

    pub(super) fn number(
        &mut self,
        definitions: &mut Definitions,
        name: Name,
        value: impl Into<u64>,
    ) -> Result<(), WriteError> {
        if let Some(attribute) = self.number_of(definitions, name)? {
            self.begin(attribute, Type::U64);
            bytes::u64(&mut self.bytes, value.into());
        }
        Ok(())
    }

    pub(super) fn text(
        &mut self,
        definitions: &mut Definitions,
        name: Name,
        value: &str,
    ) -> Result<(), WriteError> {
        if let Some(attribute) = self.number_of(definitions, name)? {
            let text = definitions.string(value)?;
            self.begin(attribute, Type::String);
            bytes::u32(&mut self.bytes, text);
        }
        Ok(())
    }

    /// Adds the value of a counter.
    pub(super) fn counter(
        &mut self,
        definitions: &mut Definitions,
        name: &str,
        value: f64,
    ) -> Result<(), WriteError> {
        if self.bytes.len() > MOST_BYTES {
            return Ok(());
        }
        let description = "what the counter counted during the dispatch";
        if let Some(attribute) = definitions.attribute(name, Type::Double, description)? {
            self.begin(attribute, Type::Double);
            self.bytes.extend_from_slice(&value.to_le_bytes());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::FileSet;

    #[test]
    fn the_table_has_a_row_for_each_name() {
        let name = |name: Name| NAMES.get(name as usize).map(|row| row.0);
        assert_eq!(name(Name::Category), Some("category"));
        assert_eq!(name(Name::Bytes), Some("bytes"));
        assert_eq!(name(Name::Untimed), Some("untimed"));
        assert_eq!(name(Name::End), Some("end"));
        assert_eq!(Name::End as usize + 1, NAMES.len());
    }

    #[test]
    fn an_event_has_as_many_counters_as_fit() {
        let directory = tempfile::tempdir().unwrap();
        let files = FileSet::new(directory.path(), "r").unwrap();
        let file = files.create("results.def").unwrap();
        let mut definitions = Definitions::begin(file).unwrap();
        let mut attributes = Attributes::new();
        for (bytes, fits) in [
            (0, true),
            (MOST_BYTES, true),
            (MOST_BYTES + 1, false),
            (2 * MOST_BYTES, false),
        ] {
            attributes.clear();
            attributes.bytes.resize(bytes, 0);
            attributes
                .counter(&mut definitions, "SQ_WAVES", 1.5)
                .unwrap();
            assert_eq!(attributes.count, u64::from(fits), "{bytes}");
            assert_eq!(attributes.bytes.len() > bytes, fits, "{bytes}");
        }
    }
}
