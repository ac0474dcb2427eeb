//! The versions of AMD's tool, and what differs between them in tables: formulas, numbers and words.
//! (Source: `docs/sources.md#compute`.)

use crate::architecture::Form;
use std::fmt;

/// A version of AMD's tool, such as 3.9.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Vintage {
    major: u16,
    minor: u16,
}

const fn version(major: u16, minor: u16) -> Vintage {
    Vintage { major, minor }
}

impl Vintage {
    /// The first version that attaches. Directories whose version nothing tells are like its.
    pub const FIRST: Vintage = version(3, 3);
    /// The version that has options for iteration multiplexing.
    pub(crate) const MULTIPLEXING: Vintage = version(3, 5);
    /// The first version with whole words as units.
    const WORDS: Vintage = version(3, 6);
    /// The first version with ratios of sums.
    pub(crate) const SUMS: Vintage = version(3, 7);
    /// The first version that says percent of peak, and memory channels.
    pub(crate) const PERCENT: Vintage = version(3, 8);
    /// The first version whose counters are compressed, and the newest whose directories are known.
    pub const NEWEST: Vintage = version(3, 9);

    /// Reads a version such as `3.9` or `3.9.0`.
    pub fn read(word: &str) -> Option<Vintage> {
        let mut parts = word.trim().split('.').map(|part| part.parse().ok());
        let vintage = version(parts.next()??, parts.next()??);
        (vintage.major == 3).then_some(vintage)
    }

    /// Returns the formulas, and the numbers of metrics.
    pub fn form(self) -> Form {
        match self >= Vintage::SUMS {
            true => Form::Sums,
            false => Form::Means,
        }
    }

    /// Returns the heading of a column.
    pub fn heading(self, heading: &str) -> &str {
        match heading {
            "Pct of Peak" if self >= Vintage::PERCENT => "Percent of Peak",
            "Pct" if self >= Vintage::WORDS => "Percent",
            other => other,
        }
    }

    /// Returns the unit of a metric whose unit of 2025 is this one.
    pub fn unit(self, unit: &'static str, metric: &str) -> &'static str {
        if self < Vintage::WORDS {
            return unit;
        }
        match unit {
            "pct" | "Pct" | "Pct of Peak" => "Percent",
            "Threads" | "Work Items" => "Work-items",
            "Instr/cycle" => "Instructions per Cycle",
            "Instr/wavefront" => "Instructions per Wavefront",
            "cycles/instr" => "Cycles per Instruction",
            "Conflicts/access" | "Conflicts/Access" => "Conflicts per Access",
            "Bytes/Workitem" => "Bytes per Work-item",
            "ns" => "Nanoseconds",
            "Cycle" => "Cycles",
            "GFLOP" => "GFLOPs",
            "GIOP" => "GIOPs",
            "(instr + $normUnit)" | "(Instr  + $normUnit)" => "(Instructions + $normUnit)",
            "(Req + $normUnit)" | "(Req  + $normUnit)" => "(Requests + $normUnit)",
            "(OPs  + $normUnit)" if metric.starts_with("I") => "(IOPS + $normUnit)",
            "(OPs  + $normUnit)" => "(FLOPs + $normUnit)",
            other => other,
        }
    }
}

impl fmt::Display for Vintage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_ordered() {
        let read = |word| Vintage::read(word).unwrap();
        assert!(read("3.10.0") > read("3.9") && read("3.9.1") == Vintage::NEWEST);
        assert_eq!(read(" 3.7.0\n").to_string(), "3.7");
        for word in ["", "3", "3.x", "2.0", "4.0", "three", "3.99999999"] {
            assert_eq!(Vintage::read(word), None, "{word}");
        }
        assert_eq!(read("3.6").form(), Form::Means);
        assert_eq!(read("3.7").form(), Form::Sums);
    }

    #[test]
    fn words_are_those_of_the_version() {
        let of = |word, unit| Vintage::read(word).unwrap().unit(unit, "IOPs (Total)");
        assert_eq!(of("3.3", "Pct"), "Pct");
        assert_eq!(of("3.5", "pct"), "pct");
        for unit in ["pct", "Pct", "Pct of Peak"] {
            assert_eq!(of("3.6", unit), "Percent");
        }
        assert_eq!(of("3.9", "(OPs  + $normUnit)"), "(IOPS + $normUnit)");
        let heading = |word, heading| Vintage::read(word).unwrap().heading(heading).to_owned();
        assert_eq!(heading("3.7", "Pct of Peak"), "Pct of Peak");
        assert_eq!(heading("3.8", "Pct of Peak"), "Percent of Peak");
        assert_eq!(heading("3.8", "Peak"), "Peak");
    }
}
