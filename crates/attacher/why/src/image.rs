//! A piece of memory in place of a process, for `tests/hostile`: whatever it holds, looking at it
//! ends, and the answer stays small.

use crate::answer::Queue;
use crate::aql::{Place, QUEUE};
use crate::memory::{Bytes, Limited, Limits};
use crate::python::{self, Frame};
use crate::{objects, queues};
use std::time::Duration;

/// Memory that is this piece, again and again, so that every address can be read and every list can
/// lead back.
struct Image<'b>(&'b [u8]);

impl Bytes for Image<'_> {
    fn fill(&self, at: u64, into: &mut [u8]) -> bool {
        let Some(len) = std::num::NonZero::new(self.0.len() as u64) else {
            return false;
        };
        for (n, byte) in (0_u64..).zip(into) {
            let place = at.wrapping_add(n) % len;
            *byte = self.0.get(place as usize).copied().unwrap_or(0);
        }
        true
    }
}

/// What was found in the piece.
#[derive(Debug, Default)]
pub struct Found {
    /// Its queues.
    pub queues: Vec<Queue>,
    /// The frames of all of Python's threads.
    pub frames: Vec<Frame>,
    /// Bytes of the code objects' list, and whether an address had a name.
    pub objects: usize,
    /// See `objects`.
    pub name: Option<Vec<u8>>,
}

/// Looks at a piece of memory as [`crate::look`] does at a process's memory. A thousandth of what
/// it may read there is read here.
pub fn look(bytes: &[u8]) -> Found {
    let image = Image(bytes);
    let limits = Limits {
        bytes: 1 << 20,
        reads: 4096,
        time: Duration::from_secs(10),
    };
    let places: Vec<Place> = (0_u64..)
        .step_by(64)
        .zip(bytes.chunks(64))
        .filter_map(|(at, _)| Place::of(at, &image.bytes(at, QUEUE)?))
        .collect();
    let seen = queues::read_within(&image, &places, limits);
    let again = queues::read_within(&image, &places, limits);
    let queues = queues::told(&seen, &again, Duration::from_secs(1), &Nameless);
    let list = Limited::new(&image, limits);
    let loaded = objects::follow(&list, 0);
    let frames = python::of_memory(&Limited::new(&image, limits));
    Found {
        queues,
        frames,
        objects: loaded.iter().map(|it| it.uri.len()).sum(),
        name: objects::symbol_at(&Limited::new(&image, limits), 0x1040),
    }
}

struct Nameless;

impl queues::Names for Nameless {
    fn label(&self, _: u64) -> Option<String> {
        None
    }
    fn symbol(&self, _: u64) -> Option<String> {
        None
    }
}
