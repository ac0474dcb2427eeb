//! Where an attach must work, or say why not: namespaces, roots, limits, names, copies of libraries, C libraries. Each with a real
//! process on the stand-in runtimes, and the whole way from the attach to the file.

mod capabilities;
mod first_thread;
mod kit;
mod libraries;
mod limits;
mod namespaces;
mod roots;
