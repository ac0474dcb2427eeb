//! What a thread asks the worker to hook.

use midair_lockfree::word_enum;

word_enum! {
    /// Which tables are to be hooked without waiting for the next look at the loaded libraries.
    pub(crate) enum TableRequest else None {
        /// None.
        None = 0,
        /// All that are there.
        Tables = 1,
        /// The same, while the HSA runtime registers: it is inside `hsa_init`, behind the loading
        /// of its own tools, so its slots can be hooked.
        Hsa = 2,
    }
}
