//! The layout of queues, packets and signals in a process's memory (source: hsa/hsa.h,
//! hsa/amd_hsa_queue.h, hsa/amd_hsa_signal.h, hsa/hsa_ext_amd.h).

use crate::memory::Bytes;

/// Bytes of a packet.
pub(crate) const PACKET: u64 = 64;
/// Bytes of an `amd_queue_t` that are read.
pub(crate) const QUEUE: usize = 144;
/// The least alignment of a queue.
pub(crate) const ALIGNMENT: usize = 64;

/// Types of packets.
mod kind {
    pub(super) const VENDOR: u8 = 0;
    pub(super) const INVALID: u8 = 1;
    pub(super) const DISPATCH: u8 = 2;
    pub(super) const BARRIER_AND: u8 = 3;
    pub(super) const BARRIER_OR: u8 = 5;
}
/// Formats of vendor packets: one waits for a value, the other dispatches a kernel.
const BARRIER_VALUE: u8 = 2;
const VENDOR_DISPATCH: u8 = 3;
/// The bit of the header by which a packet starts only when all packets before it have ended.
const AFTER_ALL: u16 = 1 << 8;
/// The value of `read_dispatch_id_field_base_byte_offset` in every queue, which is also the offset
/// of the read index.
const READ_AT: u32 = 128;
const WRITE_AT: usize = 56;
/// The largest size in packets that is taken for a queue.
const LARGEST: u32 = 1 << 22;

/// Where a queue is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Its `amd_queue_t`.
    pub(crate) at: u64,
    /// Its packets.
    pub(crate) ring: u64,
    /// Packets that it has room for, a power of two.
    pub(crate) size: u32,
    /// The signal that is its doorbell.
    pub(crate) doorbell: u64,
    /// Its number in the runtime.
    pub(crate) id: u64,
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk());
    word.map_or(0, |word| u64::from_le_bytes(*word))
}

fn half(bytes: &[u8], at: usize) -> u32 {
    let half = bytes.get(at..).and_then(|rest| rest.first_chunk());
    half.map_or(0, |half| u32::from_le_bytes(*half))
}

impl Place {
    /// Returns the queue, if these bytes at `at` may be one.
    pub(crate) fn of(at: u64, bytes: &[u8]) -> Option<Place> {
        let place = Place {
            at,
            ring: word(bytes, 8),
            size: half(bytes, 24),
            doorbell: word(bytes, 16),
            id: word(bytes, 32),
        };
        let may_be = half(bytes, 136) == READ_AT
            && half(bytes, 0) <= 2
            && (1..=3).contains(&half(bytes, 4))
            && place.ring != 0
            && place.ring.is_multiple_of(PACKET)
            && place.doorbell != 0
            && place.doorbell.is_multiple_of(8)
            && place.size.is_power_of_two()
            && place.size <= LARGEST;
        may_be.then_some(place)
    }

    /// Whether its doorbell leads back to it. A destroyed queue has no such doorbell.
    pub(crate) fn is_live(&self, memory: &impl Bytes) -> bool {
        let Some(signal) = memory.bytes(self.doorbell, 64) else {
            return false;
        };
        // The two kinds of doorbells, and the pointer from the doorbell to its queue.
        matches!(word(&signal, 0) as i64, -2 | -1) && word(&signal, 48) == self.at
    }

    /// Returns the address to which a program writes to ring the device.
    pub(crate) fn bell(&self, memory: &impl Bytes) -> Option<u64> {
        memory.word(self.doorbell.checked_add(8)?)
    }

    /// Returns the read index and the write index.
    pub(crate) fn indexes(&self, memory: &impl Bytes) -> Option<(u64, u64)> {
        let bytes = memory.bytes(self.at, QUEUE)?;
        Some((word(&bytes, READ_AT as usize), word(&bytes, WRITE_AT)))
    }

    /// Returns a packet as it is now.
    pub(crate) fn packet(&self, memory: &impl Bytes, index: u64) -> Option<Packet> {
        let slot = index & (u64::from(self.size) - 1);
        let bytes = memory.bytes(self.ring.checked_add(slot * PACKET)?, PACKET as usize)?;
        Some(Packet {
            index,
            words: std::array::from_fn(|n| word(&bytes, 8 * n)),
        })
    }
}

