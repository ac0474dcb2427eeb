//! Records, one type for each kind. Times are nanoseconds of `CLOCK_BOOTTIME`.

use crate::error::{Error, Kind};
use crate::recording::Recording;
use midair_output::{Cursor, KernelLabels, KernelNames, Names};
use midair_record::event::{Record, kind};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

/// A kernel that ran on a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kernel {
    /// Its name, demangled.
    pub name: Arc<str>,
    /// When it started, or 0 if that is not known.
    pub start: u64,
    /// When it ended, or 0 if that is not known.
    pub end: u64,
    /// The number of the dispatch, from 1.
    pub dispatch: u64,
    /// The correlation id of the call that launched it.
    pub correlation: u64,
    /// The thread that launched it, as numbered in the process's pid namespace.
    pub thread: u32,
    /// The number of the GPU's node, or of the CUDA device.
    pub node: u32,
    /// The number of the queue.
    pub queue: u32,
    /// The stream's handle, or 0 for the default one.
    pub stream: u64,
    /// The size of a workgroup (CUDA: block).
    pub workgroup: [u32; 3],
    /// The size of the grid, in work items (CUDA: threads).
    pub grid: [u32; 3],
    /// Scratch of a work item (CUDA: local memory of a thread), bytes.
    pub scratch: u32,
    /// LDS of a workgroup (CUDA: shared memory of a block), bytes.
    pub lds: u32,
}

