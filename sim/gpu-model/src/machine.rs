//! What the engine needs of the machine around it: memory, a clock, interrupts and a log.

use crate::log::Event;
use crate::pmu::Pmu;

/// Memory as packets name it, time, interrupts and the log.
///
/// Addresses are those of the packets, which are also those that the application sees. An address
/// that is not mapped is a fault of the application (or of a test), as it is on a GPU;
/// implementations may do with it what they like short of undefined behaviour where they can tell.
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
    /// Adds to 64 bits as one operation, wrapping.
    fn add_u64(&self, at: u64, value: u64);
    /// Replaces `from` by `to` as one operation; false if something else was there.
    fn swap_u64(&self, at: u64, from: u64, to: u64) -> bool;
    /// Copies bytes; the ranges may overlap.
    fn copy(&self, to: u64, from: u64, bytes: u64);
    /// Sets `bytes` bytes to `pattern`, repeated.
    fn fill(&self, to: u64, pattern: &[u8], bytes: u64);
    /// CLOCK_BOOTTIME in nanoseconds: the GPU's clock.
    fn now(&self) -> u64;
    /// Raises the interrupt of an event.
    fn raise(&self, event: u32);
    /// How often queues were mapped anew: another number than before means that this one was.
    fn mappings(&self) -> u64 {
        0
    }
    /// How many reads of the ring went over the bus; None where that is not modelled.
    fn bus_reads(&self, _ring: u64) -> Option<u64> {
        None
    }
    /// The device's counters; None where there are none, and vendor packets with commands are passed.
    fn pmu(&self) -> Option<&Pmu> {
        None
    }
    /// Writes one record of queue `queue`; it must be out of the process when this returns.
    fn log(&self, queue: u32, event: &Event);
    /// A kernel of packet `index` of queue `queue` begins or ends at `time`: for the firmware's own log,
    /// where the device has one.
    fn firmware_log(&self, _queue: u32, _index: u64, _ends: bool, _time: u64) {}
}
