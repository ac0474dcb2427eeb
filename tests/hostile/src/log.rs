//! A dispatch log of the GPU driver.

use midair_ptrace::kfd::StreamInfo;
use midair_session::read_dispatch_log;

/// The size of a log in these tests.
const BYTES: usize = 4096;

/// Reads a log from a description, as the kernel would give it, and from three looks at the log's
/// memory, of which the firmware may write every byte.
pub fn dispatch_log(bytes: &[u8]) {
    let word = |at: usize| {
        let four = bytes.get(at..).and_then(|rest| rest.first_chunk());
        four.map_or(0, |four| u32::from_le_bytes(*four))
    };
    let wide = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
    let free = StreamInfo {
        version: word(0) % 8,
        record_bytes: word(4) % 64,
        regions: word(8),
        region_records: word(12),
        buffer_bytes: wide(16),
        map_bytes: wide(24),
        records_at: wide(32),
        writes_at: wide(40),
        reads_at: (word(48) & 1 == 1).then(|| wide(52)),
        gpu_id: 1,
        process: 2,
    };
    // A valid description, so that the rings are reached.
    let (regions, region_records) = (1 + word(8) % 4, 2 << (word(12) % 4));
    let rings = u64::from(regions * region_records) * 20;
    let sound = StreamInfo {
        version: 4,
        record_bytes: 20,
        regions,
        region_records,
        buffer_bytes: rings,
        map_bytes: BYTES as u64,
        records_at: 64,
        writes_at: 0,
        reads_at: None,
        ..free
    };
    let mut looks = [[0_u8; BYTES]; 3];
    let memory = looks
        .iter_mut()
        .flatten()
        .zip(bytes.get(64..).unwrap_or_default());
    memory.for_each(|(there, byte)| *there = *byte);
    let looks: Vec<&[u8]> = looks.iter().map(|look| &look[..]).collect();
    let readings = [
        (wide(16), wide(24)),
        (wide(32), wide(40)),
        (wide(40), wide(52)),
    ];
    super::used(read_dispatch_log(&free, &looks, &readings));
    let Some((complete, _lost)) = read_dispatch_log(&sound, &looks, &readings) else {
        panic!("a description that fits is refused: {sound:?}");
    };
    // Two looks follow the first one, and each finds at most as many records as there are slots.
    assert!(complete as u64 <= 2 * rings / 20);
}
