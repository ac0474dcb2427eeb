//! The interface of what makes templates.

use crate::helper::Error;
use midair_counters::Template;
use midair_counters::wire::Question;

/// Something that has AMD's library loaded, here or in another process.
pub trait Maker {
    /// Makes the template of a counter group.
    ///
    /// # Errors
    /// See [`Error`].
    fn template(&mut self, question: &Question) -> Result<Template, Error>;
}
