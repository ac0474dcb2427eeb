//! The progress of the search for tools.

use midair_lockfree::word_enum;

word_enum! {
    /// The search for tools, which happens once.
    pub(crate) enum Search else Done {
        /// Not started.
        NotYet = 0,
        /// A thread is searching.
        UnderWay = 1,
        /// It has ended.
        Done = 2,
    }
}
