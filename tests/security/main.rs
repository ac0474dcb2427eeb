//! Attacks on midair and through it: each test runs a hostile program, a hostile caller or a hostile
//! neighbour, and shows that they do not get what `SECURITY.md` says they must not get. A file for
//! each attacker; hostile programs are in `attacks/`. All are one program, which links once.

mod files;
mod limits;
mod listener;
mod rights;
mod text;
