//! librocprofiler-sdk-rocattach.so.1.