/// A packet as it was when it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packet {
    /// Its index in its queue.
    pub(crate) index: u64,
    words: [u64; 8],
}

/// What a packet does that is still in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// No thread has written it.
    Unwritten,
    /// It runs a kernel.
    Dispatch,
    /// The packet waits until all of its signals are 0.
    All,
    /// The packet waits until one of its signals is 0.
    Any,
    /// The packet waits until its signal's value, under a mask, meets a condition.
    Value {
        mask: i64,
        condition: u32,
        with: i64,
    },
    /// Something else, which waits for nothing: commands for the packet processor.
    Commands,
}

impl Packet {
    fn format(&self) -> u8 {
        self.words[0].to_le_bytes()[2]
    }

    /// Returns what the packet does, where it has not started.
    pub(crate) fn form(&self) -> Form {
        match self.words[0] as u8 {
            kind::INVALID => Form::Unwritten,
            kind::DISPATCH => Form::Dispatch,
            kind::BARRIER_AND => Form::All,
            kind::BARRIER_OR => Form::Any,
            kind::VENDOR if self.format() == VENDOR_DISPATCH => Form::Dispatch,
            kind::VENDOR if self.format() == BARRIER_VALUE && self.words[1] != 0 => Form::Value {
                mask: self.words[3] as i64,
                condition: self.words[4] as u32,
                with: self.words[2] as i64,
            },
            _ => Form::Commands,
        }
    }

    /// Whether it waits for all packets before it.
    pub(crate) fn is_after_all(&self) -> bool {
        self.words[0] as u16 & AFTER_ALL != 0
    }

    /// Returns the signals that it waits for.
    pub(crate) fn dependencies(&self) -> Vec<u64> {
        let some = |words: &[u64]| words.iter().copied().filter(|word| *word != 0).collect();
        match self.form() {
            Form::All | Form::Any => some(&self.words[1..6]),
            Form::Value { .. } => some(&self.words[1..2]),
            Form::Dispatch if self.words[0] as u8 == kind::VENDOR => some(&self.words[6..7]),
            _ => Vec::new(),
        }
    }

    /// Returns its completion signal, or 0 for none.
    pub(crate) fn completion(&self) -> u64 {
        self.words[7]
    }

    /// Returns the kernel that it runs.
    pub(crate) fn kernel_object(&self) -> u64 {
        self.words[4]
    }

    /// Whether a packet that has started may have been a dispatch. Its header is gone by then. What
    /// is left behind the header is either the number of dimensions, or a vendor packet's format
    /// and dimensions.
    pub(crate) fn may_have_dispatched(&self) -> bool {
        let setup = (self.words[0] >> 16) as u16;
        let vendor = setup as u8 == VENDOR_DISPATCH && (1..=3).contains(&(setup >> 8));
        ((1..=3).contains(&setup) || vendor)
            && self.words[4] != 0
            && self.words[4].is_multiple_of(64)
    }

    /// Returns the work items of its grid and of a workgroup.
    pub(crate) fn sizes(&self) -> ([u32; 3], [u32; 3]) {
        let upper = |word: u64| (word >> 32) as u32;
        let [first, second, third, ..] = self.words;
        let short = |word: u64, n: u32| (word >> (16 * n)) as u32 & 0xffff;
        (
            [upper(second), third as u32, upper(third)],
            [short(first, 2), short(first, 3), short(second, 0)],
        )
    }
}

/// Returns the value of a signal, or None where there is no signal that a packet may wait for or
/// complete.
pub(crate) fn signal_value(memory: &impl Bytes, handle: u64) -> Option<i64> {
    if handle == 0 || !handle.is_multiple_of(8) {
        return None;
    }
    let bytes = memory.bytes(handle, 16)?;
    (word(&bytes, 0) == 1).then(|| word(&bytes, 8) as i64)
}

/// Whether a value under a mask lets a packet pass (`hsa_signal_condition_t`).
pub(crate) fn passes(form: Form, value: i64) -> bool {
    match form {
        Form::Value {
            mask,
            condition,
            with,
        } => {
            let value = value & mask;
            match condition {
                0 => value == with,
                1 => value != with,
                2 => value < with,
                _ => value >= with,
            }
        }
        _ => value == 0,
    }
}
