//! What the driver offers for samples of program counters (`docs/sources.md#samples`).

use super::{Kfd, ioctl, request};
use std::io;

/// From this version of the driver's interface on, it samples (AMD's builds of amdgpu).
pub const SAMPLES_SINCE: (u32, u32) = (1, 16);
/// `AMDKFD_IOC_PC_SAMPLE` in AMD's builds.
const PC_SAMPLE: u32 = request(0x85, size_of::<Arguments>());
/// The flag for all that a GPU offers, even while it samples.
const ALL: u32 = 1;
/// The most settings that a GPU has.
const MOST: usize = 16;

/// A way to sample, in the driver's numbers.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Offer {
    /// The interval in force; 0 for an offer.
    pub interval: u64,
    /// The shortest interval.
    pub least: u64,
    /// The longest one.
    pub most: u64,
    /// Bit 0: the interval is a power of two.
    pub flags: u64,
    /// 1: host traps; 2: the device itself.
    pub method: u32,
    /// 0: microseconds; 1: cycles; 2: instructions.
    pub unit: u32,
}

#[repr(C)]
#[derive(Debug, Default)]
struct Arguments {
    offers: u64,
    count: u32,
    operation: u32,
    gpu: u32,
    id: u32,
    flags: u32,
    version: u32,
}

const _: () = assert!(size_of::<Arguments>() == 32 && size_of::<Offer>() == 40);

impl Kfd {
    /// Returns how a GPU (its id in the topology) is sampled; or with `in_force`, the setting of the process
    /// that samples it now, and everything that it offers if none does.
    ///
    /// # Errors
    /// The kernel's: EBUSY with a debugger on this process; EINVAL or ENOTTY where the driver has no such
    /// request.
    pub fn samples(&self, gpu_id: u32, in_force: bool) -> io::Result<Vec<Offer>> {
        let mut offers = vec![Offer::default(); MOST];
        let mut arguments = Arguments {
            offers: offers.as_mut_ptr().expose_provenance() as u64,
            count: MOST as u32,
            gpu: gpu_id,
            flags: if in_force { 0 } else { ALL },
            ..Arguments::default()
        };
        // SAFETY: the argument is the struct of this request; the driver writes as many offers as it says
        // there is room for, and they outlive the call.
        unsafe { ioctl(&self.0, PC_SAMPLE, &mut arguments)? };
        offers.truncate(MOST.min(arguments.count as usize));
        Ok(offers)
    }
}
