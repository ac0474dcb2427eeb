//! Names of kinds, operations and statuses, as AMD's tool prints them.

use std::ffi::c_char;
use std::ops::Deref;

/// A name that both Rust and C can read: the text is followed by a NUL.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name(&'static str);

impl Name {
    /// Makes a name from `text`, which must end with its only NUL. This is checked at compile time
    /// for constants.
    pub(crate) const fn from_terminated(text: &'static str) -> Name {
        assert!(
            !text.is_empty() && text.as_bytes()[text.len() - 1] == 0,
            "a name ends with NUL"
        );
        Name(text)
    }
    /// Returns the text.
    pub const fn as_str(self) -> &'static str {
        self.0.split_at(self.0.len() - 1).0
    }
    /// Returns the text for C; it is valid forever.
    pub const fn as_ptr(self) -> *const c_char {
        self.0.as_ptr().cast()
    }
}

impl Deref for Name {
    type Target = str;
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_str().fmt(f)
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_str().fmt(f)
    }
}

const fn name(text: &'static str) -> Name {
    Name::from_terminated(text)
}

/// A tracing kind.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// Name without prefix.
    pub name: Name,
    /// AMD's operations by id.
    pub operations: &'static [Name],
    /// Operations that AMD's enum does not have yet; their ids follow `operations.len()`.
    pub added: &'static [Name],
}

impl Kind {
    /// Returns the name of an operation, of AMD's or of an added one.
    pub fn operation(&self, id: usize) -> Option<Name> {
        self.operations.iter().chain(self.added).nth(id).copied()
    }
}

/// How many of [`BUFFER_KINDS`] AMD's SDK 1.0 to 1.2 has, and lists in its tool's files.
pub const FIRST_BUFFER_KINDS: usize = 33;
/// The same of [`CALLBACK_KINDS`].
pub const FIRST_CALLBACK_KINDS: usize = 22;

include!(concat!(env!("OUT_DIR"), "/names.rs"));
