//! Samples of program counters, written as ROCr's trap handler writes them into the buffers that
//! ROCr allocates on the device (`docs/sources.md#samples`).
//!
//! **The rule, with which tests compare.** While a device samples, each multiple of the interval on
//! its clock at which a kernel runs (after its start, up to its end) samples the first waves of the
//! kernel, up to [`Rule::waves`] of them. Each draws its program counter: the kernel's entry plus an
//! offset, by the weights that `MODEL_SAMPLES` gives for the grid (without any: offset 0). The seed
//! and the queue's number determine the draws. Every sample is in the log.
//!
//! A stochastic sample has type VALU and issues in one case of two; if not, its reason is 1 to 7. One
//! of [`Rule::invalid_one_in`] is invalid, which the log counts by itself.

use crate::engine::signal;
use crate::log::Dispatch;
use crate::machine::Machine;
use std::collections::BTreeMap;

/// Bytes of a sample, and of the header before the two buffers.
const SAMPLE: u64 = 64;
const HEADER: u64 = 64;

/// Fields of the structure that ROCr allocates.
mod field {
    pub const WRITE: u64 = 0;
    pub const SIZE: u64 = 8;
    /// Of buffer 0; buffer 1 has the same at [`NEXT`] behind.
    pub const WRITTEN: u64 = 0x10;
    pub const WATERMARK: u64 = 0x14;
    pub const DONE: u64 = 0x18;
    pub const NEXT: u64 = 0x10;
}

/// Which samples are taken, as the driver was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling {
    /// Address of ROCr's structure.
    pub at: u64,
    /// Stochastic, else by host traps.
    pub stochastic: bool,
    /// Time between two samples of a wave, in ns.
    pub interval: u64,
}

/// What a program counter is drawn from: offsets from the kernel's entry, and weights.
pub type Weights = Vec<(u64, u64)>;

/// The rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Weights of kernels by their grid's x.
    pub kernels: Vec<(u32, Weights)>,
    /// The most waves of a kernel that one moment samples.
    pub waves: u64,
    /// One of so many stochastic samples is invalid (0: none).
    pub invalid_one_in: u64,
}

impl Default for Rule {
    fn default() -> Rule {
        Rule {
            kernels: Vec::new(),
            waves: 4,
            invalid_one_in: 0,
        }
    }
}

impl Rule {
    /// Parses `GRID_X:OFFSET*WEIGHT[+OFFSET*WEIGHT...]`, with decimal numbers.
    pub fn parse_kernel(text: &str) -> Option<(u32, Weights)> {
        let (grid, weights) = text.split_once(':')?;
        let weight = |text: &str| {
            let (offset, weight) = text.split_once('*')?;
            let weight = weight.parse().ok().filter(|weight| *weight > 0)?;
            Some((offset.parse().ok()?, weight))
        };
        let weights = weights
            .split('+')
            .map(weight)
            .collect::<Option<Weights>>()?;
        Some((grid.parse().ok()?, weights))
    }

    fn draw(&self, grid_x: u32, random: u64) -> u64 {
        let Some((_, weights)) = self.kernels.iter().find(|(grid, _)| *grid == grid_x) else {
            return 0;
        };
        let total: u64 = weights.iter().map(|(_, weight)| weight).sum();
        let mut left = random % total.max(1);
        for (offset, weight) in weights {
            if left < *weight {
                return *offset;
            }
            left -= weight;
        }
        0
    }
}

/// What one look at a kernel gave.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Taken {
    /// Offsets from the kernel's entry, and how many valid samples were written there.
    pub offsets: BTreeMap<u64, u64>,
    /// Samples that were written as invalid.
    pub invalid: u64,
    /// Samples that found no room in the device's buffer.
    pub lost: u64,
}

impl Taken {
    /// Returns whether there were none.
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty() && self.invalid == 0 && self.lost == 0
    }
}

