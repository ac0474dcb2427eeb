//! What a runtime of OpenMP has made of us.

use midair_lockfree::word_enum;

word_enum! {
    /// How far the runtime's use of us is.
    pub(crate) enum Use else Never {
        /// No runtime has asked.
        Never = 0,
        /// We are the runtime's tool.
        Traced = 1,
        /// The runtime has ended.
        Ended = 2,
    }
}
