//! The commands of an indirect buffer.
//!
//! AMD's library uses seven kinds of commands for counters (`docs/sources.md#counters`) and one more for
//! thread traces, and ROCr four more to take samples out of the device's buffers. Each XCC executes them for itself. Other commands are skipped by their length, and reported in the log.

use super::registers::{COMPUTE_PERFCOUNT_ENABLE, CP_PERFMON_CNTL, GRBM_GFX_INDEX, Unit};
use super::{Device, Pmu};
use crate::log::{Event, Pm4, Register, Trace};
use crate::machine::Machine;

/// Numbers of commands (bits 8-15 of a header whose bits 30-31 are set).
mod opcode {
    pub const NOP: u32 = 0x10;
    pub const ATOMIC_MEM: u32 = 0x1e;
    pub const PRED_EXEC: u32 = 0x23;
    pub const WRITE_DATA: u32 = 0x37;
    pub const WAIT_REG_MEM: u32 = 0x3c;
    pub const INDIRECT_BUFFER: u32 = 0x3f;
    pub const COPY_DATA: u32 = 0x40;
    pub const EVENT_WRITE: u32 = 0x46;
    pub const DMA_DATA: u32 = 0x50;
    pub const ACQUIRE_MEM: u32 = 0x58;
    pub const SET_SH_REG: u32 = 0x76;
    pub const SET_UCONFIG_REG: u32 = 0x79;
}

/// First register of [`opcode::SET_SH_REG`]'s range.
const SH: u32 = 0x2c00;
/// First register of [`opcode::SET_UCONFIG_REG`]'s range.
const UCONFIG: u32 = 0xc000;

/// Sources of `COPY_DATA`: a register, a counter's register, memory (in two ways), a value in the
/// command, or what an atomic command returned.
mod source {
    pub const REGISTER: u32 = 0;
    pub const MEMORY: u32 = 1;
    pub const L2: u32 = 2;
    pub const COUNTER: u32 = 4;
    pub const IMMEDIATE: u32 = 5;
    /// The value that the last atomic command returned.
    pub const RETURNED: u32 = 6;
    /// The device's clock.
    pub const CLOCK: u32 = 9;
}

/// Destinations of `COPY_DATA`.
mod destination {
    pub const REGISTER: u32 = 0;
    pub const L2: u32 = 2;
    pub const COUNTER: u32 = 4;
    pub const MEMORY: u32 = 5;
}

/// The place of an indirect buffer, as a vendor packet of format 1 has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffer {
    /// Its address.
    pub at: u64,
    /// Its length in 32-bit words.
    pub words: u32,
}

impl Buffer {
    /// Reads the vendor packet. Returns `None` if its command is not `INDIRECT_BUFFER`.
    pub fn of_packet(words: [u64; 8]) -> Option<Buffer> {
        let half = |n: usize| (words[n / 2] >> (32 * (n % 2))) as u32;
        (opcode_of(half(1)) == Some(opcode::INDIRECT_BUFFER)).then(|| Buffer {
            at: u64::from(half(2) & !3) | u64::from(half(3) & 0xffff) << 32,
            words: half(4) & 0xf_ffff,
        })
    }
}

/// Operation of `ATOMIC_MEM`: swap 64 bits and return them.
const SWAP_64: u32 = 0x27;
/// Function of `WAIT_REG_MEM`: equal.
const EQUAL: u32 = 3;
/// Bit of `WAIT_REG_MEM`: memory, else a register.
const IN_MEMORY: u32 = 1 << 4;

