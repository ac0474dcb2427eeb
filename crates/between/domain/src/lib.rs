//! The one table of domains: everything that can be traced, one row each.
//!
//! A row says who asks for the domain (option and setting), under which numbers AMD's interfaces
//! know it, what it needs in the target, in which runtimes it exists, how the output formats name
//! it, and whether it is built. Other crates hold no list of domains of their own: they iterate
//! over [`DOMAINS`], or use a [`KindSet`] that was made from it.
//!
//! * [`kind`] has the dense numbers, one per row, which records carry. AMD's numbers appear only in
//!   its C interfaces and in files ([`Domain::number`]).
//! * [`KindSet`] is a set of such numbers in one word.
//! * [`sets`] has the sets that several crates need.
//!
//! This crate is used inside targets: it does no I/O, allocates nothing and has no unsafe code.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod domain;
mod files;
mod set;
pub mod sets;
mod table;

pub use domain::{Ask, Callback, CallbackTime, Domain, Needs, RequestedBy, Runtimes};
pub use files::{Files, Ranked, Rocpd, Statistics, Track};
pub use set::{AtomicKindSet, KindSet, Kinds};
pub use table::{DOMAINS, kind};

/// Returns the domain of this record kind; `None` for a kind of description, and for a number that
/// no row has.
pub const fn domain(kind: u8) -> Option<&'static Domain> {
    if kind == 0 || kind as usize > DOMAINS.len() {
        return None;
    }
    Some(&DOMAINS[kind as usize - 1])
}

/// Returns the domains that are built.
pub fn built() -> impl Iterator<Item = &'static Domain> {
    DOMAINS.iter().filter(|domain| domain.built)
}

/// Returns the domain of one of AMD's buffer-tracing kinds (`rocprofiler_buffer_tracing_kind_t`),
/// built or not.
pub fn of_buffer_kind(theirs: i32) -> Option<&'static Domain> {
    DOMAINS
        .iter()
        .find(|domain| domain.buffer_kinds.contains(&theirs))
}

/// Returns the domain of one of AMD's callback-tracing kinds
/// (`rocprofiler_callback_tracing_kind_t`), built or not.
pub fn of_callback_kind(theirs: i32) -> Option<&'static Domain> {
    DOMAINS.iter().find(|domain| {
        domain
            .callback
            .is_some_and(|callback| callback.kind == theirs)
    })
}

/// Returns the domain that has this number in files (`kind` in json and pftrace), built or not.
pub fn of_number(number: u8) -> Option<&'static Domain> {
    DOMAINS.iter().find(|domain| domain.number == Some(number))
}

/// Returns the domains that an option asks for; `option` is its long name without dashes.
pub fn of_option(option: &str) -> impl Iterator<Item = &'static Domain> {
    DOMAINS
        .iter()
        .filter(move |domain| domain.asks().iter().any(|ask| ask.option == option))
}

/// Returns the domains that a setting asks for.
pub fn of_setting(setting: &str) -> impl Iterator<Item = &'static Domain> {
    DOMAINS
        .iter()
        .filter(move |domain| domain.asks().iter().any(|ask| ask.name() == setting))
}

#[cfg(test)]
mod tests;
