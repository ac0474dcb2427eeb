//! C types under the names that C++'s `typeid` gives them, which AMD's json has as the types of
//! arguments.
//!
//! The headers give the names of types, but not what their handles are. The table below does
//! (source: the typedefs of hip/hip_runtime_api.h and hip/driver_types.h).

use crate::api::{Field, Shape, Text};
use std::borrow::Cow;

/// Arithmetic types, and types that are only another name for one.
const PLAIN: &[(&str, &str)] = &[
    ("void", "v"),
    ("bool", "b"),
    ("char", "c"),
    ("unsigned char", "h"),
    ("short", "s"),
    ("unsigned short", "t"),
    ("int", "i"),
    ("hipDevice_t", "i"),
    ("int32_t", "i"),
    ("unsigned int", "j"),
    ("uint32_t", "j"),
    ("GLuint", "j"),
    ("GLenum", "j"),
    ("long", "l"),
    ("int64_t", "l"),
    ("size_t", "m"),
    ("unsigned long", "m"),
    ("uint64_t", "m"),
    ("long long", "x"),
    ("unsigned long long", "y"),
    ("float", "f"),
    ("double", "d"),
    ("hipDeviceptr_t", "Pv"),
    ("hipExternalMemory_t", "Pv"),
    ("hipExternalSemaphore_t", "Pv"),
    ("uint3", "15HIP_vector_typeIjLj3EE"),
    ("hipHostFn_t", "PFvPvE"),
    ("hipStreamCallback_t", "PFvP12ihipStream_t10hipError_tPvE"),
];

/// The struct that each handle points to.
const HANDLES: &[(&str, &str)] = &[
    ("hipStream_t", "ihipStream_t"),
    ("hipEvent_t", "ihipEvent_t"),
    ("hipCtx_t", "ihipCtx_t"),
    ("hipModule_t", "ihipModule_t"),
    ("hipFunction_t", "ihipModuleSymbol_t"),
    ("hipGraph_t", "ihipGraph"),
    ("hipGraphNode_t", "hipGraphNode"),
    ("hipGraphExec_t", "hipGraphExec"),
    ("hipArray_t", "hipArray"),
    ("hipMipmappedArray_t", "hipMipmappedArray"),
    ("hipMemPool_t", "ihipMemPoolHandle_t"),
    ("hipUserObject_t", "hipUserObject"),
    ("hipTextureObject_t", "__hip_texture"),
    ("hipSurfaceObject_t", "__hip_surface"),
    (
        "hipMemGenericAllocationHandle_t",
        "ihipMemGenericAllocationHandle",
    ),
    ("hipGraphicsResource_t", "_hipGraphicsResource"),
    ("hipLinkState_t", "ihipLinkState_t"),
    ("hipLibrary_t", "ihipLibrary_t"),
    ("hipKernel_t", "ihipKernel_t"),
];

/// Typedefs of structs with another tag.
const TAGS: &[(&str, &str)] = &[
    ("hipUUID", "hipUUID_t"),
    ("hipGraphicsResource", "_hipGraphicsResource"),
];

/// Returns `typeid(c).name()`.
pub fn mangled(c: &str) -> Text {
    let c = c.trim();
    // AMD's tool stores this type, taken by value, as its own struct.
    if c == "dim3" {
        return Cow::Borrowed("18rocprofiler_dim3_t");
    }
    // Top-level const is not part of a parameter's type.
    let c = if c.ends_with('*') {
        c
    } else {
        c.strip_prefix("const ").unwrap_or(c)
    };
    Cow::Owned(inner(c))
}

fn inner(c: &str) -> String {
    let c = c.trim();
    if let Some(pointee) = c.strip_suffix('*') {
        return format!("P{}", inner(pointee));
    }
    if let Some(pointer) = c.strip_suffix(" const") {
        return format!("K{}", inner(pointer));
    }
    if let Some(rest) = c.strip_prefix("const ") {
        return format!("K{}", inner(rest));
    }
    let c = ["struct ", "enum ", "union "]
        .iter()
        .find_map(|word| c.strip_prefix(word))
        .unwrap_or(c)
        .trim();
    if let Some(handle) = c.strip_suffix("_const_t") {
        let tag = lookup(HANDLES, &format!("{handle}_t")).unwrap_or(handle);
        return format!("PK{}{tag}", tag.len());
    }
    if let Some(plain) = lookup(PLAIN, c) {
        return plain.to_owned();
    }
    if let Some(tag) = lookup(HANDLES, c) {
        return format!("P{}{tag}", tag.len());
    }
    let tag = lookup(TAGS, c).unwrap_or(c);
    format!("{}{tag}", tag.len())
}