/// Returns whether a buffer's commands start with a wait whose condition does not hold yet. (ROCr's
/// start with it; a wait behind other commands is not understood.)
pub fn has_to_wait(machine: &impl Machine, buffer: Buffer) -> bool {
    let word = |n: u64| machine.load_u32(buffer.at + 4 * n);
    if buffer.words < 2 {
        return false;
    }
    let first = if opcode_of(word(0)) == Some(opcode::PRED_EXEC) {
        2
    } else {
        0
    };
    if u64::from(buffer.words) < first + 7 || opcode_of(word(first)) != Some(opcode::WAIT_REG_MEM) {
        return false;
    }
    let how = word(first + 1);
    let at = u64::from(word(first + 2) & !3) | u64::from(word(first + 3)) << 32;
    let (reference, mask) = (word(first + 4), word(first + 5));
    how & 7 == EQUAL && how & IN_MEMORY != 0 && machine.load_u32(at) & mask != reference
}

fn opcode_of(header: u32) -> Option<u32> {
    (header >> 30 == 3).then_some(header >> 8 & 0xff)
}

/// The queue and packet that issued the commands.
#[derive(Debug)]
pub struct Issuer {
    /// Number of the queue.
    pub queue: u32,
    /// Address of its ring, for the log.
    pub ring: u64,
    /// Index of the packet.
    pub index: u64,
    /// The queue's `COMPUTE_PERFCOUNT_ENABLE`.
    pub enabled: bool,
}

impl Pmu {
    /// Executes a buffer's commands, one XCC after the other. Logs each access to a register, then
    /// the buffer.
    pub fn execute(&self, machine: &impl Machine, issuer: &mut Issuer, buffer: Buffer) {
        let words: Vec<u32> = (0..u64::from(buffer.words))
            .map(|n| machine.load_u32(buffer.at + 4 * n))
            .collect();
        let mut device = self.lock();
        let mut done = Pm4 {
            ring: issuer.ring,
            index: issuer.index,
            at: buffer.at,
            words: buffer.words,
            ..Pm4::default()
        };
        let now = machine.now();
        for xcc in 0..device.xccs.len() {
            let mut run = Run {
                machine,
                device: &mut device,
                issuer,
                done: &mut done,
                xcc,
                now,
                returned: 0,
            };
            run.all(&words);
        }
        done.enabled = issuer.enabled;
        machine.log(issuer.queue, &Event::Pm4(done));
    }
}

struct Run<'a, M> {
    machine: &'a M,
    device: &'a mut Device,
    issuer: &'a mut Issuer,
    done: &'a mut Pm4,
    xcc: usize,
    now: u64,
    returned: u64,
}

