//! Environments in which an attach must work, or be refused with the reason: namespaces, roots,
//! limits, names, copies of libraries, C libraries. Each test has a real process on the stand-in
//! runtimes, and whole sessions, from the attach to the files.

mod capabilities;
mod first_thread;
mod kit;
mod libraries;
mod limits;
mod namespaces;
mod roots;
