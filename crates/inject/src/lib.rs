//! The attach engine: enter a running process through one parked thread.
