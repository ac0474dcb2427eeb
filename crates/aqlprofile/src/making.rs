//! AMD's packet library in the calling process, and templates of what it makes.
//!
//! The helper process has it, and so has a program that was started under the profiler to count: the
//! library is in such a process with AMD's tool, too ([`Loaded`], AMD-131). An attacher has not, nor
//! a process that is attached to.

mod arena;
mod library;
mod make;

pub use library::Library;
pub use make::template;

use crate::helper::Error;
use crate::maker::Maker;
use midair_counters::Template;
use midair_counters::wire::{Answer, Question};
use std::ffi::OsString;

/// The library in this process, loaded with the first question.
pub struct Loaded {
    names: Vec<OsString>,
    library: Option<Result<Library, String>>,
}

impl Loaded {
    /// The first of these that can be loaded will be used ([`fn@crate::libraries`]).
    pub fn new(names: Vec<OsString>) -> Loaded {
        Loaded {
            names,
            library: None,
        }
    }
}

impl Maker for Loaded {
    fn template(&mut self, question: &Question) -> Result<Template, Error> {
        let names = &self.names;
        let library = self.library.get_or_insert_with(|| Library::open(names));
        let library = library
            .as_ref()
            .map_err(|why| Error::Missing(why.clone()))?;
        match make::template(library, question) {
            Answer::Made(template) => Ok(template),
            Answer::Missing(why) => Err(Error::Missing(why)),
            Answer::Refused { code, what } => Err(Error::Refused { what, code }),
        }
    }
}
