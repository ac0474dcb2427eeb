//! Functions that are not modelled: an answer of the right type that says "not supported".

use crate::error;

/// `hipError_t`.
pub extern "C" fn status() -> u32 {
    error::NOT_SUPPORTED
}

/// A number: none.
pub extern "C" fn zero() -> i32 {
    -1
}

/// A text: none.
pub extern "C" fn null() -> *const u8 {
    std::ptr::null()
}

/// `hipChannelFormatDesc`, which is returned in memory.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ChannelFormat([i32; 5]);

/// A format of nothing.
pub extern "C" fn channel_format() -> ChannelFormat {
    ChannelFormat::default()
}
