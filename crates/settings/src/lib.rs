//! Options, ROCPROF_* settings and the environment buffer.
