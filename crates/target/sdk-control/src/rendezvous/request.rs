//! What a thread asks the worker to hook.

use midair_lockfree::word_enum;

word_enum! {
    /// The tables to hook without waiting for the next search of the loaded libraries.
    pub(crate) enum TableRequest else None {
        /// None.
        None = 0,
        /// All tables that exist.
        Tables = 1,
        /// The same, while the HSA runtime registers. It is inside `hsa_init` and has already
        /// loaded its own tools, so its slots can be hooked.
        Hsa = 2,
    }
}
