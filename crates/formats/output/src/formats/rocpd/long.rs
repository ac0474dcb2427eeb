//! The tables of a session with a row for each thing that happened. Their pages are written here and
//! not by SQLite ([`Tree`]).
//!
//! Events, arguments, copies and allocations are numbered as they come. The other rows have ids of
//! their own, such as a call's correlation id, and are sorted first. Their indexes are sorted, too.

use super::database::{Step, whole};
use super::guid::Guid;
use super::pages::{Pages, Tree};
use super::record::Record;
use super::schema;
use crate::formats::sorted::Sorted;
use rusqlite::Connection;
use std::path::Path;

/// Rows with ids of their own, and the greatest id so far.
struct Numbered {
    root: u32,
    rows: Sorted,
    last: i64,
}

impl Numbered {
    /// Adds a row under its own id, or under a free one, and returns the id.
    fn push(&mut self, own: Option<i64>, row: &[u8]) -> Step<i64> {
        let id = own.unwrap_or(self.last + 1);
        self.last = self.last.max(id);
        self.rows.push(id, row)?;
        Ok(id)
    }

    /// Writes all rows. Of several with one id (a target can write anything) the first has it, and
    /// the others get free ones. Each is shown to `see` with its id.
    fn finish(
        self,
        pages: &mut Pages,
        directory: &Path,
        mut see: impl FnMut(i64, &[u8]) -> std::io::Result<()>,
    ) -> Step<()> {
        let mut tree = Tree::table(self.root);
        let mut again = Sorted::new(directory);
        let (mut before, mut free) = (None, self.last);
        self.rows.each(|id, row| {
            if before == Some(id) {
                free += 1;
                return again.push(free, row);
            }
            before = Some(id);
            see(id, row)?;
            tree.row(pages, id, row)
        })?;
        again.each(|id, row| {
            see(id, row)?;
            tree.row(pages, id, row)
        })?;
        Ok(tree.finish(pages)?)
    }
}

/// An index of one column.
struct Index {
    root: u32,
    entries: Sorted,
}

impl Index {
    /// Adds the value of a row.
    fn push(&mut self, value: i64, id: i64) -> std::io::Result<()> {
        self.entries.push(value, &id.to_le_bytes())
    }

    fn finish(self, pages: &mut Pages, record: &mut Record) -> Step<()> {
        let mut tree = Tree::index(self.root);
        self.entries.each(|value, id| {
            let id = id.try_into().map_or(0, i64::from_le_bytes);
            tree.entry(pages, record.clear().number(value).number(id).end())
        })?;
        Ok(tree.finish(pages)?)
    }
}

/// Rows that are numbered as they come.
struct Counted {
    tree: Tree,
    last: i64,
}

impl Counted {
    fn push(&mut self, pages: &mut Pages, row: &[u8]) -> Step<i64> {
        self.last += 1;
        self.tree.row(pages, self.last, row)?;
        Ok(self.last)
    }
}

/// The tables.
pub(super) struct Long<'s> {
    pages: &'s mut Pages,
    guid: String,
    nid: i64,
    pid: i64,
    row: Record,
    event: Counted,
    argument: Counted,
    copy: Counted,
    allocation: Counted,
    value: Counted,
    launch: Counted,
    region: Numbered,
    dispatch: Numbered,
    sample: Numbered,
    stacks: Index,
    directory: &'s Path,
    event_of_region: u32,
    event_of_dispatch: u32,
}

/// The facts about a dispatch, by column.
pub(super) struct Dispatch<'a> {
    pub(super) tid: i64,
    pub(super) agent: i64,
    pub(super) kernel: i64,
    pub(super) dispatch: i64,
    pub(super) queue: i64,
    pub(super) stream: i64,
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) private_segment: u32,
    pub(super) group_segment: u32,
    pub(super) workgroup: [u32; 3],
    pub(super) grid: [u32; 3],
    pub(super) graph: i64,
    pub(super) graph_node: i64,
    pub(super) region: i64,
    pub(super) event: i64,
    pub(super) extdata: &'a str,
}

/// The facts about a copy, by column.
pub(super) struct Copied<'a> {
    pub(super) tid: i64,
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) name: i64,
    pub(super) to: (i64, Option<i64>),
    pub(super) from: (i64, Option<i64>),
    pub(super) bytes: u64,
    pub(super) stream: i64,
    pub(super) graph: u32,
    pub(super) graph_node: i64,
    pub(super) event: i64,
    pub(super) extdata: &'a str,
}

