//! AQL queues.
//!
//! As on the device, a kernel dispatch leaves the ring when it is launched (its header becomes
//! invalid, and the read index moves), not when it ends. A barrier leaves the ring when it is
//! passed. The packets of one queue run one after another, as if each had its barrier bit set.
//!
//! A dispatch that needs more scratch memory than its queue has stays in the ring. The queue stops,
//! reports this to the runtime through its inactive signal, and continues when the runtime has set
//! that signal back to zero. Memory that the runtime provided for one dispatch only is returned in
//! the same way.
//!
//! A dispatch may be a vendor packet, as on gfx1250 ([`EXT_DISPATCH`]): it waits for the one signal
//! that it names and then runs like any other. The commands of a vendor packet with PM4 commands
//! ([`PM4`]) are executed with the counters' registers ([`crate::pmu`]). Other vendor packets are
//! passed.

use super::{Dice, Place, Step, blit, signal};
use crate::log::{Dispatch, Event, Packet};
use crate::machine::Machine;
use crate::pmu::pm4::{self, Buffer, Issuer};
use crate::pmu::{Pmu, Work};
use crate::sampling::{self, Sampling};
use crate::settings::Settings;
use std::sync::Arc;

/// Bytes of a packet.
pub const PACKET: u64 = 64;

/// Packet types: the low byte of the header (source: hsa/hsa.h, hsa_packet_type_t).
mod packet_type {
    pub const VENDOR: u16 = 0;
    pub const INVALID: u16 = 1;
    pub const DISPATCH: u16 = 2;
    pub const BARRIER_AND: u16 = 3;
    pub const BARRIER_OR: u16 = 5;
}

/// `format` of a vendor packet with PM4 commands (source: `docs/sources.md#counters`).
const PM4: u8 = 1;
/// `format` of a vendor packet that waits for a signal (source: hsa/hsa_ext_amd.h).
const BARRIER_VALUE: u8 = 2;
/// `format` of a vendor packet that dispatches a kernel (source: `docs/sources.md#hsa-newer`).
const EXT_DISPATCH: u8 = 3;

/// The offset of the write index in its `amd_queue_t` (source: hsa/amd_hsa_queue.h).
const WRITE_INDEX_IN_QUEUE: u64 = 56;
/// `hsa_queue_t::doorbell_signal`.
const DOORBELL_SIGNAL: u64 = 16;
/// `amd_queue_t::queue_properties`.
const PROPERTIES: u64 = 180;
/// `amd_queue_t::scratch_wave64_lane_byte_size`: the scratch memory of the queue, in bytes per
/// work-item.
const SCRATCH_PER_ITEM: u64 = 176;
/// `amd_queue_t::queue_inactive_signal`.
const INACTIVE_SIGNAL: u64 = 192;
/// Value of the inactive signal: a dispatch needs more scratch memory.
const NEEDS_SCRATCH: u64 = 1;
/// Value of the inactive signal: scratch memory for one dispatch has been used.
const SCRATCH_USED: u64 = 512;
/// The property bit for scratch memory that is for one dispatch only.
const USE_SCRATCH_ONCE: u32 = 1 << 4;
/// The property bit that requests times.
const ENABLE_PROFILING: u32 = 1 << 3;

/// The value that the model leaves in a doorbell that it has read. No thread rings with this value,
/// so each ring is seen as a change.
const READ: u64 = 1 << 63;
/// How long a ring that was overwritten may block its packets, see [`Rung`]. This is much longer
/// than a thread that has written a packet may wait for its processor before it rings, on a busy
/// machine.
const OVERWRITTEN_NS: u64 = 20_000_000;

/// What the doorbell has reported so far.
///
/// Several threads may write packets and ring out of order: the thread with packet 7 rings after
/// the one with packet 9. A device sees each ring. In memory, the 7 may overwrite the 9 before the
/// model has looked, and packets 8 and 9 would wait forever. So, whenever a ring is seen, the
/// packets that are valid at that moment count as possibly rung. They are taken if nothing else
/// happens within [`OVERWRITTEN_NS`]. A packet that became valid after the last ring is never taken
/// (unless eager), which is what tests of a profiler's doorbells need.
#[derive(Debug)]
struct Rung {
    /// The highest index that was rung, or -1 for none.
    highest: i64,
    /// One past the last packet that was valid when a ring was last seen.
    possibly: u64,
    /// When that was.
    at: u64,
}

