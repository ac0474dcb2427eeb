//! Registration of runtime API tables (rocprofiler-register).
