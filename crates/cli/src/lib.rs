//! midair, rocprofv3.