/// The longest time between two looks at a running kernel whose program counters are sampled.
const SAMPLING_NS: u64 = 1_000_000;

#[derive(Debug)]
enum State {
    Fetch,
    Kernel {
        dispatch: Dispatch,
        until: u64,
        /// Up to when its program counters have been sampled.
        sampled: u64,
    },
    Wait {
        words: [u64; 8],
        doorbell: i64,
    },
    /// Stopped until the runtime sets this signal to zero.
    Stopped {
        signal: u64,
    },
    Halted,
}

/// An AQL queue.
#[derive(Debug)]
pub struct AqlQueue {
    place: Place,
    settings: Arc<Settings>,
    read: u64,
    state: State,
    dice: Dice,
    /// Separate from the other dice, so that times do not change which packets are taken early.
    time_dice: Dice,
    /// For program counters.
    sample_dice: Dice,
    /// Address of the doorbell, after the runtime has created it.
    doorbell_at: Option<u64>,
    rung: Rung,
    /// The profiling bit, as the packet processor found it at the first dispatch after the queue
    /// was mapped.
    latched: Option<bool>,
    /// The number of that mapping.
    mapping: u64,
    /// `COMPUTE_PERFCOUNT_ENABLE`: whether SQ and SPI count the queue's kernels.
    perfcount: bool,
}

impl AqlQueue {
    pub(super) fn new(place: Place, settings: Arc<Settings>, machine: &impl Machine) -> AqlQueue {
        let dice = Dice::new(settings.seed, place.number);
        let time_dice = Dice::new(!settings.seed, place.number);
        let sample_dice = Dice::new(settings.seed.rotate_left(32) ^ 0x5a, place.number);
        let read = machine.load_u64(place.read_index_at);
        AqlQueue {
            place,
            settings,
            read,
            state: State::Fetch,
            dice,
            time_dice,
            sample_dice,
            doorbell_at: None,
            rung: Rung {
                highest: -1,
                possibly: 0,
                at: 0,
            },
            latched: None,
            mapping: machine.mappings(),
            perfcount: false,
        }
    }

    pub(super) fn step(&mut self, machine: &impl Machine) -> Step {
        match self.state {
            State::Fetch => self.fetch(machine),
            State::Kernel {
                mut dispatch,
                until,
                sampled,
            } => {
                let now = machine.now();
                // The state is asked before the samples are taken, so that none is taken of a time
                // at which the device did not sample.
                let sampling = machine.sampling();
                if now < until {
                    self.sample(machine, sampling, &dispatch, (sampled, now));
                    self.state = State::Kernel {
                        dispatch,
                        until,
                        sampled: now,
                    };
                    let left = until - now;
                    // Without the setting, nothing changes while a kernel runs.
                    return Step::Busy(if self.settings.sampling {
                        left.min(SAMPLING_NS)
                    } else {
                        left
                    });
                }
                if let Some(pmu) = machine.pmu() {
                    pmu.trace(machine, &dispatch);
                }
                let end = self.end_kernel(machine);
                self.sample(machine, sampling, &dispatch, (sampled, end));
                dispatch.packet.end = end;
                if self.settings.sampling {
                    blit::run(machine, &dispatch);
                }
                machine.firmware_log(self.place.number, dispatch.packet.index, true, end);
                self.finish(machine, dispatch.packet, Event::Dispatch(dispatch));
                if dispatch.private_size != 0 && self.properties(machine) & USE_SCRATCH_ONCE != 0 {
                    let (index, need) = (dispatch.packet.index, dispatch.private_size);
                    self.stop(machine, index, need, SCRATCH_USED);
                }
                Step::Progress
            }
            State::Wait { words, doorbell } => self.wait(machine, words, doorbell),
            State::Stopped { signal } => {
                if machine.load_u64(signal + signal::VALUE) != 0 {
                    return Step::Idle { near: true };
                }
                self.state = State::Fetch;
                Step::Progress
            }
            State::Halted => Step::Halted,
        }
    }

    pub(super) fn end(&mut self, machine: &impl Machine) {
        if let State::Kernel { mut dispatch, .. } = self.state {
            dispatch.packet.end = self.end_kernel(machine);
            dispatch.packet.times_written = false;
            machine.log(self.place.number, &Event::Cut(dispatch));
        }
        self.state = State::Halted;
        machine.log(self.place.number, &Event::QueueEnd { index: self.read });
    }

