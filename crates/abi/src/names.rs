//! Names of kinds, operations and statuses, as AMD's tool prints them.

use std::ffi::c_char;
use std::ops::Deref;

/// A name that both Rust and C can read: the text with a NUL behind it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name(&'static str);

impl Name {
    /// `text` must end with its only NUL; checked when it is a constant.
    pub(crate) const fn from_terminated(text: &'static str) -> Name {
        assert!(
            !text.is_empty() && text.as_bytes()[text.len() - 1] == 0,
            "a name ends with NUL"
        );
        Name(text)
    }
    /// The text.
    pub const fn as_str(self) -> &'static str {
        self.0.split_at(self.0.len() - 1).0
    }
    /// The text for C; valid for ever.
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
    /// Operations that AMD's enum does not know yet; their ids go on from `operations.len()`.
    pub added: &'static [Name],
}

impl Kind {
    /// Name of an operation, with those that are ours.
    pub fn operation(&self, id: usize) -> Option<Name> {
        self.operations.iter().chain(self.added).nth(id).copied()
    }
}

include!(concat!(env!("OUT_DIR"), "/names.rs"));
