//! Who makes templates.

use crate::helper::Error;
use midair_counters::Template;
use midair_counters::wire::Question;

/// AMD's library, wherever it is loaded.
pub trait Maker {
    /// Makes a group's template.
    ///
    /// # Errors
    /// See [`Error`].
    fn template(&mut self, question: &Question) -> Result<Template, Error>;
}