fn lookup(table: &[(&str, &'static str)], c: &str) -> Option<&'static str> {
    table
        .iter()
        .find(|(name, _)| *name == c)
        .map(|(_, value)| *value)
}

/// Returns the enums that AMD's tool prints by name: the prefix of the enumerators, and the
/// enumerators without it. All other enums are printed as numbers. (Source: the golden json, and
/// hip_types.json for the values.)
fn named_enum(c: &str) -> Option<Shape> {
    let (prefix, values): (&str, &[(i64, &str)]) = match c {
        "hipMemcpyKind" => (
            "hipMemcpy",
            &[
                (0, "HostToHost"),
                (1, "HostToDevice"),
                (2, "DeviceToHost"),
                (3, "DeviceToDevice"),
                (4, "Default"),
                (1024, "DeviceToDeviceNoCU"),
            ],
        ),
        "hipMemAllocationType" => (
            "hipMemAllocationType",
            &[
                (0, "Invalid"),
                (1, "Pinned"),
                (0x4000_0000, "Uncached"),
                (0x7fff_ffff, "Max"),
            ],
        ),
        "hipMemAllocationHandleType" => (
            "hipMemHandleType",
            &[
                (0, "None"),
                (1, "PosixFileDescriptor"),
                (2, "Win32"),
                (4, "Win32Kmt"),
            ],
        ),
        "hipMemLocationType" => (
            "hipMemLocationType",
            &[
                (0, "Invalid"),
                (1, "Device"),
                (2, "Host"),
                (3, "HostNuma"),
                (4, "HostNumaCurrent"),
            ],
        ),
        _ => return None,
    };
    let values = values
        .iter()
        .map(|(value, name)| (*value, Cow::Borrowed(*name)))
        .collect();
    Some(Shape::Enum {
        prefix: Cow::Borrowed(prefix),
        values,
    })
}

/// Returns the fields of a struct that calls take by value.
fn known_struct(c: &str) -> Option<Shape> {
    let field = |name: &'static str, offset, shape| Field {
        name: Cow::Borrowed(name),
        offset,
        shape,
    };
    let fields = match c {
        "dim3" => ["x", "y", "z"]
            .into_iter()
            .zip([0, 4, 8])
            .map(|(n, at)| field(n, at, Shape::Unsigned(4)))
            .collect(),
        "hipExtent" => ["width", "height", "depth"]
            .into_iter()
            .zip([0, 8, 16])
            .map(|(n, at)| field(n, at, Shape::Unsigned(8)))
            .collect(),
        "hipPitchedPtr" => vec![
            field("ptr", 0, Shape::Pointer),
            field("pitch", 8, Shape::Unsigned(8)),
            field("xsize", 16, Shape::Unsigned(8)),
            field("ysize", 24, Shape::Unsigned(8)),
        ],
        // AMD prints this struct with its first field first. Ours are reversed when printed, so
        // they are listed in reverse here.
        "hipMemLocation" => vec![
            field("id", 4, Shape::Signed(4)),
            field(
                "type",
                0,
                named_enum("hipMemLocationType").unwrap_or(Shape::Signed(4)),
            ),
        ],
        _ => return None,
    };
    Some(Shape::Struct(fields))
}

/// What a C type is, besides its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Signed integer.
    Int,
    /// Unsigned integer or bool.
    Uint,
    /// Enum.
    Enum,
    /// Floating point.
    Float,
    /// Data or function pointer.
    Pointer,
    /// Struct or union by value.
    Struct,
}

/// Returns how a value of the type is printed.
pub fn shape(c: &str, class: Class, size: u32) -> Shape {
    let c = ["struct ", "enum ", "union ", "const "]
        .iter()
        .fold(c.trim(), |c, word| c.strip_prefix(word).unwrap_or(c));
    let small = u8::try_from(size).unwrap_or(8).clamp(1, 8);
    match class {
        Class::Pointer => Shape::Pointer,
        Class::Int => Shape::Signed(small),
        Class::Uint => Shape::Unsigned(small),
        Class::Float => Shape::Float(small),
        Class::Enum => named_enum(c).unwrap_or(Shape::Signed(small)),
        Class::Struct => known_struct(c).unwrap_or(Shape::Bytes(size)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All types of the golden json, and those that are easy to get wrong.
    #[test]
    fn types_are_named_as_typeid_does() {
        for (c, wanted) in [
            ("const void *", "PKv"),
            ("void **", "PPv"),
            ("char *", "Pc"),
            ("const char *", "PKc"),
            ("unsigned int", "j"),
            ("uint3 *", "P15HIP_vector_typeIjLj3EE"),
            ("dim3 *", "P4dim3"),
            ("dim3", "18rocprofiler_dim3_t"),
            ("int *", "Pi"),
            ("hipDeviceProp_tR0600 *", "P20hipDeviceProp_tR0600"),
            ("size_t", "m"),
            ("size_t *", "Pm"),
            ("hipStream_t *", "PP12ihipStream_t"),
            ("hipStream_t", "P12ihipStream_t"),
            ("hipEvent_t *", "PP11ihipEvent_t"),
            ("hipMemcpyKind", "13hipMemcpyKind"),
            ("enum hipLimit_t", "10hipLimit_t"),
            ("float *", "Pf"),
            ("const hipGraphNode_t *", "PKP12hipGraphNode"),
            ("const struct hipMemcpy3DParms *", "PK16hipMemcpy3DParms"),
            ("const textureReference **", "PPK16textureReference"),
            ("hipArray_const_t", "PK8hipArray"),
            ("const hipFunction_t", "P18ihipModuleSymbol_t"),
            ("hipGraphicsResource **", "PP20_hipGraphicsResource"),
        ] {
            assert_eq!(mangled(c), wanted, "{c}");
        }
    }

    #[test]
    fn shapes_have_the_size_of_their_type() {
        for (c, class, size) in [
            ("dim3", Class::Struct, 12),
            ("struct hipExtent", Class::Struct, 24),
            ("hipPitchedPtr", Class::Struct, 32),
            ("hipMemLocation", Class::Struct, 8),
            ("hipIpcMemHandle_t", Class::Struct, 64),
            ("hipMemcpyKind", Class::Enum, 4),
            ("hipError_t", Class::Enum, 4),
            ("unsigned short", Class::Uint, 2),
            ("float", Class::Float, 4),
            ("hipHostFn_t", Class::Pointer, 8),
        ] {
            assert_eq!(shape(c, class, size).size(), size, "{c}");
        }
    }
}
