//! SDMA queues: rings of dwords, with indices that count bytes.

use super::rect::Rect;
use super::{Dice, Place, Step};
use crate::log::{Copy, Event};
use crate::machine::Machine;
use crate::settings::Settings;
use std::sync::Arc;

/// Operation codes: the low byte of a packet (source: the packet layouts that ROCr 7.2's blit code
/// emits for gfx9).
mod op {
    pub const NOP: u32 = 0;
    pub const COPY: u32 = 1;
    pub const FENCE: u32 = 5;
    pub const TRAP: u32 = 6;
    pub const POLL: u32 = 8;
    pub const ATOMIC: u32 = 10;
    pub const FILL: u32 = 11;
    pub const TIMESTAMP: u32 = 13;
    pub const GCR: u32 = 17;
}
/// Sub-operations of a copy.
const LINEAR: u32 = 0;
/// A sub-window of a linear surface.
const SUB_WINDOW: u32 = 4;
/// The atomic operation that the runtime uses: 64-bit add.
const ADD64: u32 = 47;

/// An SDMA queue.
#[derive(Debug)]
pub struct SdmaQueue {
    place: Place,
    settings: Arc<Settings>,
    read: u64,
    halted: bool,
    dice: Dice,
}

impl SdmaQueue {
    pub(super) fn new(place: Place, settings: Arc<Settings>, machine: &impl Machine) -> SdmaQueue {
        let dice = Dice::new(settings.seed, place.number);
        SdmaQueue {
            place,
            settings,
            read: machine.load_u64(place.read_index_at),
            halted: false,
            dice,
        }
    }

    pub(super) fn end(&mut self, machine: &impl Machine) {
        self.halted = true;
        machine.log(self.place.number, &Event::QueueEnd { index: self.read });
    }

    pub(super) fn step(&mut self, machine: &impl Machine) -> Step {
        if self.halted {
            return Step::Halted;
        }
        let written = machine.load_u64(self.place.write_index_at);
        if self.read >= written {
            return Step::Idle { near: false };
        }
        let doorbell = match self.place.doorbell_at {
            0 => written,
            at => machine.load_u64(at),
        };
        let eager = self.settings.eager && self.dice.coin();
        if !eager && doorbell <= self.read {
            return Step::Idle { near: true };
        }
        let d: [u32; 16] = std::array::from_fn(|n| {
            machine.load_u32(self.place.ring + (self.read + 4 * n as u64) % self.place.ring_bytes)
        });
        match self.run(machine, &d, doorbell as i64) {
            Outcome::Took(dwords, event) => {
                if let Some(event) = event {
                    machine.log(self.place.number, &event);
                }
                self.read += 4 * dwords;
                machine.store_u64(self.place.read_index_at, self.read);
                Step::Progress
            }
            Outcome::Waits => Step::Idle { near: false },
            Outcome::Unknown => {
                let event = Event::Unknown {
                    ring: self.place.ring,
                    index: self.read,
                    word: d[0],
                };
                machine.log(self.place.number, &event);
                self.halted = true;
                Step::Halted
            }
        }
    }

    fn run(&self, machine: &impl Machine, d: &[u32; 16], doorbell: i64) -> Outcome {
        let address = |low: usize| u64::from(d[low]) | u64::from(d[low + 1]) << 32;
        let (code, sub) = (d[0] & 0xff, d[0] >> 8 & 0xff);
        // A change of memory that others wait for is logged before it happens: see the module
        // `log`.
        let log = |op: &'static str, at: u64, value: u64| {
            let event = Event::Sdma {
                ring: self.place.ring,
                index: self.read,
                doorbell,
                op,
                at,
                value,
            };
            machine.log(self.place.number, &event);
        };
        let copy = |rect: bool, bytes: u64, src: u64, dst: u64, act: &dyn Fn()| {
            let start = machine.now();
            act();
            let end = machine.now();
            let (ring, index) = (self.place.ring, self.read);
            Event::Copy(Copy {
                ring,
                index,
                doorbell,
                rect,
                bytes,
                src,
                dst,
                start,
                end,
            })
        };
        match code {
            // This is padding at the end of the ring, which needs no record.
            op::NOP => Outcome::Took(1 + u64::from(d[0] >> 16 & 0x3fff), None),
            op::COPY if sub == LINEAR => {
                let (bytes, src, dst) = (u64::from(d[1] & 0x3fff_ffff) + 1, address(3), address(5));
                Outcome::Took(
                    7,
                    Some(copy(false, bytes, src, dst, &|| {
                        machine.copy(dst, src, bytes)
                    })),
                )
            }
            op::COPY if sub == SUB_WINDOW => {
                let rect = Rect::decode(d);
                let event = copy(true, rect.bytes(), rect.src(), rect.dst(), &|| {
                    rect.run(machine)
                });
                Outcome::Took(Rect::DWORDS, Some(event))
            }
            op::FENCE => {
                log("fence", address(1), u64::from(d[3]));
                machine.store_u32(address(1), d[3]);
                Outcome::Took(4, None)
            }
            op::TRAP => {
                let event = d[1] & 0x0fff_ffff;
                log("trap", 0, u64::from(event));
                if event != 0 {
                    machine.raise(event);
                }
                Outcome::Took(2, None)
            }
            op::POLL => {
                // Without the memory bit, the packet polls a register of the device. Here this is
                // always satisfied.
                if sub == 0 && d[0] >> 31 != 0 {
                    if !compare(d[0] >> 28 & 7, machine.load_u32(address(1)) & d[4], d[3]) {
                        return Outcome::Waits;
                    }
                    log("poll", address(1), u64::from(d[3]));
                }
                Outcome::Took(6, None)
            }
            op::ATOMIC if d[0] >> 25 == ADD64 => {
                log("add64", address(1), address(3));
                machine.add_u64(address(1), address(3));
                Outcome::Took(8, None)
            }
            op::FILL => {
                let bytes = u64::from(d[4] & 0x3f_ffff) + 1;
                log("fill", address(1), bytes);
                let pattern = d[3].to_le_bytes();
                let unit = 1usize << (d[0] >> 30).min(2);
                machine.fill(address(1), pattern.get(..unit).unwrap_or(&pattern), bytes);
                Outcome::Took(5, None)
            }
            op::TIMESTAMP => {
                let now = machine.now();
                log("timestamp", address(1), now);
                machine.store_u64(address(1), now);
                Outcome::Took(3, None)
            }
            op::GCR => Outcome::Took(5, None),
            _ => Outcome::Unknown,
        }
    }
}

enum Outcome {
    Took(u64, Option<Event>),
    Waits,
    Unknown,
}

/// Applies the comparison of a poll: 0 always, then <, <=, ==, !=, >=, >.
fn compare(function: u32, value: u32, reference: u32) -> bool {
    match function {
        0 => true,
        1 => value < reference,
        2 => value <= reference,
        3 => value == reference,
        4 => value != reference,
        5 => value >= reference,
        _ => value > reference,
    }
}
