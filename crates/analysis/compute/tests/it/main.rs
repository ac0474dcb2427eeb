//! Tests of rocprof-compute from outside, in one program: twelve took longer to link than to run.
#![allow(clippy::unwrap_used, clippy::panic)]

mod analyze;
mod common;
mod csv;
mod detach;
mod evaluation;
mod intervals;
mod live;
mod long;
mod older;
mod page;
mod panels;
mod profile;
mod roofline;
mod samples;
mod schema;
mod size;
mod vintage;
