//! What all records start with.

/// First 8 bytes of every record.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// Bytes of the record with this header; a multiple of 8.
    pub size: u16,
    /// See [`mod@super::kind`].
    pub kind: u8,
    /// See [`super::flag`].
    pub flags: u8,
    /// AMD's operation id within the kind; CUPTI's callback id for CUDA's calls.
    pub operation: u32,
}