/// Samples one running kernel from `from` (not included) up to `to`.
///
/// `slots` are the packets of the queue's ring, `doorbell` is the queue's doorbell. `random` gives
/// random numbers.
pub fn take(
    machine: &impl Machine,
    rule: &Rule,
    sampling: Sampling,
    dispatch: &Dispatch,
    (slots, doorbell): (u64, u64),
    (from, to): (u64, u64),
    mut random: impl FnMut() -> u64,
) -> Taken {
    let mut taken = Taken::default();
    let interval = sampling.interval.max(1);
    let entry = entry_of(machine, dispatch.kernel_object);
    let waves_of_group = u64::from(
        dispatch
            .workgroup
            .iter()
            .map(|n| u32::from(*n))
            .product::<u32>(),
    )
    .div_ceil(64)
    .max(1);
    let groups: u64 = (0..3)
        .map(|n| u64::from(dispatch.grid[n]).div_ceil(u64::from(dispatch.workgroup[n]).max(1)))
        .product();
    let waves = (waves_of_group * groups).min(rule.waves);
    let mut tick = (from / interval + 1) * interval;
    while tick <= to {
        for wave in 0..waves {
            let offset = rule.draw(dispatch.grid[0], random());
            let (data, data1) = if sampling.stochastic {
                stochastic(rule, random(), waves)
            } else {
                (0, 0)
            };
            let packet = (dispatch.packet.index % slots) & 0x1ff_ffff;
            let words = [
                entry + offset,
                u64::MAX,
                // The first dimension only: the model's kernels are not sampled further.
                wave / waves_of_group,
                ((wave % waves_of_group) & 0x3f) << 32,
                // Wave, SIMD and compute unit in turn; queue 1 of pipe 0.
                (wave & 0xf | (wave >> 4 & 3) << 4 | (wave & 0xf) << 8 | 1 << 24) | data << 32,
                data1,
                tick,
                packet | (doorbell >> 3 & 0x3ff) << 32,
            ];
            if !write(machine, sampling.at, words) {
                taken.lost += 1;
            } else if sampling.stochastic && data & 1 == 0 {
                taken.invalid += 1;
            } else {
                *taken.offsets.entry(offset).or_default() += 1;
            }
        }
        tick += interval;
    }
    taken
}

/// Returns the address of a kernel's first instruction.
pub(crate) fn entry_of(machine: &impl Machine, descriptor: u64) -> u64 {
    /// `amd_kernel_code_entry_byte_offset` of the descriptor.
    const ENTRY: u64 = 16;
    descriptor.wrapping_add(machine.load_u64(descriptor + ENTRY))
}

/// Returns DATA and DATA1 of a stochastic sample.
fn stochastic(rule: &Rule, random: u64, waves: u64) -> (u64, u64) {
    let is_valid = rule.invalid_one_in == 0 || !(random >> 32).is_multiple_of(rule.invalid_one_in);
    let issues = random & 1;
    let reason = if issues == 1 { 0 } else { 1 + random / 2 % 7 };
    // Type 0 is VALU; the arbiter's word says that a VALU instruction was issued or stalls.
    let arbiter = if issues == 1 { 1 << 7 } else { 1 << 15 };
    let data = u64::from(is_valid) | issues << 1 | reason << 7 | arbiter << 10;
    (data, waves & 0x3f)
}

/// Writes a sample. Returns whether it found room. As the trap handler: the place is taken first, so
/// that many waves can write at the same time.
fn write(machine: &impl Machine, at: u64, words: [u64; 8]) -> bool {
    let place = fetch_add_u64(machine, at + field::WRITE);
    let (buffer, index) = (place >> 63, place & !(1 << 63));
    let size = u64::from(machine.load_u32(at + field::SIZE));
    if index >= size {
        return false;
    }
    let to = at + HEADER + (buffer * size + index) * SAMPLE;
    for (n, word) in (0..).zip(words) {
        machine.store_u64(to + 8 * n, word);
    }
    let of_buffer = at + buffer * field::NEXT;
    let before = machine.increment_u32(of_buffer + field::WRITTEN);
    if before == machine.load_u32(of_buffer + field::WATERMARK) {
        let done = machine.load_u64(of_buffer + field::DONE);
        signal::set(machine, done, 0);
    }
    true
}

fn fetch_add_u64(machine: &impl Machine, at: u64) -> u64 {
    loop {
        let before = machine.load_u64(at);
        if machine.swap_u64(at, before, before.wrapping_add(1)) {
            return before;
        }
    }
}

#[cfg(test)]
mod tests;
