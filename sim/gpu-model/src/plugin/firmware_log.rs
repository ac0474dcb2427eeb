//! The log of kernels' starts and ends that the firmware of newer GPUs writes, and that AMD's
//! kernel driver maps into a reader (source: `docs/sources.md#kfd`).
//!
//! For each node there is a file `PID-NODE` in the directory that `MODEL_FIRMWARE_LOG` names. It is
//! laid out like the driver's memory: two rings of 20-byte records, a 64-bit write index for each,
//! and a 64-bit read index for each, which only older readers write. The clock ticks at 100 MHz. A
//! queue writes into the ring with its number modulo 2, and its doorbell is at 256 + 8 * (number
//! modulo 1000). Readers never block writing: an older record is overwritten.

use super::{QUEUES_PER_NODE, give_up};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// How many doorbells a device has.
const DOORBELLS: u32 = 1000;
/// The number of rings.
const REGIONS: u64 = 2;
/// Bytes of a record.
const RECORD: u64 = 20;
/// The length of a tick in nanoseconds.
const TICK: u64 = 10;

/// The logs of this process.
pub(super) struct FirmwareLog {
    dir: PathBuf,
    slots: u64,
    counts: bool,
    nodes: Mutex<HashMap<u32, Node>>,
}

/// The log of one GPU.
struct Node {
    file: File,
    written: [u64; REGIONS as usize],
}

impl FirmwareLog {
    pub(super) fn new(dir: &str, slots: u64, counts: bool) -> FirmwareLog {
        if !slots.is_power_of_two() {
            give_up("MODEL_FIRMWARE_SLOTS is no power of two");
        }
        FirmwareLog {
            dir: Path::new(dir).to_owned(),
            slots,
            counts,
            nodes: Mutex::default(),
        }
    }

    fn with<T>(&self, queue: u32, act: impl FnOnce(&mut Node) -> T) -> T {
        let node = queue / QUEUES_PER_NODE;
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        act(nodes.entry(node).or_insert_with(|| {
            let path = self.dir.join(format!("{}-{node}", std::process::id()));
            let bytes = REGIONS * (self.slots * RECORD + 16);
            let made = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(&path)
                .and_then(|file| {
                    file.set_len(bytes.next_multiple_of(4096))?;
                    Ok(file)
                });
            let file =
                made.unwrap_or_else(|error| give_up(&format!("{}: {error}", path.display())));
            Node {
                file,
                written: [0; REGIONS as usize],
            }
        }))
    }

    /// Creates the log of a queue's node, because a queue is created.
    pub(super) fn begin(&self, queue: u32) {
        self.with(queue, |_| ());
    }

    /// Writes a record, then the index.
    pub(super) fn write(&self, queue: u32, index: u64, ends: bool, time: u64) {
        let region = u64::from(queue) % REGIONS;
        let doorbell = 256 + 8 * (queue % DOORBELLS);
        let ticks = time / TICK;
        let words = [
            ticks as u32,
            (ticks >> 32) as u32,
            1 + u32::from(ends),
            index as u32,
            doorbell,
        ];
        let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        self.with(queue, |node| {
            let Some(written) = node.written.get_mut(region as usize) else {
                return;
            };
            let slot = region * self.slots + *written % self.slots;
            *written += 1;
            let shown = if self.counts {
                *written
            } else {
                *written % self.slots
            };
            let indices = REGIONS * self.slots * RECORD;
            let put = node
                .file
                .write_all_at(&bytes, slot * RECORD)
                .and_then(|()| {
                    node.file
                        .write_all_at(&shown.to_le_bytes(), indices + 8 * region)
                });
            put.unwrap_or_else(|error| give_up(&format!("the firmware's log: {error}")));
        });
    }
}
