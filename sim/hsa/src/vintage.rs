//! How old the runtime is that is stood in for: the size that the table of AMD's extensions says.
//!
//! | `SIM_HSA_TABLES` | `AmdExtTable` | runtime |
//! |---|---|---|
//! | not set | 624 bytes, step 8 | ROCm 7.2 |
//! | `rocm10` | 760 bytes, step 20 | the newest whose entries are known: with `hsa_amd_queue_create` |
//! | `later` | 776 bytes, step 21 | one that has two entries more than anybody knows |
//!
//! What lies past the size is no part of the table: it is filled with words that are no addresses,
//! so that whoever reads an entry there and believes it is found out.
//!
//! A closed runtime takes `SIM_HSA_CLOSED_ANSWER` milliseconds to say that it is closed.

use crate::tables::ALL;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// What is past the end of a table.
const NOT_AN_ENTRY: usize = 0x5157_dead_0000_0001;

/// Size and step version.
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

/// Before anybody can look: the loader runs it when the library is loaded.
extern "C" fn choose() {
    let (size, step) = wanted();
    let [_, size_there, step_there, _] = &ALL.amd_ext.header;
    size_there.store(size as u32, SeqCst);
    step_there.store(step, SeqCst);
    for slot in ALL.amd_ext.slots.iter().skip((size - 16) / 8) {
        slot.store(std::ptr::without_provenance_mut(NOT_AN_ENTRY), SeqCst);
    }
}

/// Whether the table has `hsa_amd_queue_create`.
pub fn makes_queues_by_descriptor() -> bool {
    let [_, size, ..] = &ALL.amd_ext.header;
    size.load(SeqCst) >= 712
}

#[used]
#[unsafe(link_section = ".init_array")]
static CHOOSE: extern "C" fn() = choose;
