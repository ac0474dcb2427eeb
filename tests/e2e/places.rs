//! Where an attach must work, or say why not: namespaces, roots, limits, names, copies of libraries, C libraries. Each with a real
//! process on the stand-in runtimes, and the whole way from the attach to the file.

#[path = "places/capabilities.rs"]
mod capabilities;
#[path = "places/first_thread.rs"]
mod first_thread;
#[path = "places/kit.rs"]
mod kit;
#[path = "places/libraries.rs"]
mod libraries;
#[path = "places/limits.rs"]
mod limits;
#[path = "places/namespaces.rs"]
mod namespaces;
#[path = "places/roots.rs"]
mod roots;
