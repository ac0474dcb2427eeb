//! The default tool: collects what ROCPROF_* asks for.
