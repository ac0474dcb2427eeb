//! The memory of the modelled machine.
//!
//! ROCr maps all memory that the device can reach a second time, at one base (the aperture). An
//! address below the aperture's size is an offset into it; any other is an address of the process.
//! Because of the aperture, a packet that refers to freed memory still reads something instead of
//! faulting, as on a device with its own page tables.

use std::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

#[derive(Default)]
pub(super) struct Aperture {
    base: AtomicPtr<u8>,
    bytes: AtomicU64,
}

macro_rules! access {
    ($load:ident, $store:ident, $int:ty, $atomic:ty) => {
        pub(super) fn $load(&self, at: u64) -> $int {
            let at = self.host(at).cast::<$int>();
            if at.is_aligned() {
                // SAFETY: it is aligned (checked). It is mapped, since it comes from a queue,
                // packet or signal of the runtime, which has to keep them as long as the device may
                // use them. It is shared with the application, so the access is atomic.
                unsafe { <$atomic>::from_ptr(at) }.load(Ordering::Acquire)
            } else {
                // SAFETY: it is mapped, for the reason given above. An unaligned read needs no
                // alignment.
                let value = unsafe { at.read_unaligned() };
                fence(Ordering::Acquire);
                value
            }
        }
        pub(super) fn $store(&self, at: u64, value: $int) {
            let at = self.host(at).cast::<$int>();
            if at.is_aligned() {
                // SAFETY: as in the load above. The runtime asked the device to write here.
                unsafe { <$atomic>::from_ptr(at) }.store(value, Ordering::Release);
            } else {
                fence(Ordering::Release);
                // SAFETY: it is mapped, for the reason given above. An unaligned write needs no
                // alignment.
                unsafe { at.write_unaligned(value) };
            }
        }
    };
}

impl Aperture {
    pub(super) fn set(&self, base: *mut u8, bytes: u64) {
        self.base.store(base, Ordering::Release);
        self.bytes.store(bytes, Ordering::Release);
    }

    /// Returns whether an address is reached through the aperture, and so not through the program's
    /// own mapping.
    pub(super) fn holds(&self, at: u64) -> bool {
        at < self.bytes.load(Ordering::Acquire)
    }

    /// Returns the address at which this process sees a device address.
    fn host(&self, at: u64) -> *mut u8 {
        if at < self.bytes.load(Ordering::Acquire) {
            self.base.load(Ordering::Acquire).wrapping_add(at as usize)
        } else {
            std::ptr::with_exposed_provenance_mut(at as usize)
        }
    }

    access!(load_u16, store_u16, u16, AtomicU16);
    access!(load_u32, store_u32, u32, AtomicU32);
    access!(load_u64, store_u64, u64, AtomicU64);

    pub(super) fn add_u64(&self, at: u64, value: u64) {
        let host = self.host(at).cast::<u64>();
        if host.is_aligned() {
            // SAFETY: it is aligned (checked), and mapped and shared as in the loads above.
            unsafe { AtomicU64::from_ptr(host) }.fetch_add(value, Ordering::SeqCst);
        } else {
            // A device cannot do this atomically either.
            self.store_u64(at, self.load_u64(at).wrapping_add(value));
        }
    }

    pub(super) fn swap_u64(&self, at: u64, from: u64, to: u64) -> bool {
        let host = self.host(at).cast::<u64>();
        if !host.is_aligned() {
            return false;
        }
        // SAFETY: it is aligned (checked), and mapped and shared as in the loads above.
        unsafe { AtomicU64::from_ptr(host) }
            .compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    pub(super) fn increment_u32(&self, at: u64) -> u32 {
        let host = self.host(at).cast::<u32>();
        if !host.is_aligned() {
            return 0;
        }
        // SAFETY: it is aligned (checked), and mapped and shared as in the loads above.
        unsafe { AtomicU32::from_ptr(host) }.fetch_add(1, Ordering::SeqCst)
    }

    pub(super) fn copy(&self, to: u64, from: u64, bytes: u64) {
        // SAFETY: the application named both ranges in a copy packet and keeps them mapped until it
        // completes. `copy` allows overlap. Races with the application are its own fault, as on a
        // device.
        unsafe { std::ptr::copy(self.host(from), self.host(to), bytes as usize) };
    }

    pub(super) fn fill(&self, to: u64, pattern: &[u8], bytes: u64) {
        let to = self.host(to);
        for (n, byte) in pattern.iter().cycle().take(bytes as usize).enumerate() {
            // SAFETY: the byte is in the range that the application named in a fill packet and
            // keeps mapped until it completes.
            unsafe { to.add(n).write(*byte) };
        }
    }
}