    /// Ends the kernel now. Returns the time.
    fn end_kernel(&self, machine: &impl Machine) -> u64 {
        let clock = || machine.now();
        match machine.pmu() {
            Some(pmu) => pmu.end(self.place.number, clock),
            None => clock(),
        }
    }

    /// Samples the program counters of a kernel that ran in this time.
    fn sample(
        &mut self,
        machine: &impl Machine,
        sampling: Option<Sampling>,
        dispatch: &Dispatch,
        time: (u64, u64),
    ) {
        let (Some(sampling), Some(doorbell)) = (sampling, self.doorbell_at) else {
            return;
        };
        let queue = (self.place.ring_bytes / PACKET, doorbell);
        let rule = &self.settings.samples;
        let dice = &mut self.sample_dice;
        let random = || dice.roll();
        let taken = sampling::take(machine, rule, sampling, dispatch, queue, time, random);
        if !taken.is_empty() {
            let event = Event::Samples {
                ring: self.place.ring,
                index: dispatch.packet.index,
                kernel_object: dispatch.kernel_object,
                taken,
            };
            machine.log(self.place.number, &event);
        }
    }

    /// Finds the doorbell, which the runtime creates just after the queue. A doorbell contains the
    /// index of the last packet rung. Fresh memory is zero, which would mean that packet 0 was
    /// rung. So an untouched doorbell is marked as read.
    fn find_doorbell(&mut self, machine: &impl Machine) -> Option<u64> {
        let mut at = self.place.doorbell_at;
        if at == 0 {
            let queue = self.place.write_index_at - WRITE_INDEX_IN_QUEUE;
            let handle = machine.load_u64(queue + DOORBELL_SIGNAL);
            if handle != 0 {
                at = machine.load_u64(handle + signal::VALUE);
            }
        }
        if at == 0 {
            return None;
        }
        let unused = || machine.load_u64(self.place.write_index_at) == 0;
        if unused() && machine.swap_u64(at, 0, READ) && !unused() {
            // Another thread may have started to use the queue in the meantime, and may have rung 0
            // just before the swap. A later ring makes this swap fail.
            machine.swap_u64(at, READ, 0);
        }
        self.doorbell_at = Some(at);
        self.doorbell_at
    }

    /// Reads the doorbell. Returns the highest index rung.
    fn read_doorbell(&mut self, machine: &impl Machine, at: u64, written: u64) -> i64 {
        let value = machine.load_u64(at);
        // A ring between the load and the swap is seen at the next poll.
        if value != READ && machine.swap_u64(at, value, READ) {
            let packets = self.place.ring_bytes / PACKET;
            let mut possibly = self.read;
            while possibly < written.min(self.read + packets)
                && self.header(machine, possibly) != packet_type::INVALID
            {
                possibly += 1;
            }
            let highest = self.rung.highest.max(value as i64);
            self.rung = Rung {
                highest,
                possibly,
                at: machine.now(),
            };
        }
        self.rung.highest
    }

    /// Returns whether the packet at the read index has been rung.
    fn is_rung(&self, machine: &impl Machine) -> bool {
        self.rung.highest >= self.read as i64
            || self.read < self.rung.possibly && machine.now() - self.rung.at > OVERWRITTEN_NS
    }

    /// Returns the type of a packet.
    fn header(&self, machine: &impl Machine, index: u64) -> u16 {
        machine.load_u16(self.place.ring + index * PACKET % self.place.ring_bytes) & 0xff
    }

    /// Returns the address of the `amd_queue_t`.
    fn queue(&self) -> u64 {
        self.place.write_index_at - WRITE_INDEX_IN_QUEUE
    }

    fn properties(&self, machine: &impl Machine) -> u32 {
        machine.load_u32(self.queue() + PROPERTIES)
    }

    /// Returns whether the completion signal of a packet that is taken now gets times.
    fn profiling(&mut self, machine: &impl Machine, is_dispatch: bool) -> bool {
        if self.settings.always_time {
            return true;
        }
        let bit = self.properties(machine) & ENABLE_PROFILING != 0;
        if !self.settings.latch {
            return bit;
        }
        let mapping = machine.mappings();
        if mapping != self.mapping {
            self.mapping = mapping;
            self.latched = None;
        }
        if is_dispatch {
            return *self.latched.get_or_insert(bit);
        }
        self.latched.unwrap_or(bit)
    }

