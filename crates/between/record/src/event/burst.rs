//! Bursts: the parts of the time in which a recording was on (`--max-overhead`).

use super::Header;

/// A burst of a recording that is on for a part of the time only. It is written twice: when the
/// burst starts, with `end` 0, and when the period around it is over. A period has one burst, at a
/// random place.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Burst {
    /// Common header.
    pub header: Header,
    /// When its period started.
    pub from: u64,
    /// When recording was switched on.
    pub start: u64,
    /// When recording was switched off; 0 in the first of the two records.
    pub end: u64,
    /// When its period ended.
    pub to: u64,
    /// Launches in the burst; 0 where launches are not counted.
    pub inside: u64,
    /// Launches in the whole period; 0 where they are not counted.
    pub all: u64,
    /// What recording costs while it is on, as far as was known then: millionths of the
    /// application's speed.
    pub cost: u32,
    /// How that is known: one of [`basis`].
    pub basis: u32,
    /// How long switching the recording on and off held the application up at most, ns.
    pub switched: u64,
}

/// How the cost of recording is known ([`Burst::basis`]).
pub mod basis {
    /// It is not.
    pub const UNKNOWN: u32 = 0;
    /// The application's launches in bursts were compared with those between them.
    pub const MEASURED: u32 = 1;
    /// It follows from the number of records, and from an assumed cost of each.
    pub const ASSUMED: u32 = 2;
}
