//! librocprofiler-sdk.so.1.
