//! The status by which `rocattach` and AMD's command line report a failure.

use midair_failure::Kind;

/// Returns the `rocattach_status_t` for a failure of this kind. It is never 0, which means success
/// (`docs/sources.md#register`).
pub const fn rocattach_status(kind: Kind) -> u32 {
    const ERROR: u32 = 1;
    const INVALID_ARGUMENT: u32 = 2;
    const NOT_SUPPORTED: u32 = 3;
    const PTRACE_ERROR: u32 = 4;
    const NOT_PERMITTED: u32 = 5;
    const NO_PROCESS: u32 = 6;
    match kind {
        Kind::Usage => INVALID_ARGUMENT,
        Kind::NotBuilt => NOT_SUPPORTED,
        Kind::NotPermitted | Kind::Filtered => NOT_PERMITTED,
        Kind::NoProcess | Kind::Zombie => NO_PROCESS,
        Kind::Busy | Kind::NoParkedThread | Kind::Enter | Kind::Stopped | Kind::OtherProfiler => {
            PTRACE_ERROR
        }
        Kind::KernelThread
        | Kind::NotGpu
        | Kind::Libc
        | Kind::Architecture
        | Kind::Installation
        | Kind::Setup
        | Kind::NoHeadroom
        | Kind::NoProc
        | Kind::Ambiguous
        | Kind::NoCupti
        | Kind::NoDispatchLog
        | Kind::NoAnswer
        | Kind::NoCounters
        | Kind::Instrumented
        | Kind::Input
        | Kind::Nothing
        | Kind::DetachFailed
        | Kind::TargetKilled
        | Kind::Incomplete
        | Kind::Output
        | Kind::Partial
        | Kind::Full => ERROR,
    }
}
