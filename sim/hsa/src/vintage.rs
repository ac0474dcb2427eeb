//! The version of the modelled runtime, which shows in the size of the table of AMD's extensions.
//!
//! | `SIM_HSA_TABLES` | `AmdExtTable` | runtime |
//! |---|---|---|
//! | not set | 624 bytes, step 8 | ROCm 7.2 |
//! | `rocm10` | 760 bytes, step 20 | the newest whose entries are known: with `hsa_amd_queue_create` |
//! | `later` | 776 bytes, step 21 | one that has two more entries than are known |
//!
//! The words after this size are not part of the table. They are filled with values that are not
//! addresses, so that code which reads an entry there and uses it is detected.
//!
//! A closed runtime takes `SIM_HSA_CLOSED_ANSWER` milliseconds to answer that it is closed.

use crate::tables::ALL;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// The value of the words after the end of a table.
const NOT_AN_ENTRY: usize = 0x5157_dead_0000_0001;

/// Returns size and step version.
fn wanted() -> (usize, u32) {
    match std::env::var("SIM_HSA_TABLES").as_deref() {
        Ok("rocm10") => (760, 20),
        Ok("later") => (776, 21),
        _ => (624, 8),
    }
}

/// Waits as long as a closed runtime takes to answer.
pub fn answer_slowly() {
    let asked = std::env::var("SIM_HSA_CLOSED_ANSWER");
    if let Some(time) = asked.ok().and_then(|text| text.parse().ok()) {
        std::thread::sleep(Duration::from_millis(time));
    }
}

/// Chooses the version. The loader runs this when the library is loaded, before anything can look.
extern "C" fn choose() {
    let (size, step) = wanted();
    let [_, size_there, step_there, _] = &ALL.amd_ext.header;
    size_there.store(size as u32, SeqCst);
    step_there.store(step, SeqCst);
    for slot in ALL.amd_ext.slots.iter().skip((size - 16) / 8) {
        slot.store(std::ptr::without_provenance_mut(NOT_AN_ENTRY), SeqCst);
    }
}

/// Returns whether the table has `hsa_amd_queue_create`.
pub fn makes_queues_by_descriptor() -> bool {
    let [_, size, ..] = &ALL.amd_ext.header;
    size.load(SeqCst) >= 712
}

#[used]
#[unsafe(link_section = ".init_array")]
static CHOOSE: extern "C" fn() = choose;
