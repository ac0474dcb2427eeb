//! The API tables whose slots we wrap: HIP runtime and compiler, HSA core, AMD extension, image
//! extension, finalizer, ROCTx, RCCL, rocDecode, rocJPEG.
//!
//! Source: api/hip_api_tables.json, api/hsa_api_tables.json, api/roctx.json and
//! api/library_tables.json; operation ids from the enums of api/rocprofiler_sdk.json.

use crate::names::Name;

/// The id of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TableId {
    /// `HipDispatchTable`, registered as "hip".
    HipRuntime = 0,
    /// `HipCompilerDispatchTable`, registered as "hip_compiler".
    HipCompiler = 1,
    /// `CoreApiTable`, pointed to by the `HsaApiTable` registered as "hsa".
    HsaCore = 2,
    /// `AmdExtTable`.
    HsaAmdExt = 3,
    /// `ImageExtTable`.
    HsaImageExt = 4,
    /// `FinalizerExtTable`.
    HsaFinalizeExt = 5,
    /// `roctxCoreApiTable_t`, the first of the three registered as "roctx".
    RoctxCore = 6,
    /// `roctxControlApiTable_t`, the second.
    RoctxControl = 7,
    /// `roctxNameApiTable_t`, the third.
    RoctxName = 8,
    /// `rcclApiFuncTable`, registered as "rccl".
    Rccl = 9,
    /// `RocDecodeDispatchTable`, registered as "rocdecode".
    Rocdecode = 10,
    /// `RocJpegDispatchTable`, registered as "rocjpeg".
    Rocjpeg = 11,
}

/// The class of a C type for the calling convention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// `void`: result only.
    Void,
    /// One byte, 0 or 1.
    Bool,
    /// Signed integer.
    Int,
    /// Unsigned integer.
    Uint,
    /// 4 bytes.
    Enum,
    /// 4 bytes.
    Float,
    /// Pointer to data, including opaque handles of HIP.
    Pointer,
    /// Pointer to a function.
    Function,
    /// A struct passed by value. HSA handles are structs of 8 bytes.
    Struct,
}

/// A C type.
#[derive(Debug, Clone, Copy)]
pub struct Type {
    /// Its text in C.
    pub c: &'static str,
    /// Its class.
    pub class: Class,
    /// Its size in bytes.
    pub size: u16,
}

/// A parameter.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    /// Name in AMD's headers.
    pub name: &'static str,
    /// Type.
    pub ty: Type,
    /// Index of its first word among the argument words of a record. It takes `size` bytes, rounded
    /// up to words. Signed integers are sign-extended, and everything else is zero-extended; a
    /// float is stored as its bits.
    pub word: u8,
    /// Byte offset of the argument in AMD's `rocprofiler_*_api_args_t` (parameters in order, C
    /// alignment).
    pub args_offset: u16,
}

/// A slot of a table.
#[derive(Debug, Clone, Copy)]
pub struct Function {
    /// Name of the function.
    pub name: Name,
    /// Byte offset of its pointer in the table.
    pub offset: u32,
    /// AMD's operation id. Ids from the first unknown one on are ours, in the order of slots (see
    /// `known`).
    pub operation: u32,
    /// Whether `operation` is one of AMD's.
    pub known: bool,
    /// What it returns.
    pub result: Type,
    /// How many argument words its record has.
    pub words: u8,
    /// Index of the first `hipStream_t` parameter.
    pub stream: Option<u8>,
    /// Parameters in order.
    pub parameters: &'static [Parameter],
}

/// A table.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    /// Its id.
    pub id: TableId,
    /// Name of the C struct.
    pub c_name: &'static str,
    /// AMD's buffer-tracing kind of the records that we write for it.
    pub kind: u8,
    /// `sizeof` of the newest table that we know; the size field of a running runtime may be
    /// smaller.
    pub size: u32,
    /// Slots in order, without the leading size or version.
    pub functions: &'static [Function],
}

const fn name(text: &'static str) -> Name {
    Name::from_terminated(text)
}

include!(concat!(env!("OUT_DIR"), "/tables.rs"));

/// All tables, indexed by [`TableId`].
pub static ALL: [&Table; 12] = [
    &HIP_RUNTIME,
    &HIP_COMPILER,
    &HSA_CORE,
    &HSA_AMD_EXT,
    &HSA_IMAGE_EXT,
    &HSA_FINALIZE_EXT,
    &ROCTX_CORE,
    &ROCTX_CONTROL,
    &ROCTX_NAME,
    &RCCL,
    &ROCDECODE,
    &ROCJPEG,
];