    /// Stops the queue and tells the runtime why. Returns false when the queue has no signal for
    /// this.
    fn stop(&mut self, machine: &impl Machine, index: u64, need: u32, code: u64) -> bool {
        let signal = machine.load_u64(self.queue() + INACTIVE_SIGNAL);
        if signal == 0 {
            return false;
        }
        let event = Event::Stop {
            ring: self.place.ring,
            index,
            code,
            need,
            have: machine.load_u32(self.queue() + SCRATCH_PER_ITEM),
        };
        machine.log(self.place.number, &event);
        self.state = State::Stopped { signal };
        signal::set(machine, signal, code);
        true
    }

    fn packet_at(&self) -> u64 {
        self.place.ring + self.read * PACKET % self.place.ring_bytes
    }

    fn fetch(&mut self, machine: &impl Machine) -> Step {
        let Some(doorbell_at) = self.doorbell_at.or_else(|| self.find_doorbell(machine)) else {
            return Step::Unready;
        };
        let written = machine.load_u64(self.place.write_index_at);
        let doorbell = self.read_doorbell(machine, doorbell_at, written);
        if self.read >= written {
            return Step::Idle { near: false };
        }
        let eager = self.settings.eager && self.dice.coin();
        if !eager && !self.is_rung(machine) {
            return Step::Idle { near: true };
        }
        let at = self.packet_at();
        let header = machine.load_u16(at);
        if header & 0xff == packet_type::INVALID {
            return Step::Idle { near: true };
        }
        let words: [u64; 8] = std::array::from_fn(|n| machine.load_u64(at + 8 * n as u64));
        match header & 0xff {
            packet_type::DISPATCH => self.launch(machine, words, doorbell),
            packet_type::BARRIER_AND | packet_type::BARRIER_OR | packet_type::VENDOR => {
                self.state = State::Wait { words, doorbell };
                self.wait(machine, words, doorbell)
            }
            _ => {
                let event = Event::Unknown {
                    ring: self.place.ring,
                    index: self.read,
                    word: words[0] as u32,
                };
                machine.log(self.place.number, &event);
                self.state = State::Halted;
                Step::Halted
            }
        }
    }

    /// Returns what all packets have, for the packet at the read index.
    fn packet(&mut self, machine: &impl Machine, words: [u64; 8], doorbell: i64) -> Packet {
        let now = machine.now();
        let is_dispatch = words[0] as u16 & 0xff == packet_type::DISPATCH;
        let profiling = self.profiling(machine, is_dispatch);
        Packet {
            ring: self.place.ring,
            index: self.read,
            header: words[0] as u16,
            signal: words[7],
            start: now,
            end: now,
            times_written: words[7] != 0 && profiling,
            doorbell,
        }
    }

    /// Gives the packet's slot back to the application.
    fn release(&mut self, machine: &impl Machine) {
        machine.store_u16(self.packet_at(), packet_type::INVALID);
        self.read += 1;
        machine.store_u64(self.place.read_index_at, self.read);
    }

    fn launch(&mut self, machine: &impl Machine, words: [u64; 8], doorbell: i64) -> Step {
        let half = |word: usize, n: u32| (words[word] >> (32 * n)) as u32;
        let need = half(3, 0);
        if need > machine.load_u32(self.queue() + SCRATCH_PER_ITEM)
            && self.stop(machine, self.read, need, NEEDS_SCRATCH)
        {
            return Step::Progress;
        }
        let workgroup = [
            (words[0] >> 32) as u16,
            (words[0] >> 48) as u16,
            words[1] as u16,
        ];
        let is_ext = words[0] as u16 & 0xff == packet_type::VENDOR;
        let (format, setup, grid) = if is_ext {
            // Words: clusters of the grid, workgroups of a cluster, work-items of a workgroup.
            let clusters = [half(1, 1), half(2, 0) & 0xffff, half(2, 0) >> 16];
            let size = |axis: u32| half(2, 1) >> (8 * axis) & 0xff;
            let grid = std::array::from_fn(|axis| {
                clusters[axis] * size(axis as u32) * u32::from(workgroup[axis])
            });
            (EXT_DISPATCH, words[0] >> 24 & 0xff, grid)
        } else {
            let grid = [half(1, 1), half(2, 0), half(2, 1)];
            (0, words[0] >> 16 & 0xffff, grid)
        };
        let dispatch = Dispatch {
            packet: self.packet(machine, words, doorbell),
            format,
            setup: setup as u16,
            workgroup,
            grid,
            private_size: half(3, 0),
            group_size: half(3, 1),
            kernel_object: words[4],
            kernarg: words[5],
        };
        if let Some(count) = machine.bus_reads(self.place.ring) {
            let event = Event::Reads {
                ring: self.place.ring,
                index: self.read,
                count,
            };
            machine.log(self.place.number, &event);
        }
        let (ns, of_its_own) = self.settings.kernel_time(dispatch.grid[0]);
        let ns = self.time_dice.spread(ns, self.settings.jitter);
        if of_its_own {
            let begun = Packet {
                end: 0,
                times_written: false,
                ..dispatch.packet
            };
            machine.log(
                self.place.number,
                &Event::Begin(Dispatch {
                    packet: begun,
                    ..dispatch
                }),
            );
        }
        let begin = dispatch.packet.start;
        machine.firmware_log(self.place.number, dispatch.packet.index, false, begin);
        if let Some(pmu) = machine.pmu() {
            let work = Work::new(dispatch.grid, dispatch.workgroup, self.perfcount);
            pmu.begin(self.place.number, work, begin, ns);
        }
        self.release(machine);
        self.state = State::Kernel {
            dispatch,
            sampled: dispatch.packet.start,
            until: dispatch.packet.start.saturating_add(ns),
        };
        Step::Progress
    }

