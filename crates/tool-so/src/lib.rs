//! `librocprofiler-sdk-tool.so.1`: the C names of `midair-tool`, and nothing else.

pub use midair_tool::capi;
