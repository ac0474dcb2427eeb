//! `librocprofiler-sdk-tool.so.1`: the C names of `midair-tool`, and what it does when it is preloaded.

pub use midair_tool::capi;

/// Run by the loader when the library is loaded. Does nothing unless the library was preloaded by itself.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        midair_capi_build::edge((), midair_tool::preload::at_load);
    }
    at_load
};
