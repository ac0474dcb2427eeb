//! Type-state ptrace and access to another process's memory.
