//! Thread traces: what the shader engines write into the buffers that AMD's commands give them.
//!
//! **The rule, with which tests compare.** An engine traces from the write that sets [`ON`] in
//! `SQ_THREAD_TRACE_MODE` to the one that clears it. It writes blocks of 32 bytes, one after another:
//!
//! * `USER`: each write to a register of user data (code objects, times).
//! * `WAVE`: for a kernel that starts and ends meanwhile, on any queue, one block for each wave on the
//!   engine, when the kernel ends, and behind each wave of the compute unit that
//!   `SQ_THREAD_TRACE_MASK` names ([`Traced::detail`] times) one with its steps. The waves of that
//!   unit come first. Where waves run is in [`super::rules`].
//!
//! A block has the words tag, three of its own, the wave (or 0), the step (or 0), engine and XCC, and the
//! block's number. A block that finds no room is not written, and the status says "full".
//!
//! As on the device there is one trace for all queues: another start replaces it.

use super::Work;
use super::gpu::Gpu;
use super::registers::Unit;
use super::rules::Rules;
use crate::log::{Dispatch, Trace};
use crate::machine::Machine;

/// Registers of gfx9 (source: decoded from packets of AMD's library, `docs/sources.md#att`).
pub mod register {
    /// The buffer's address in pages of 4096 bytes.
    pub const BASE: u32 = 0xc330;
    /// The buffer's size in such pages.
    pub const SIZE: u32 = 0xc331;
    /// Bits 0-4: the compute unit.
    pub const MASK: u32 = 0xc332;
    /// Bit 31: start at the buffer's first byte.
    pub const CTRL: u32 = 0xc335;
    /// Bit 21: trace.
    pub const MODE: u32 = 0xc336;
    /// The high half of the address.
    pub const BASE_HIGH: u32 = 0xc337;
    /// How many blocks were written.
    pub const WRITTEN: u32 = 0xc339;
    /// Bit 31: the buffer is full.
    pub const STATUS: u32 = 0xc33a;
    /// How many blocks there were.
    pub const COUNTER: u32 = 0xc33c;
    /// Words for the trace.
    pub const USER_2: u32 = 0xc342;
    /// The same.
    pub const USER_3: u32 = 0xc343;
}

/// The bit of `MODE` that has an engine trace.
pub const ON: u32 = 1 << 21;
const RESET: u32 = 1 << 31;
const FULL: u32 = 1 << 31;
const PAGE: u64 = 4096;
/// Bytes of a block.
pub const BLOCK: u64 = 32;
/// Tags of blocks.
pub const USER: u32 = u32::from_le_bytes(*b"USER");
/// See [`USER`].
pub const WAVE: u32 = u32::from_le_bytes(*b"WAVE");

/// The engines of an XCC.
#[derive(Debug, Default)]
pub(super) struct Traced {
    engines: Vec<Engine>,
    /// How many blocks tell of the steps of a wave.
    detail: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Engine {
    base: u64,
    pages: u32,
    unit: u32,
    /// Since when it traces.
    since: Option<u64>,
    written: u64,
    all: u64,
}

impl Engine {
    fn is_full(&self) -> bool {
        self.all > self.written
    }

    fn put(&mut self, machine: &impl Machine, (tag, own): (u32, [u32; 3]), rest: [u32; 3]) {
        let at = self.written * BLOCK;
        let was_full = self.is_full();
        self.all += 1;
        if was_full || at + BLOCK > u64::from(self.pages) * PAGE {
            return;
        }
        let [wave, step, place] = rest;
        let words = [
            tag,
            own[0],
            own[1],
            own[2],
            wave,
            step,
            place,
            self.written as u32,
        ];
        for (n, word) in (0..).zip(words) {
            machine.store_u32(self.base + at + 4 * n, word);
        }
        self.written += 1;
    }
}

impl Traced {
    pub(super) fn new(gpu: &Gpu, detail: u32) -> Traced {
        Traced {
            engines: vec![Engine::default(); gpu.engines_of_xcc() as usize],
            detail,
        }
    }

    fn named(&mut self, unit: Unit) -> impl Iterator<Item = (u32, &mut Engine)> {
        let is_named = move |engine: u32| unit.engine.is_none_or(|named| named == engine);
        (0..)
            .zip(&mut self.engines)
            .filter(move |(engine, _)| is_named(*engine))
    }

    /// Takes a write to a register. Returns the traces that it ends.
    pub(super) fn write(
        &mut self,
        machine: &impl Machine,
        xcc: u32,
        (register, unit, value): (u32, Unit, u32),
        now: u64,
    ) -> Vec<Trace> {
        let mut ended = Vec::new();
        for (number, engine) in self.named(unit) {
            match register {
                register::BASE => {
                    engine.base = engine.base >> 44 << 44 | u64::from(value) << 12;
                }
                register::BASE_HIGH => {
                    engine.base = engine.base & ((1 << 44) - 1) | u64::from(value & 0xf) << 44;
                }
                register::SIZE => engine.pages = value & 0x3f_ffff,
                register::MASK => engine.unit = value & 0x1f,
                register::CTRL if value & RESET != 0 => (engine.written, engine.all) = (0, 0),
                register::MODE if value & ON != 0 => {
                    engine.since.get_or_insert(now);
                }
                register::MODE if engine.since.take().is_some() => ended.push(Trace {
                    xcc,
                    engine: number,
                    base: engine.base,
                    bytes: engine.written * BLOCK,
                    full: engine.is_full(),
                    hash: hash(machine, engine.base, engine.written * BLOCK),
                    ..Trace::default()
                }),
                register::USER_2 | register::USER_3 if engine.since.is_some() => {
                    let place = number | xcc << 8;
                    engine.put(machine, (USER, [register, value, 0]), [0, 0, place]);
                }
                _ => {}
            }
        }
        ended
    }

    /// Returns what a read of a register gives, if it is one of the trace's.
    pub(super) fn read(&self, register: u32, unit: Unit) -> Option<u32> {
        let engine = self.engines.get(unit.engine.unwrap_or(0) as usize)?;
        match register {
            register::WRITTEN => Some(engine.written as u32),
            register::COUNTER => Some(engine.all as u32),
            register::STATUS => Some(if engine.is_full() { FULL } else { 0 }),
            _ => None,
        }
    }

    /// Writes the blocks of a kernel that ends.
    pub(super) fn ends(
        &mut self,
        machine: &impl Machine,
        rules: &Rules,
        xcc: u32,
        (dispatch, work): (&Dispatch, &Work),
    ) {
        let detail = self.detail;
        for (number, engine) in (0..).zip(&mut self.engines) {
            if engine
                .since
                .is_none_or(|since| since > dispatch.packet.start)
            {
                continue;
            }
            let object = dispatch.kernel_object;
            let own = [
                object as u32,
                (object >> 32) as u32,
                dispatch.packet.index as u32,
            ];
            let all = rules.waves_on(work, xcc, number, None);
            let detailed = rules.waves_on(work, xcc, number, Some(engine.unit));
            for wave in 0..all {
                let steps = if wave < detailed { detail } else { 0 };
                for step in 0..=steps {
                    let rest = [wave as u32, step, number | xcc << 8];
                    engine.put(machine, (WAVE, own), rest);
                }
            }
        }
    }
}

/// Returns the FNV-1a hash of memory.
fn hash(machine: &impl Machine, at: u64, bytes: u64) -> u64 {
    let words = (0..bytes / 4).map(|n| machine.load_u32(at + 4 * n));
    hash_of(words.flat_map(u32::to_le_bytes))
}

/// Returns the FNV-1a hash of bytes, as the log has it.
pub fn hash_of(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
