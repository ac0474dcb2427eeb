//! Small questions to the processor.

/// Bytes of the standard-format XSAVE area that hold every component of `xstate_bv` and all of the components in `xcr0`,
/// less tile data when the thread has none. The kernel refuses a signal frame whose area is larger than what the thread may
/// use, and a thread that never asked for AMX may not use tile data (source: Intel SDM vol. 1, 13.5; arch/x86 fpu/signal.c).
pub fn xsave_bytes_needed(xcr0: u64, xstate_bv: u64) -> usize {
    /// Tile configuration and tile data.
    const TILES: u64 = 0b11 << 17;
    let wanted = if xstate_bv & (1 << 18) != 0 {
        xcr0
    } else {
        xcr0 & !TILES
    };
    // Legacy area and header are always there.
    let mut bytes = 576_usize;
    for component in 2..63_u32 {
        if wanted & (1 << component) == 0 {
            continue;
        }
        let leaf = std::arch::x86_64::__cpuid_count(0xd, component);
        bytes = bytes.max((leaf.eax as usize).saturating_add(leaf.ebx as usize));
    }
    bytes
}

/// Ticks of the time stamp counter in a millisecond, measured once against the monotonic clock over about 2 ms.
pub fn ticks_per_millisecond() -> u64 {
    use std::sync::OnceLock;
    use std::time::{Duration, Instant};
    static TICKS: OnceLock<u64> = OnceLock::new();
    *TICKS.get_or_init(|| {
        // SAFETY: reading the counter has no effect; x86-64 always has it.
        let read = || unsafe { std::arch::x86_64::_rdtsc() };
        let (began, first) = (Instant::now(), read());
        while began.elapsed() < Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        let (spent, last) = (began.elapsed(), read());
        let micros = u64::try_from(spent.as_micros()).unwrap_or(2000).max(1);
        last.wrapping_sub(first).saturating_mul(1000) / micros
    })
}
