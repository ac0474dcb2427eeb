//! Attacks on midair and through it. Each test runs a hostile program, a hostile caller or a
//! hostile neighbour, and shows that they do not get what `SECURITY.md` says they must not get.
//! There is a file for each attacker, and the hostile programs are in `attacks/`. The tests are all
//! one program, so that it is linked only once.

mod commands;
mod compute;
mod files;
mod installed;
mod limits;
mod listener;
mod namesake;
mod paths;
mod rights;
mod spool;
mod text;
mod why;