    /// Passes a barrier or vendor packet if its condition is met.
    fn wait(&mut self, machine: &impl Machine, words: [u64; 8], doorbell: i64) -> Step {
        let value = |handle: u64| machine.load_u64(handle + signal::VALUE) as i64;
        let (kind, format) = (words[0] as u16 & 0xff, (words[0] >> 16) as u8);
        let deps: [u64; 5] = std::array::from_fn(|n| words[n + 1]);
        let mut real = deps.iter().filter(|handle| **handle != 0).peekable();
        let passed = match kind {
            packet_type::BARRIER_AND => real.all(|handle| value(*handle) == 0),
            packet_type::BARRIER_OR => {
                real.peek().is_none() || real.any(|handle| value(*handle) == 0)
            }
            _ if format == BARRIER_VALUE && words[1] != 0 => compare(
                words[4] as u32,
                value(words[1]) & words[3] as i64,
                words[2] as i64,
            ),
            packet_type::VENDOR if format == EXT_DISPATCH => words[6] == 0 || value(words[6]) == 0,
            _ => true,
        };
        let waits = |words| {
            Buffer::of_packet(words).is_some_and(|buffer| pm4::has_to_wait(machine, buffer))
        };
        if !passed || kind == packet_type::VENDOR && format == PM4 && waits(words) {
            return Step::Idle { near: false };
        }
        if kind == packet_type::VENDOR && format == EXT_DISPATCH {
            return self.launch(machine, words, doorbell);
        }
        let mut packet = self.packet(machine, words, doorbell);
        if kind == packet_type::VENDOR
            && format == PM4
            && let Some(pmu) = machine.pmu()
        {
            self.commands(machine, pmu, words);
            packet.end = machine.now();
        }
        let event = match kind {
            packet_type::VENDOR => Event::Vendor { packet, format },
            _ => Event::Barrier {
                packet,
                or: kind == packet_type::BARRIER_OR,
                deps,
            },
        };
        self.release(machine);
        self.finish(machine, packet, event)
    }

    /// Executes the commands of a vendor packet.
    fn commands(&mut self, machine: &impl Machine, pmu: &Pmu, words: [u64; 8]) {
        let Some(buffer) = Buffer::of_packet(words) else {
            return;
        };
        let mut issuer = Issuer {
            queue: self.place.number,
            ring: self.place.ring,
            index: self.read,
            enabled: self.perfcount,
        };
        pmu.execute(machine, &mut issuer, buffer);
        self.perfcount = issuer.enabled;
    }

    /// Logs a packet, then lets the application see that it is done.
    fn finish(&mut self, machine: &impl Machine, packet: Packet, event: Event) -> Step {
        machine.log(self.place.number, &event);
        signal::complete(
            machine,
            packet.signal,
            packet.times_written.then_some((packet.start, packet.end)),
        );
        self.state = State::Fetch;
        Step::Progress
    }
}

/// Returns whether a condition holds. `hsa_signal_condition_t`: 0 equal, 1 not equal, 2 less, 3
/// greater or equal.
fn compare(condition: u32, left: i64, right: i64) -> bool {
    match condition {
        0 => left == right,
        1 => left != right,
        2 => left < right,
        _ => left >= right,
    }
}
