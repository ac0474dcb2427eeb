//! Per-thread variables that newer HIP and HSA runtimes share through this library, and are linked
//! against: the id of the API call that is active on the thread, and a stack of the ids before it.
//! midair does not read them.
//!
//! The language has no way to define such a variable for C, so these are statics in the section of
//! per-thread zeros. To the assembler and the linker that makes them per-thread.

use std::sync::atomic::{AtomicI32, AtomicU64};

/// How many ids the stack holds.
pub const DEPTH: usize = 32;

/// The active call's id.
#[used]
#[unsafe(no_mangle)]
// SAFETY: the section is for per-thread zeros, which this is. No code here refers to it.
#[unsafe(link_section = ".tbss.rocp_reg")]
pub static rocp_reg_active_corr_id: AtomicU64 = AtomicU64::new(0);

/// The ids that were active before.
#[used]
#[unsafe(no_mangle)]
// SAFETY: as above.
#[unsafe(link_section = ".tbss.rocp_reg")]
pub static rocp_reg_auto_stack_: [AtomicU64; DEPTH] = [const { AtomicU64::new(0) }; DEPTH];

/// How many ids are on the stack.
#[used]
#[unsafe(no_mangle)]
// SAFETY: as above.
#[unsafe(link_section = ".tbss.rocp_reg")]
pub static rocp_reg_auto_depth_: AtomicI32 = AtomicI32::new(0);
