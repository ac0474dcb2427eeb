//! librocprofiler-register.so.0.