impl<M: Machine> Run<'_, M> {
    fn all(&mut self, words: &[u32]) {
        let mut at = 0;
        while let Some(header) = words.get(at) {
            let length = (header >> 16 & 0x3fff) as usize + 1;
            let body = words.get(at + 1..at + 1 + length);
            let (Some(opcode), Some(body)) = (opcode_of(*header), body) else {
                // It is not a command, or the buffer's end cuts it off. Nothing after it can be
                // found.
                self.done.unknown = *header;
                return;
            };
            at += 1 + length;
            match opcode {
                opcode::PRED_EXEC => {
                    if body[0] >> 24 >> self.xcc & 1 == 0 {
                        at += (body[0] & 0x3fff) as usize;
                    }
                }
                opcode::SET_UCONFIG_REG => self.set(UCONFIG, body),
                opcode::SET_SH_REG => self.set(SH, body),
                opcode::COPY_DATA if length >= 5 => self.copy(body),
                opcode::ATOMIC_MEM if length >= 8 && body[0] & 0x7f == SWAP_64 => {
                    let (at, to) = (double(body, 1), double(body, 3));
                    self.returned = swap(self.machine, at, to);
                }
                opcode::DMA_DATA if length >= 6 => {
                    let bytes = u64::from(body[5] & 0x3ff_ffff);
                    self.machine.copy(double(body, 3), double(body, 1), bytes);
                }
                opcode::WRITE_DATA if length >= 4 => {
                    for (n, value) in (0..).zip(&body[3..]) {
                        self.machine.store_u32(double(body, 1) + 4 * n, *value);
                    }
                }
                // `has_to_wait` has seen that it holds.
                opcode::WAIT_REG_MEM => {}
                // A queue's kernels run one after another here, so those before this packet have
                // ended. Memory is coherent.
                opcode::EVENT_WRITE | opcode::ACQUIRE_MEM | opcode::NOP => {}
                _ => self.done.unknown = *header,
            }
        }
    }

    /// Writes consecutive registers, starting with one.
    fn set(&mut self, base: u32, body: &[u32]) {
        for (register, value) in (base + (body[0] & 0xffff)..).zip(&body[1..]) {
            self.write(register, *value);
        }
    }

    fn write(&mut self, register: u32, value: u32) {
        let unit = self.device.xccs[self.xcc].index;
        self.log(true, register, unit, value, 0);
        match register {
            GRBM_GFX_INDEX => self.device.xccs[self.xcc].index = value,
            COMPUTE_PERFCOUNT_ENABLE => self.issuer.enabled = value & 1 != 0,
            CP_PERFMON_CNTL => {
                let queue = self.issuer.queue;
                let over = self.device.control(self.xcc, queue, value, self.now);
                if self.xcc == 0 {
                    self.done.control.push(value);
                }
                self.done.over = self.done.over.or(over);
            }
            _ => {
                let registers = &mut self.device.xccs[self.xcc].registers;
                registers.set(register, Unit::of(unit), value);
                let write = (register, Unit::of(unit), value);
                let traced = &mut self.device.xccs[self.xcc].traced;
                for trace in traced.write(self.machine, self.xcc as u32, write, self.now) {
                    let (ring, index) = (self.issuer.ring, self.issuer.index);
                    let event = Event::Trace(Trace {
                        ring,
                        index,
                        ..trace
                    });
                    self.machine.log(self.issuer.queue, &event);
                }
            }
        }
    }

    fn copy(&mut self, body: &[u32]) {
        let (from, to) = (body[0] & 0xf, body[0] >> 8 & 0xf);
        let address = |n: usize| u64::from(body[n]) | u64::from(body[n + 1]) << 32;
        let (src, dst) = (address(1), address(3));
        let halves = if body[0] >> 16 & 1 == 1 { 2 } else { 1 };
        for half in 0..halves {
            let register = |base: u64| (base as u32).wrapping_add(half);
            let memory = |base: u64| base + 4 * u64::from(half);
            let value = match from {
                source::REGISTER | source::COUNTER => self.device.read(self.xcc, register(src)),
                source::MEMORY | source::L2 => self.machine.load_u32(memory(src)),
                source::IMMEDIATE => body[1 + half as usize],
                source::RETURNED => (self.returned >> (32 * half)) as u32,
                source::CLOCK => (self.now >> (32 * half)) as u32,
                _ => {
                    self.done.unknown = body[0];
                    return;
                }
            };
            match to {
                destination::REGISTER | destination::COUNTER => self.write(register(dst), value),
                destination::L2 | destination::MEMORY => {
                    self.machine.store_u32(memory(dst), value);
                    if matches!(from, source::REGISTER | source::COUNTER) {
                        self.done.reads += 1;
                        let index = self.device.xccs[self.xcc].index;
                        self.log(false, register(src), index, value, memory(dst));
                    }
                }
                _ => {
                    self.done.unknown = body[0];
                    return;
                }
            }
        }
    }

    fn log(&self, write: bool, register: u32, unit: u32, value: u32, at: u64) {
        let access = Register {
            ring: self.issuer.ring,
            index: self.issuer.index,
            xcc: self.xcc as u32,
            write,
            register,
            unit,
            value,
            at,
        };
        self.machine
            .log(self.issuer.queue, &Event::Register(access));
    }
}

/// Returns 64 bits of a command, low word first.
fn double(body: &[u32], n: usize) -> u64 {
    u64::from(body[n]) | u64::from(body[n + 1]) << 32
}

/// Replaces 64 bits of memory. Returns what was there.
fn swap(machine: &impl Machine, at: u64, to: u64) -> u64 {
    loop {
        let before = machine.load_u64(at);
        if machine.swap_u64(at, before, to) {
            return before;
        }
    }
}
