//! The stacks to which the latest records refer (`--stacks`).
//!
//! A stack is described once in a session, when a thread is first at it, and a launch names its stack
//! before its kernel runs. The oldest files may have gone in the meantime, so descriptions and the
//! stacks of the last launches are in memory as well.

use crate::index::{Index, Launches};
use crate::record_file::RecordWriter;
use midair_record::event::{self, Header, LaunchStack, Plain, Record, encode, graph_build, kind};
use std::io;

/// The most bytes of descriptions. As many stacks and functions as a session describes take less.
const MOST_BYTES: usize = 1 << 27;

/// The stacks of a window.
#[derive(Debug)]
pub(super) struct Stacks {
    launches: Launches,
}

/// Takes the descriptions of stacks among whole records.
pub(super) fn describe(into: &mut Vec<u8>, bytes: &[u8]) {
    let mut rest = bytes;
    while let Some(header) = Header::read(rest)
        && let Some((record, more)) = rest.split_at_checked(usize::from(header.size))
        && !record.is_empty()
    {
        rest = more;
        let describes = match header.kind {
            kind::CODE | kind::STACK | kind::NATIVE_CODE | kind::MODULE => true,
            kind::GRAPH_BUILD => header.operation != graph_build::REPLAY,
            _ => false,
        };
        if describes && into.len() + record.len() <= MOST_BYTES {
            into.extend_from_slice(record);
        }
    }
}

impl Stacks {
    /// Returns the stacks of the launches so far, if the session takes stacks.
    pub(super) fn of(index: &Index) -> Option<Stacks> {
        let stacks = &index.stacks;
        stacks.is_on.then(|| Stacks {
            launches: stacks.launches.clone(),
        })
    }

    /// Appends the stacks of the launches to which these records refer. `is_wanted` says whether a
    /// record is in the window.
    pub(super) fn append(
        &self,
        block: &[u8],
        is_wanted: impl Fn(&Record<'_>) -> bool,
        writer: &mut RecordWriter,
    ) -> io::Result<()> {
        let mut rest = block;
        while let Ok((record, size)) = event::decode(rest) {
            let launch = match &record {
                // Its kernels may have started much later.
                Record::GraphBuild(step)
                    if step.header.operation == graph_build::REPLAY && !is_wanted(&record) =>
                {
                    writer.append(&encode(step, &[]))?;
                    None
                }
                // There may be more launches in the files than in memory.
                Record::LaunchStack(launch) if launch.correlation < self.launches.first() => {
                    Some(*launch)
                }
                record if is_wanted(record) => self.launch(record),
                _ => None,
            };
            let known =
                |launch: &LaunchStack| writer.index().stacks.of_launch(launch.correlation) == 0;
            if let Some(launch) = launch.filter(known) {
                writer.append(&encode(&launch, &[]))?;
            }
            rest = rest.get(size..).unwrap_or_default();
        }
        Ok(())
    }

    /// Returns the launch of a record's work, with its stack.
    fn launch(&self, record: &Record<'_>) -> Option<LaunchStack> {
        let correlation = match record {
            Record::Api(it, _) => it.correlation,
            Record::Kernel(it, _) => it.correlation,
            Record::Copy(it, _) => it.correlation,
            Record::MemorySet(it) => it.correlation,
            Record::Graph(it) => it.correlation,
            _ => return None,
        };
        let stack = self.launches.stack(correlation);
        let header = Header {
            kind: kind::LAUNCH_STACK,
            operation: stack,
            ..Header::default()
        };
        (stack != 0).then_some(LaunchStack {
            header,
            correlation,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::index::Work;
    use crate::record_file::RecordFile;
    use crate::record_file::RecordWriter;
    use crate::rolling::Keep;
    use midair_record::event::{Code, Header, Kernel, LaunchStack, Stack, encode, kind};
    use std::time::Duration;

    fn header(kind: u8, operation: u32) -> Header {
        Header {
            kind,
            operation,
            ..Header::default()
        }
    }

    /// A session whose store takes this many bytes, and that has described one stack.
    fn session(bytes: u64) -> RecordWriter {
        let mut writer = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
        let time = Duration::from_secs(3_600);
        writer.keep(Keep::Latest { time, bytes });
        let stack = |number, frames| Stack {
            header: header(kind::STACK, number),
            frames,
            is_cut: 0,
        };
        let code = Code {
            header: header(kind::CODE, 1),
            file_len: 4,
            name_len: 4,
        };
        writer.append(&encode(&stack(0, 0), &[])).unwrap();
        writer.append(&encode(&code, b"a.pymain")).unwrap();
        let frame = [1_u32, 30].map(u32::to_ne_bytes).concat();
        writer.append(&encode(&stack(1, 1), &frame)).unwrap();
        writer
    }

    fn launch(writer: &mut RecordWriter, correlation: u64) {
        let launch = LaunchStack {
            header: header(kind::LAUNCH_STACK, 1),
            correlation,
        };
        writer.append(&encode(&launch, &[])).unwrap();
    }

    fn kernel(correlation: u64, start: u64) -> Vec<u8> {
        let kernel = Kernel {
            header: header(kind::KERNEL_DISPATCH, 0),
            start,
            end: start + 5,
            correlation,
            kernel_id: 7,
            ..Kernel::default()
        };
        encode(&kernel, &[])
    }

    /// Returns the number of launches with a stack, and of kernels at the stack and at none.
    fn counts(window: &RecordFile) -> [u64; 3] {
        let stacks = &window.index().stacks;
        let mut frames = stacks.frames(1).unwrap();
        let (function, line) = frames.next().unwrap();
        assert_eq!(
            (function.file.as_str(), function.name.as_str()),
            ("a.py", "main")
        );
        assert!(line == 30 && frames.next().is_none());
        let kernels = |stack| {
            let all = stacks
                .all()
                .filter(|sum| (sum.0, sum.1) == (stack, Work::Kernel(7)));
            all.map(|sum| sum.2.stat.calls).sum()
        };
        [stacks.taken, kernels(1), kernels(0)]
    }

    /// The files that had the description and the launch have gone.
    #[test]
    fn a_kernel_that_is_kept_has_the_stack_of_a_launch_that_is_not() {
        let mut writer = session(1 << 20);
        launch(&mut writer, 5);
        launch(&mut writer, 6);
        writer.append(&kernel(6, 10)).unwrap();
        let piece = kernel(0, 20).repeat(1_000);
        for _ in 0..50 {
            writer.append(&piece).unwrap();
        }
        writer.append(&kernel(5, 1_000)).unwrap();
        let window = writer.window().unwrap().between(900, u64::MAX).unwrap();
        assert_eq!(counts(&window), [1, 1, 0]);
        let (whole, _) = writer
            .finish_session(crate::record_file::Times {
                begin: 0,
                end: 2_000,
                now: 2_000,
            })
            .unwrap();
        let [taken, at_stack, at_none] = counts(&whole);
        assert_eq!((taken, at_stack), (1, 1));
        assert!(
            at_none < 50_000,
            "the first kernels are kept, too: {at_none}"
        );
    }

    #[test]
    fn launches_that_are_only_in_the_files_have_their_stacks() {
        let mut writer = session(1 << 30);
        for correlation in [1, 1 << 23] {
            launch(&mut writer, correlation);
            writer.append(&kernel(correlation, correlation)).unwrap();
        }
        assert_eq!(writer.index().stacks.of_launch(1), 0, "it is not in memory");
        let window = writer.window().unwrap().between(0, u64::MAX).unwrap();
        assert_eq!(counts(&window), [2, 2, 0]);
    }
}
