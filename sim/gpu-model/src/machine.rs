//! What the engine needs from the machine around it: memory, a clock, interrupts and a log.

use crate::log::Event;
use crate::pmu::Pmu;
use crate::sampling::Sampling;

/// Memory as packets refer to it, time, interrupts and the log.
///
/// Addresses are those in the packets, which are also those that the application sees. An address
/// that is not mapped is a fault of the application (or of a test), as on a GPU. Implementations
/// may do anything with it except undefined behaviour, as far as they can detect it.
pub trait Machine {
    /// Loads 16 bits, with acquire order.
    fn load_u16(&self, at: u64) -> u16;
    /// Loads 32 bits, with acquire order.
    fn load_u32(&self, at: u64) -> u32;
    /// Loads 64 bits, with acquire order.
    fn load_u64(&self, at: u64) -> u64;
    /// Stores 16 bits, with release order.
    fn store_u16(&self, at: u64, value: u16);
    /// Stores 32 bits, with release order.
    fn store_u32(&self, at: u64, value: u32);
    /// Stores 64 bits, with release order.
    fn store_u64(&self, at: u64, value: u64);
    /// Adds to 64 bits atomically, wrapping.
    fn add_u64(&self, at: u64, value: u64);
    /// Replaces `from` by `to` atomically. Returns false if another value was there.
    fn swap_u64(&self, at: u64, from: u64, to: u64) -> bool;
    /// Adds 1 to 32 bits atomically, wrapping. Returns the value before.
    fn increment_u32(&self, at: u64) -> u32;
    /// Copies bytes; the ranges may overlap.
    fn copy(&self, to: u64, from: u64, bytes: u64);
    /// Sets `bytes` bytes to `pattern`, repeated.
    fn fill(&self, to: u64, pattern: &[u8], bytes: u64);
    /// Returns CLOCK_BOOTTIME in nanoseconds, which is the GPU's clock.
    fn now(&self) -> u64;
    /// Raises the interrupt of an event.
    fn raise(&self, event: u32);
    /// Returns how often queues were remapped. A changed number means that this queue was remapped.
    fn mappings(&self) -> u64 {
        0
    }
    /// Returns how many reads of the ring went over the bus, or `None` where that is not modelled.
    fn bus_reads(&self, _ring: u64) -> Option<u64> {
        None
    }
    /// Returns the device's counters, or `None` where there are none. Then vendor packets with
    /// commands are passed without being executed.
    fn pmu(&self) -> Option<&Pmu> {
        None
    }
    /// Returns which program counters are sampled now, or `None` while none are.
    fn sampling(&self) -> Option<Sampling> {
        None
    }
    /// Writes one record of queue `queue`. The record must have left the process when this returns.
    fn log(&self, queue: u32, event: &Event);
    /// Reports that the kernel of packet `index` of queue `queue` starts or ends at `time`, for the
    /// firmware's own log, if the device has one.
    fn firmware_log(&self, _queue: u32, _index: u64, _ends: bool, _time: u64) {}
}
