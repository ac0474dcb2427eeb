//! Names, numbers and layouts of AMD's C interfaces and of NVIDIA's CUPTI. They are generated from
//! `api/*.json` at build time, or hand-written and checked against it by the compiler. There is no
//! logic here.
//!
//! * [`tables`]: the API tables whose slots we wrap, with parameters and operation ids,
//! * [`names`]: kinds, operations and statuses, with the strings that AMD's tool prints,
//! * [`ompt`]: OpenMP's events,
//! * [`members`]: parameters that have other names in the SDK than in the libraries,
//! * [`constants`]: the SDK's enumerators under their C names,
//! * [`records`], [`counting`], [`agent`], [`registration`]: structs that we fill or read,
//! * [`functions`]: every function of the SDK's headers,
//! * [`cupti`]: NVIDIA's CUPTI: names, and where the fields of its records lie in each version,
//! * [`private`]: the table between our own SDK and our own tool.

pub mod agent;
pub mod counting;
pub mod cupti;
pub mod members;
pub mod names;
pub mod ompt;
pub mod private;
pub mod records;
pub mod registration;
pub mod tables;

/// The SDK's enumerators under their C names (source: api/rocprofiler_sdk.json).
pub mod constants {
    #![allow(non_upper_case_globals, reason = "names are AMD's")]
    include!(concat!(env!("OUT_DIR"), "/constants.rs"));
}

/// Sizes and field offsets of the SDK's structs (source: api/rocprofiler_sdk.json).
pub mod layout {
    #![allow(
        missing_docs,
        non_camel_case_types,
        non_upper_case_globals,
        reason = "names are AMD's"
    )]
    include!(concat!(env!("OUT_DIR"), "/layout.rs"));
}

/// The functions of the SDK's headers.
pub mod functions {
    /// What a function returns.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ResultClass {
        /// `rocprofiler_status_t`.
        Status,
        /// A pointer.
        Pointer,
        /// `uint64_t`.
        Number,
        /// Nothing.
        Nothing,
    }
    /// A function of the SDK's headers.
    #[derive(Debug, Clone, Copy)]
    pub struct SdkFunction {
        /// C name.
        pub name: &'static str,
        /// What it returns.
        pub result: ResultClass,
        /// Header that declares it.
        pub header: &'static str,
    }
    include!(concat!(env!("OUT_DIR"), "/functions.rs"));
}

/// Defines a `repr(C)` struct, and proves at compile time that its size, its alignment and the
/// offset of every field match the C struct with the given name.
macro_rules! c_struct {
    ($(#[$meta:meta])* $name:ident = $c:ident { $( $(#[$fmeta:meta])* $field:ident : $ty:ty, )* }) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy)]
        pub struct $name { $( $(#[$fmeta])* pub $field: $ty, )* }
        const _: () = {
            assert!(size_of::<$name>() == crate::layout::$c::SIZE);
            assert!(align_of::<$name>() == crate::layout::$c::ALIGN);
            $( assert!(std::mem::offset_of!($name, $field) == crate::layout::$c::$field); )*
        };
    };
}
use c_struct;
