//! `librocprofiler-sdk-roctx.so.1`: the C names of `midair-roctx`, and nothing else.

pub use midair_roctx::capi;