impl Kernel {
    /// Returns how long it ran, or 0 if that is not known.
    pub fn duration(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// A call of a library.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// The function.
    pub name: Arc<str>,
    /// The domain, such as `HIP_RUNTIME_API`.
    pub domain: Arc<str>,
    /// When it started.
    pub start: u64,
    /// When it returned, or when the recording ended.
    pub end: u64,
    /// Its correlation id.
    pub correlation: u64,
    /// The thread, as numbered in the process's pid namespace.
    pub thread: u32,
}

impl Call {
    /// Returns how long it took.
    pub fn duration(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// A copy of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copy {
    /// The direction, such as `MEMORY_COPY_HOST_TO_DEVICE`.
    pub direction: Arc<str>,
    /// When it started, or 0 if that is not known.
    pub start: u64,
    /// When it ended, or 0 if that is not known.
    pub end: u64,
    /// Bytes.
    pub bytes: u64,
    /// The correlation id of the call.
    pub correlation: u64,
    /// The thread that asked for it.
    pub thread: u32,
    /// The node that it comes from.
    pub from: u32,
    /// The node that it goes to.
    pub to: u32,
}

impl Copy {
    /// Returns how long it took, or 0 if that is not known.
    pub fn duration(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// A mark or a range of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Marker {
    /// Its message, or the function.
    pub message: Arc<str>,
    /// When it started.
    pub start: u64,
    /// When it ended. A mark ends when it starts.
    pub end: u64,
    /// Its correlation id.
    pub correlation: u64,
    /// The thread that started it.
    pub thread: u32,
}

/// Names that were made already.
#[derive(Debug, Default)]
struct Known<K>(HashMap<K, Arc<str>>);

impl<K: Eq + std::hash::Hash> Known<K> {
    fn get(&mut self, key: K, make: impl FnOnce() -> Arc<str>) -> Arc<str> {
        Arc::clone(self.0.entry(key).or_insert_with(make))
    }
}

fn unread(error: &io::Error) -> Error {
    Error::new(Kind::Output, format!("cannot read the records: {error}"))
}

/// Returns the next item of an iterator that ends with the first error.
fn step<T>(next: io::Result<Option<T>>, ended: &mut bool) -> Option<Result<T, Error>> {
    *ended = !matches!(next, Ok(Some(_)));
    next.map_err(|error| unread(&error)).transpose()
}

/// The kernels of a recording.
#[derive(Debug)]
pub struct Kernels<'a> {
    cursor: Cursor<'a>,
    labels: KernelLabels<'a>,
    known: Known<(u64, u64)>,
    ended: bool,
}

impl<'a> Kernels<'a> {
    pub(crate) fn of(recording: &'a Recording) -> Kernels<'a> {
        let records = &recording.opened.trace().records;
        Kernels {
            cursor: records.cursor(),
            labels: KernelLabels::new(records.index(), KernelNames::Demangled),
            known: Known::default(),
            ended: false,
        }
    }
}

impl Iterator for Kernels<'_> {
    type Item = Result<Kernel, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let (labels, known) = (&self.labels, &mut self.known);
        let next = self.cursor.next(
            |of| of == kind::KERNEL_DISPATCH,
            |record| match record {
                Record::Kernel(kernel, _) => Some(Kernel {
                    name: known.get((kernel.kernel_id, kernel.kernel_object), || {
                        labels.of(kernel).into()
                    }),
                    start: kernel.start,
                    end: kernel.end,
                    dispatch: kernel.dispatch_id,
                    correlation: kernel.correlation,
                    thread: kernel.tid,
                    node: kernel.node,
                    queue: kernel.queue_id,
                    stream: kernel.stream,
                    workgroup: kernel.workgroup,
                    grid: kernel.grid,
                    scratch: kernel.private_segment,
                    lds: kernel.group_segment,
                }),
                _ => None,
            },
        );
        step(next, &mut self.ended)
    }
}

/// Makes an iterator over records that are named by their operation.
macro_rules! iterator {
    ($(#[$doc:meta])* $name:ident of $item:ty, $make:expr) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<'a> {
            cursor: Cursor<'a>,
            names: &'a Names,
            known: Known<(u8, Option<u32>)>,
            ended: bool,
        }

        impl<'a> $name<'a> {
            pub(crate) fn of(recording: &'a Recording) -> $name<'a> {
                $name {
                    cursor: recording.opened.trace().records.cursor(),
                    names: &recording.names,
                    known: Known::default(),
                    ended: false,
                }
            }
        }

        impl Iterator for $name<'_> {
            type Item = Result<$item, Error>;

            fn next(&mut self) -> Option<Self::Item> {
                if self.ended {
                    return None;
                }
                let (names, known) = (self.names, &mut self.known);
                let next = self.cursor.next(|_| true, |record| $make(record, names, known));
                step(next, &mut self.ended)
            }
        }
    };
}

type Operations = Known<(u8, Option<u32>)>;

fn operation(known: &mut Operations, names: &Names, kind: u8, operation: u32) -> Arc<str> {
    known.get((kind, Some(operation)), || {
        names.operation(kind, operation).into()
    })
}

iterator! {
    /// The calls of a recording.
    Calls of Call, |record: &Record<'_>, names: &Names, known: &mut Operations| match record {
        Record::Api(call, _) => Some(Call {
            name: operation(known, names, call.header.kind, call.header.operation),
            domain: known.get((call.header.kind, None), || names.kind(call.header.kind).into()),
            start: call.start,
            end: call.end,
            correlation: call.correlation,
            thread: call.tid,
        }),
        _ => None,
    }
}

iterator! {
    /// The copies of a recording.
    Copies of Copy, |record: &Record<'_>, names: &Names, known: &mut Operations| match record {
        Record::Copy(copy, _) => Some(Copy {
            direction: operation(known, names, copy.header.kind, copy.header.operation),
            start: copy.start,
            end: copy.end,
            bytes: copy.bytes,
            correlation: copy.correlation,
            thread: copy.tid,
            from: copy.src_node,
            to: copy.dst_node,
        }),
        _ => None,
    }
}

iterator! {
    /// The marks and ranges of a recording.
    Markers of Marker, |record: &Record<'_>, names: &Names, _: &mut Operations| match record {
        Record::Marker(marker, message) => Some(Marker {
            message: names.marker(marker, message).into(),
            start: marker.start,
            end: marker.end,
            correlation: marker.correlation,
            thread: marker.tid,
        }),
        _ => None,
    }
}
