//! What /proc and ELF files tell of a process.
