//! librocprofiler-sdk-tool.so.1.
