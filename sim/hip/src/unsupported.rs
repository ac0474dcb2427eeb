//! Functions that are not modelled. Each returns an answer of the right type that means "not
//! supported".

use crate::error;

/// Returns the `hipError_t` for "not supported".
pub extern "C" fn status() -> u32 {
    error::NOT_SUPPORTED
}

/// Returns a number that means none.
pub extern "C" fn zero() -> i32 {
    -1
}

/// Returns no text.
pub extern "C" fn null() -> *const u8 {
    std::ptr::null()
}

/// `hipChannelFormatDesc`, which is returned in memory.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ChannelFormat([i32; 5]);

/// Returns an empty format.
pub extern "C" fn channel_format() -> ChannelFormat {
    ChannelFormat::default()
}
