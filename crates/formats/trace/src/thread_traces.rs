//! The data of thread traces: which of it is there.

use midair_record::event::TraceData;
use std::collections::BTreeMap;

/// The most files of a session. Each has a descriptor until all files of the session get their names.
const MOST: usize = 4096;

/// One shader engine's data of one trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    /// How many bytes there are without a gap, from the first one.
    bytes: u64,
    /// How many bytes the engine has written.
    total: u64,
    has_gap: bool,
}

/// The traces of a session.
#[derive(Debug, Clone, Default)]
pub struct ThreadTraces {
    /// By node, engine and first dispatch, which a file's name has.
    parts: BTreeMap<(u32, u32, u64), Part>,
    left_out: u64,
}

/// Returns what identifies a file.
pub fn file_of(data: &TraceData) -> (u32, u32, u64) {
    (data.node, data.engine, data.dispatch_id)
}

impl ThreadTraces {
    pub(crate) fn add(&mut self, data: &TraceData) {
        let (file, bytes) = (file_of(data), u64::from(data.bytes));
        let has_room = self.parts.len() < MOST;
        match self.parts.get_mut(&file) {
            Some(part) if part.bytes == data.first && !part.has_gap => part.bytes += bytes,
            Some(part) => part.has_gap = true,
            None if data.first > 0 => {}
            None if has_room => {
                let part = Part {
                    bytes,
                    total: data.total,
                    has_gap: false,
                };
                self.parts.insert(file, part);
            }
            None => self.left_out += 1,
        }
    }

    /// Returns how many files there are.
    pub fn files(&self) -> usize {
        self.parts.len()
    }

    /// Returns how many bytes a file has: those before a gap.
    pub fn bytes(&self, file: (u32, u32, u64)) -> u64 {
        self.parts.get(&file).map_or(0, |part| part.bytes)
    }

    /// Returns what a reader should know.
    pub fn notes(&self) -> Vec<String> {
        let is_short = |part: &&Part| part.has_gap || part.bytes < part.total;
        let short = self.parts.values().filter(is_short).count();
        let counts = [
            (
                short as u64,
                "files of thread traces end early: the rest of their data is missing",
            ),
            (
                self.left_out,
                "more shader engines' traces were omitted: a session has 4096 files of them at most",
            ),
        ];
        let notes = counts.into_iter().filter(|(count, _)| *count > 0);
        notes
            .map(|(count, text)| format!("{count} {text}"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(engine: u32, first: u64, bytes: u32) -> TraceData {
        TraceData {
            engine,
            first,
            bytes,
            total: 100,
            ..TraceData::default()
        }
    }

    #[test]
    fn a_file_ends_at_a_gap() {
        let mut traces = ThreadTraces::default();
        for part in [
            data(0, 0, 50),
            data(0, 50, 50),
            data(1, 0, 50),
            data(1, 70, 30),
            data(1, 50, 20),
            data(2, 10, 90),
        ] {
            traces.add(&part);
        }
        let bytes = |engine| traces.bytes((0, engine, 0));
        assert_eq!([0, 1, 2].map(bytes), [100, 50, 0]);
        assert_eq!(traces.notes().len(), 1);
        assert!(traces.notes()[0].starts_with("1 files of thread traces end early"));
    }

    #[test]
    fn a_target_cannot_have_any_number_of_files() {
        let mut traces = ThreadTraces::default();
        (0..MOST as u32 + 3).for_each(|engine| traces.add(&data(engine, 0, 100)));
        assert_eq!(traces.files(), MOST);
        assert!(traces.notes()[0].starts_with("3 more shader engines' traces"));
    }
}