/// The facts about a launch of a graph, by column.
pub(super) struct Launched<'a> {
    pub(super) tid: i64,
    pub(super) agent: Option<i64>,
    pub(super) queue: Option<i64>,
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) graph: i64,
    pub(super) kernels: u32,
    pub(super) event: i64,
    pub(super) extdata: &'a str,
}

/// The facts about an allocation, by column.
pub(super) struct Allocated<'a> {
    pub(super) tid: i64,
    pub(super) agent: Option<i64>,
    pub(super) of: Option<&'a str>,
    pub(super) level: Option<&'a str>,
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) address: Option<i64>,
    pub(super) bytes: u64,
    pub(super) queue: Option<i64>,
    pub(super) stream: Option<i64>,
    pub(super) event: i64,
    pub(super) extdata: &'a str,
}

impl<'s> Long<'s> {
    /// Starts the tables, which SQLite has made, of a session of this process on this node.
    pub(super) fn new(
        connection: &Connection,
        pages: &'s mut Pages,
        directory: &'s Path,
        guid: &Guid,
        (nid, pid): (i64, i64),
    ) -> Step<Long<'s>> {
        let mut statement = connection.prepare(schema::ROOT)?;
        let mut root =
            |name: String| -> Step<u32> { Ok(statement.query_row([name], |row| row.get(0))?) };
        let mut table = |name: &str| root(schema::long_name(name, guid));
        let mut counted = |name: &str| -> Step<Counted> {
            Ok(Counted {
                tree: Tree::table(table(name)?),
                last: 0,
            })
        };
        let (event, argument, copy) = (counted("event")?, counted("arg")?, counted("memory_copy")?);
        let (allocation, value) = (counted("memory_allocate")?, counted("pmc_event")?);
        let launch = counted("graph_launch")?;
        let mut numbered = |name: &str| -> Step<Numbered> {
            Ok(Numbered {
                root: table(name)?,
                rows: Sorted::new(directory),
                last: 0,
            })
        };
        let (region, dispatch) = (numbered("region")?, numbered("kernel_dispatch")?);
        let sample = numbered("sample")?;
        let mut index = |name: &str, column: &str| root(schema::index_name(name, column, guid));
        Ok(Long {
            stacks: Index {
                root: index("event", "stack_id")?,
                entries: Sorted::new(directory),
            },
            event_of_region: index("region", "event_id")?,
            event_of_dispatch: index("kernel_dispatch", "event_id")?,
            pages,
            guid: guid.to_string(),
            nid,
            pid,
            row: Record::default(),
            event,
            argument,
            copy,
            allocation,
            value,
            launch,
            region,
            dispatch,
            sample,
            directory,
        })
    }

    /// Adds an event and returns its id.
    pub(super) fn event(
        &mut self,
        category: i64,
        stack: u64,
        parent: u64,
        [call_stack, extdata]: [&str; 2],
    ) -> Step<i64> {
        let row = self.row.begin(&self.guid);
        row.number(category)
            .number(whole(stack))
            .number(whole(parent));
        // External correlation ids belong to tools that push them.
        row.number(0).text(call_stack).text("{}").text(extdata);
        let id = self.event.push(self.pages, row.end())?;
        self.stacks.push(whole(stack), id)?;
        Ok(id)
    }

    /// Adds an argument of a call.
    pub(super) fn argument(
        &mut self,
        event: i64,
        position: u32,
        [of, name, value, extdata]: [&str; 4],
    ) -> Step<()> {
        let row = self.row.begin(&self.guid);
        row.number(event).number(position).text(of).text(name);
        let row = row.text(value).text(extdata).end();
        self.argument.push(self.pages, row).map(drop)
    }

    /// Adds a region, under its own id or a free one.
    pub(super) fn region(
        &mut self,
        id: Option<i64>,
        tid: i64,
        [start, end]: [i64; 2],
        name: i64,
        event: i64,
        extdata: &str,
    ) -> Step<()> {
        let row = self.row.begin(&self.guid);
        row.number(self.nid).number(self.pid).number(tid);
        row.number(start).number(end).number(name);
        let row = row.number(event).text(extdata).end();
        self.region.push(id, row).map(drop)
    }

    /// Adds a sample, under its own id or a free one, and returns the id.
    pub(super) fn sample(
        &mut self,
        id: Option<i64>,
        track: i64,
        time: u64,
        event: i64,
        extdata: &str,
    ) -> Step<i64> {
        let row = self.row.begin(&self.guid);
        row.number(track).number(whole(time));
        let row = row.number(event).text(extdata).end();
        self.sample.push(id, row)
    }

    /// Adds the value of a counter.
    pub(super) fn value(
        &mut self,
        event: i64,
        sample: Option<i64>,
        counter: i64,
        value: f64,
        place: [Option<i64>; 3],
    ) -> Step<()> {
        let row = self.row.begin(&self.guid);
        row.number(event).maybe(sample).number(counter).real(value);
        for part in place {
            row.maybe(part);
        }
        let row = row.text("{}").end();
        self.value.push(self.pages, row).map(drop)
    }

    /// Adds a dispatch, under its own id or a free one.
    pub(super) fn dispatch(&mut self, id: Option<i64>, of: &Dispatch<'_>) -> Step<()> {
        let row = self.row.begin(&self.guid);
        row.number(self.nid).number(self.pid).number(of.tid);
        row.number(of.agent).number(of.kernel).number(of.dispatch);
        row.number(of.queue).number(of.stream);
        row.number(of.start).number(of.end);
        row.number(of.private_segment).number(of.group_segment);
        for size in of.workgroup.into_iter().chain(of.grid) {
            row.number(size);
        }
        row.number(of.graph).number(of.graph_node).number(of.region);
        let row = row.number(of.event).text(of.extdata).end();
        self.dispatch.push(id, row).map(drop)
    }

    /// Adds a copy.
    pub(super) fn copy(&mut self, of: &Copied<'_>) -> Step<()> {
        let row = self.row.begin(&self.guid);
        row.number(self.nid).number(self.pid).number(of.tid);
        row.number(of.start).number(of.end).number(of.name);
        row.number(of.to.0).maybe(of.to.1);
        row.number(of.from.0).maybe(of.from.1);
        // Neither a queue nor a range is known.
        row.number(whole(of.bytes)).null().number(of.stream);
        row.number(of.graph).number(of.graph_node).null();
        let row = row.number(of.event).text(of.extdata).end();
        self.copy.push(self.pages, row).map(drop)
    }

    /// Adds an allocation.
    pub(super) fn allocation(&mut self, of: &Allocated<'_>) -> Step<()> {
        let row = self.row.begin(&self.guid);
        row.number(self.nid).number(self.pid).number(of.tid);
        row.maybe(of.agent);
        for text in [of.of, of.level] {
            match text {
                Some(text) => row.text(text),
                None => row.null(),
            };
        }
        row.number(of.start).number(of.end);
        row.maybe(of.address).number(whole(of.bytes));
        row.maybe(of.queue).maybe(of.stream);
        let row = row.number(of.event).text(of.extdata).end();
        self.allocation.push(self.pages, row).map(drop)
    }

    /// Adds a launch of a graph.
    pub(super) fn launch(&mut self, of: &Launched<'_>) -> Step<()> {
        let row = self.row.begin(&self.guid);
        row.number(self.nid).number(self.pid).number(of.tid);
        row.maybe(of.agent).maybe(of.queue);
        row.number(of.start).number(of.end);
        row.number(of.graph).number(of.kernels);
        let row = row.number(of.event).text(of.extdata).end();
        self.launch.push(self.pages, row).map(drop)
    }

    /// Writes what is left.
    pub(super) fn finish(mut self) -> Step<()> {
        let (pages, directory) = (self.pages, self.directory);
        for counted in [
            self.event,
            self.argument,
            self.copy,
            self.allocation,
            self.value,
            self.launch,
        ] {
            counted.tree.finish(pages)?;
        }
        self.sample.finish(pages, directory, |_, _| Ok(()))?;
        for (rows, root, column) in [
            (self.region, self.event_of_region, REGION_EVENT),
            (self.dispatch, self.event_of_dispatch, DISPATCH_EVENT),
        ] {
            let entries = Sorted::new(directory);
            let mut index = Index { root, entries };
            rows.finish(pages, directory, |id, row| {
                let event = Record::number_at(row, column).unwrap_or_default();
                index.push(event, id)
            })?;
            index.finish(pages, &mut self.row)?;
        }
        self.stacks.finish(pages, &mut self.row)
    }
}

/// Where the event is among the values of a region and of a dispatch.
const REGION_EVENT: usize = 8;
const DISPATCH_EVENT: usize = 23;
