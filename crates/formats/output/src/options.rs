//! What the user may ask of the writers, one type for each option.

pub use midair_trace::frame_names::Frames;
pub use midair_trace::kernel_name::KernelNames;

/// How csv files name agents (rocprofv3's `-A`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AgentIndex {
    /// `Agent N` with the position among the visible agents.
    #[default]
    Relative,
    /// `Agent N` with the number of the KFD node.
    Absolute,
    /// `GPU N`, `CPU N`.
    TypeRelative,
}

/// Unit of times in summaries (rocprofv3's `-u`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unit {
    /// Seconds.
    Sec,
    /// Milliseconds.
    Msec,
    /// Microseconds.
    Usec,
    /// Nanoseconds.
    #[default]
    Nsec,
}

impl Unit {
    /// Returns the unit for a word of the option.
    pub fn of(word: &str) -> Option<Unit> {
        [Unit::Sec, Unit::Msec, Unit::Usec, Unit::Nsec]
            .into_iter()
            .find(|unit| unit.text() == word)
    }

    /// Returns its word.
    pub fn text(self) -> &'static str {
        match self {
            Unit::Sec => "sec",
            Unit::Msec => "msec",
            Unit::Usec => "usec",
            Unit::Nsec => "nsec",
        }
    }

    /// Returns how many nanoseconds it has.
    pub fn nanoseconds(self) -> u64 {
        match self {
            Unit::Sec => 1_000_000_000,
            Unit::Msec => 1_000_000,
            Unit::Usec => 1_000,
            Unit::Nsec => 1,
        }
    }
}

/// An output stream of the process that asked for the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Console {
    /// Standard output. AMD's tool prints summaries there even when asked to use the other.
    #[default]
    Stdout,
    /// Standard error.
    Stderr,
}

/// Where summaries go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SummaryTo {
    /// To a console; [`console_summary`](crate::console_summary) has the text.
    Console(Console),
    /// To `PREFIX_NAME.txt`.
    File(String),
}

impl Default for SummaryTo {
    fn default() -> Self {
        SummaryTo::Console(Console::default())
    }
}

/// A kind of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// One trace for Perfetto.
    Pftrace,
    /// One file per domain.
    Csv,
    /// One file.
    Json,
    /// One SQLite file.
    Rocpd,
    /// An archive for tools of high-performance computing.
    Otf2,
    /// One trace per process in the form of PyTorch's profiler.
    Kineto,
    /// A table for each kind of records, in directories that name run, host and rank.
    Parquet,
    /// One page for a browser.
    Html,
    /// The GPU's time by the stack that launched the work, a line for each stack.
    Folded,
    /// The same for speedscope.
    Speedscope,
    /// The same for pprof.
    Pprof,
}

/// rocprofv3's options for Perfetto's buffers. Our writer has no such buffers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerfettoBuffers {
    /// Kilobytes of memory shared with Perfetto.
    pub shmem_size_hint: u64,
    /// Kilobytes of the buffer.
    pub buffer_size: u64,
    /// `discard` or `ring_buffer`.
    pub fill_policy: String,
}

impl Default for PerfettoBuffers {
    /// Returns AMD's values.
    fn default() -> Self {
        PerfettoBuffers {
            shmem_size_hint: 64,
            buffer_size: 1_048_576,
            fill_policy: "discard".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_found_by_its_word() {
        let units = [
            ("sec", Unit::Sec, 1_000_000_000),
            ("msec", Unit::Msec, 1_000_000),
            ("usec", Unit::Usec, 1_000),
            ("nsec", Unit::Nsec, 1),
        ];
        for (word, unit, nanoseconds) in units {
            assert_eq!(Unit::of(word), Some(unit));
            assert_eq!((unit.text(), unit.nanoseconds()), (word, nanoseconds));
        }
        for word in ["", "s", "SEC", "nsecs"] {
            assert_eq!(Unit::of(word), None, "{word}");
        }
    }
}
