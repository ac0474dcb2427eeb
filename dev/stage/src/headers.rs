//! Generates the long headers: the operations of each API, and the arguments of each function. They
//! contain only what api/*.json and the tables of `midair-abi` have. So they are made when the rest
//! is laid out, and are not committed.

mod details;

use std::fmt::Write;
use std::fs;

use midair_abi::members::{sdk_name, sdk_type};
use midair_abi::tables::{self, Class, Function, Table, Type};
use serde_json::Value;

use details::Details;
use midair_dev_kit::run::{At, Failure, Outcome, failed, root};

/// Headers with one enum each: the place below include/, the enum in api/rocprofiler_sdk.json, and
/// the first line.
const ENUMS: &[(&str, &str, &str)] = &[
    (
        "hip/runtime_api_id.h",
        "rocprofiler_hip_runtime_api_id_t",
        "functions of the HIP runtime",
    ),
    (
        "hip/compiler_api_id.h",
        "rocprofiler_hip_compiler_api_id_t",
        "functions that compiled HIP code calls",
    ),
    (
        "hsa/core_api_id.h",
        "rocprofiler_hsa_core_api_id_t",
        "functions of HSA",
    ),
    (
        "hsa/amd_ext_api_id.h",
        "rocprofiler_hsa_amd_ext_api_id_t",
        "AMD's functions of HSA",
    ),
    (
        "hsa/image_ext_api_id.h",
        "rocprofiler_hsa_image_ext_api_id_t",
        "HSA's functions of images",
    ),
    (
        "hsa/finalize_ext_api_id.h",
        "rocprofiler_hsa_finalize_ext_api_id_t",
        "HSA's functions of the finalizer",
    ),
    (
        "rccl/api_id.h",
        "rocprofiler_rccl_api_id_t",
        "functions of RCCL",
    ),
    (
        "rocdecode/api_id.h",
        "rocprofiler_rocdecode_api_id_t",
        "functions of rocDecode",
    ),
    (
        "rocjpeg/api_id.h",
        "rocprofiler_rocjpeg_api_id_t",
        "functions of rocJPEG",
    ),
    (
        "ompt/api_id.h",
        "rocprofiler_ompt_operation_t",
        "what of OpenMP is told",
    ),
];

/// HIP's functions that are newer than api/rocprofiler_sdk.json. AMD's newest SDK numbers them
/// onwards from the last one there, in the order of the table (source:
/// rocprofiler-sdk/hip/runtime_api_id.h of 1.2.1, which the tests compare with).
const GOES_ON: (&str, &Table, &str) = (
    "rocprofiler_hip_runtime_api_id_t",
    &tables::HIP_RUNTIME,
    "ROCPROFILER_HIP_RUNTIME_API_ID_",
);

/// A library whose functions have arguments that tools read.
struct Library {
    /// Its name in names of types and files.
    name: &'static str,
    /// Its name in macros.
    upper: &'static str,
    /// Its name as people write it.
    title: &'static str,
    tables: &'static [&'static Table],
    /// The library's own headers, which are included all or not at all.
    headers: &'static [&'static str],
    /// Lines that must come before these headers are included.
    before: &'static str,
    /// The headers of the library's tables of functions, which are included all or not at all, and
    /// only in C++. Tools that include AMD's headers get them.
    tables_headers: &'static [&'static str],
    /// The members of the union of results, with the library's headers and without them.
    results: &'static [(&'static str, &'static str)],
    /// Types that are only the name of a struct, which C distinguishes from a type.
    tags: &'static [&'static str],
    /// Types that those headers do not have, or not in each version.
    missing: &'static [&'static str],
}

const LIBRARIES: &[Library] = &[
    Library {
        name: "hip",
        upper: "HIP",
        title: "HIP",
        tables: &[&tables::HIP_COMPILER, &tables::HIP_RUNTIME],
        headers: &["hip/hip_runtime_api.h"],
        before: "#    if !defined(__HIP_PLATFORM_AMD__) && !defined(__HIP_PLATFORM_NVIDIA__)\n#        define __HIP_PLATFORM_AMD__ 1\n#    endif\n",
        tables_headers: &[
            "hip/hip_deprecated.h",
            "hip/amd_detail/amd_hip_gl_interop.h",
            "hip/amd_detail/hip_api_trace.hpp",
        ],
        results: &[
            ("uint64_t uint64_t_retval", ""),
            ("int int_retval", ""),
            ("const char* const_charp_retval", ""),
            ("hipError_t hipError_t_retval", "int hipError_t_retval"),
            (
                "hipChannelFormatDesc hipChannelFormatDesc_retval",
                "int hipChannelFormatDesc_retval[5]",
            ),
            ("void** voidpp_retval", ""),
        ],
        tags: &["hipResourceViewDesc"],
        missing: &[
            "hipDeviceProp_tR0000",
            "GLenum",
            "GLuint",
            "hipGLDeviceList",
        ],
    },
    Library {
        name: "hsa",
        upper: "HSA",
        title: "HSA",
        tables: &[
            &tables::HSA_CORE,
            &tables::HSA_AMD_EXT,
            &tables::HSA_IMAGE_EXT,
            &tables::HSA_FINALIZE_EXT,
        ],
        headers: &[
            "hsa/hsa.h",
            "hsa/hsa_ext_amd.h",
            "hsa/hsa_ext_finalize.h",
            "hsa/hsa_ext_image.h",
        ],
        before: "",
        // rocprofiler-sdk/hsa/api_trace_version.h includes them.
        tables_headers: &[],
        results: &[
            ("uint64_t uint64_t_retval", ""),
            ("uint32_t uint32_t_retval", ""),
            (
                "hsa_signal_value_t hsa_signal_value_t_retval",
                "int64_t hsa_signal_value_t_retval",
            ),
            (
                "hsa_status_t hsa_status_t_retval",
                "int hsa_status_t_retval",
            ),
        ],
        tags: &[],
        missing: &[
            // These types are in a header for C++ only.
            "hsa_amd_queue_intercept_handler",
            "hsa_amd_runtime_queue_notifier",
        ],
    },
    Library {
        name: "rccl",
        upper: "RCCL",
        title: "RCCL",
        tables: &[&tables::RCCL],
        headers: &["rccl/rccl.h"],
        before: "",
        tables_headers: &[],
        results: &[
            ("int32_t ncclResult_t_retval", ""),
            ("const char* const_charp_retval", ""),
        ],
        tags: &[],
        missing: &[],
    },
    Library {
        name: "rocdecode",
        upper: "ROCDECODE",
        title: "rocDecode",
        tables: &[&tables::ROCDECODE],
        headers: &[
            "rocdecode/rocdecode.h",
            "rocdecode/rocparser.h",
            "rocdecode/roc_bitstream_reader.h",
        ],
        before: "",
        tables_headers: &[],
        results: &[
            ("uint64_t uint64_t_retval", ""),
            ("int32_t rocDecStatus_retval", ""),
            ("const char* const_charp_retval", ""),
        ],
        tags: &[],
        missing: &[],
    },
    Library {
        name: "rocjpeg",
        upper: "ROCJPEG",
        title: "rocJPEG",
        tables: &[&tables::ROCJPEG],
        headers: &["rocjpeg/rocjpeg.h"],
        before: "",
        tables_headers: &[],
        results: &[
            ("int32_t rocJpegStatus_retval", ""),
            ("const char* const_charp_retval", ""),
        ],
        tags: &[],
        missing: &[],
    },
];

/// Returns all headers, each with its place below the prefix and its text.
pub fn generate() -> Outcome<Vec<(String, String)>> {
    let path = root().join("api/rocprofiler_sdk.json");
    let text = fs::read_to_string(&path).at("reading", &path)?;
    let sdk: Value = serde_json::from_str(&text)
        .map_err(|error| Failure(format!("{}: {error}", path.display())))?;
    let mut files = Vec::new();
    for (name, of, title) in ENUMS {
        let text = header(
            name,
            &format!("operations: {title}."),
            "#include <rocprofiler-sdk/defines.h>\n",
            &operations(&sdk, of)?,
        );
        files.push((format!("include/rocprofiler-sdk/{name}"), text));
    }
    files.push((
        "include/rocprofiler-sdk/cxx/enum_string.hpp".to_owned(),
        labels(&sdk)?,
    ));
    let details = Details::of(&sdk)?;
    files.extend(details.headers());
    for library in LIBRARIES {
        let name = format!("{}/api_args.h", library.name);
        let text = arguments(library, &name, &details);
        files.push((format!("include/rocprofiler-sdk/{name}"), text));
    }
    Ok(files)
}

fn header(name: &str, title: &str, includes: &str, body: &str) -> String {
    let guard: String = name
        .chars()
        .map(|c| {
            if c.is_alphanumeric() {
                c.to_ascii_uppercase()
            } else {
                '_'
            }
        })
        .collect();
    format!(
        "/* rocprofiler-sdk: {title} Made by cargo xtask; not to be edited. */\n\
         #ifndef ROCPROFILER_SDK_{guard}_\n#define ROCPROFILER_SDK_{guard}_\n\n{includes}\n\
         ROCPROFILER_EXTERN_C_INIT\n\n{body}\nROCPROFILER_EXTERN_C_FINI\n\n#endif\n"
    )
}

/// Returns the constants of an enum, in the order of their values.
fn constants(sdk: &Value, name: &str) -> Outcome<Vec<(i64, String)>> {
    let Some(values) = sdk
        .pointer(&format!("/enums/{name}/values"))
        .and_then(Value::as_object)
    else {
        return failed(format!("api/rocprofiler_sdk.json has no enum {name}"));
    };
    let mut values: Vec<(i64, String)> = values
        .iter()
        .filter_map(|(name, value)| Some((value.as_i64()?, name.clone())))
        .collect();
    let (goes_on, table, prefix) = GOES_ON;
    if name == goes_on {
        let added: Vec<(i64, String)> = table
            .functions
            .iter()
            .filter(|function| !function.known)
            .map(|function| {
                let name = format!("{prefix}{}", function.name);
                (i64::from(function.operation), name)
            })
            .collect();
        for (value, name) in &mut values {
            if name.ends_with("_API_ID_LAST") {
                *value += added.len() as i64;
            }
        }
        values.extend(added);
    }
    values.sort_unstable();
    Ok(values)
}

fn operations(sdk: &Value, name: &str) -> Outcome<String> {
    let list: Vec<String> = constants(sdk, name)?
        .iter()
        .map(|(value, name)| format!("    {name} = {value}"))
        .collect();
    Ok(format!(
        "typedef enum {name}\n{{\n{}\n}} {name};\n",
        list.join(",\n")
    ))
}

/// Returns the text with the names of our enums' constants, for C++.
fn labels(sdk: &Value) -> Outcome<String> {
    let Some(enums) = sdk.pointer("/enums").and_then(Value::as_object) else {
        return failed("api/rocprofiler_sdk.json has no enums");
    };
    let mut body = String::new();
    for (name, of) in enums {
        let header = of.get("header").and_then(Value::as_str).unwrap_or_default();
        let is_ours = name.starts_with("rocprofiler_")
            && !header.contains("/details/")
            && !header.ends_with("omp-tools.h");
        if !is_ours {
            continue;
        }
        body.push_str(&format!(
            "template <>\nconstexpr std::string_view get_enum_label<{name}>({name} value)\n{{\n    switch (value) {{\n"
        ));
        let mut last = None;
        for (value, constant) in constants(sdk, name)? {
            // Of two names for one value the first one is used. The end of an enum and a "none" of
            // -1 are not values.
            if value < 0 || constant.ends_with("_LAST") || last == Some(value) {
                continue;
            }
            last = Some(value);
            body.push_str(&format!("    case {constant}: return \"{constant}\";\n"));
        }
        body.push_str(&format!(
            "    default: return \"unsupported_{name}\";\n    }}\n}}\n\n"
        ));
    }
    Ok(format!(
        "/* rocprofiler-sdk for C++: names of constants. Made by cargo xtask; not to be edited. */\n\
         #ifndef ROCPROFILER_SDK_CXX_ENUM_STRING_HPP_\n#define ROCPROFILER_SDK_CXX_ENUM_STRING_HPP_\n\n\
         #include <rocprofiler-sdk/experimental/kernel_replay.h>\n\
         #include <rocprofiler-sdk/experimental/range_replay.h>\n\
         #include <rocprofiler-sdk/experimental/spm.h>\n#include <rocprofiler-sdk/experimental/thread_trace.h>\n\
         #include <rocprofiler-sdk/rocprofiler.h>\n#include <string_view>\n\n\
         namespace rocprofiler\n{{\nnamespace sdk\n{{\n\
         /* The name of a value of an enum, or unsupported_ and the enum's. */\n\
         template <typename Enum>\nconstexpr std::string_view get_enum_label(Enum value);\n\n\
         {body}}} // namespace sdk\n}} // namespace rocprofiler\n\n#endif\n"
    ))
}

/// Returns a condition of the preprocessor that is true if all these headers exist.
fn all_found(headers: &[&str]) -> String {
    let found: Vec<String> = headers
        .iter()
        .map(|header| format!("__has_include(<{header}>)"))
        .collect();
    found.join(" && ")
}

fn arguments(library: &Library, file: &str, details: &Details) -> String {
    let Library {
        name, upper, title, ..
    } = library;
    let found = all_found(library.headers);
    let mut includes = format!(
        "#include <rocprofiler-sdk/defines.h>\n#include <rocprofiler-sdk/fwd.h>\n\n#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n\n\
         /* With {title}'s own headers, arguments have its types; without them, plain ones of the same size. */\n\
         #if defined(__has_include)\n#    if {found}\n#        define ROCPROFILER_HAVE_{upper}_TYPES 1\n#    endif\n#endif\n\
         #if defined(ROCPROFILER_HAVE_{upper}_TYPES)\n{before}",
        before = library.before,
    );
    for header in library.headers {
        includes.push_str(&format!("#    include <{header}>\n"));
    }
    if !library.tables_headers.is_empty() {
        let lines: String = library
            .tables_headers
            .iter()
            .map(|header| format!("#            include <{header}>\n"))
            .collect();
        includes.push_str(&format!(
            "#    if defined(__cplusplus)\n#        if {}\n{lines}#        endif\n#    endif\n",
            all_found(library.tables_headers)
        ));
    }
    let enumerations = Details::includes(name);
    includes.push_str(&format!(
        "#    define ROCPROFILER_{upper}_FIELD(own, plain) own;\n#else\n#    define ROCPROFILER_{upper}_FIELD(own, plain) plain;\n#endif\n{enumerations}"
    ));
    let mut body = format!(
        "/* C gives an empty struct no bytes and C++ gives it one. */\n\
         typedef struct rocprofiler_{name}_api_no_args\n{{\n    char empty;\n}} rocprofiler_{name}_api_no_args;\n\n\
         /* The result: the member of its type. */\ntypedef union rocprofiler_{name}_api_retval_t\n{{\n"
    );
    for (own, plain) in library.results {
        line(&mut body, upper, 1, own, plain);
    }
    body.push_str(&format!(
        "}} rocprofiler_{name}_api_retval_t;\n\n\
         /* The arguments: the member of the function. Pointers are those that were passed. */\n\
         typedef union rocprofiler_{name}_api_args_t\n{{\n"
    ));
    for table in library.tables {
        // Of the functions that are newer than the facts, only those become members that AMD's SDK
        // is known to have.
        let newer = std::ptr::eq(*table, GOES_ON.1);
        for function in table
            .functions
            .iter()
            .filter(|function| function.known || newer)
        {
            member(&mut body, library, function, details);
        }
    }
    body.push_str(&format!(
        "}} rocprofiler_{name}_api_args_t;\n\n#undef ROCPROFILER_{upper}_FIELD\n"
    ));
    header(
        file,
        &format!("arguments and results of {title}'s functions."),
        &includes,
        &body,
    )
}

fn member(body: &mut String, library: &Library, function: &Function, details: &Details) {
    body.push_str("    struct\n    {\n");
    if function.parameters.is_empty() {
        body.push_str(&format!(
            "        rocprofiler_{}_api_no_args no_args;\n",
            library.name
        ));
    }
    for parameter in function.parameters {
        let name = sdk_name(&function.name, parameter.name);
        let plain = match details.has(parameter.ty.c) {
            true => declared(parameter.ty.c, name),
            false => declared(&plain(&parameter.ty), name),
        };
        // Headers of HIP that are older than a function do not have its types.
        let plain_anyway = !function.known
            || parameter.ty.c == "dim3"
            || library.missing.contains(&bare(parameter.ty.c));
        if plain_anyway {
            line(body, library.upper, 2, &plain, "");
        } else {
            let tag = bare(parameter.ty.c);
            let own = if let Some(own) = sdk_type(&function.name, parameter.name) {
                own.to_owned()
            } else if library.tags.contains(&tag) && !parameter.ty.c.contains("struct ") {
                parameter.ty.c.replace(tag, &format!("struct {tag}"))
            } else {
                parameter.ty.c.to_owned()
            };
            let own = declared(&own, name);
            line(
                body,
                library.upper,
                2,
                &own,
                if own == plain { "" } else { &plain },
            );
        }
    }
    body.push_str(&format!("    }} {};\n", function.name));
}

/// Writes a member. `plain` is empty where the type is C's own.
fn line(body: &mut String, upper: &str, depth: usize, own: &str, plain: &str) {
    let indent = "    ".repeat(depth);
    // Writing to a string cannot fail.
    let _ = if plain.is_empty() {
        writeln!(body, "{indent}{own};")
    } else {
        writeln!(body, "{indent}ROCPROFILER_{upper}_FIELD({own}, {plain})")
    };
}

/// Returns a type's name without qualifiers and pointers.
fn bare(c: &str) -> &str {
    c.trim_start_matches("const ")
        .trim_start_matches("struct ")
        .trim_end_matches(['*', ' '])
}

/// Returns the declaration of a name with a type. In a function pointer's type the name stands
/// inside.
fn declared(c: &str, name: &str) -> String {
    // A constant member would make its union one that cannot be assigned.
    let c = match c.strip_prefix("const ") {
        Some(value) if !c.contains('*') => value,
        _ => c,
    };
    if let Some((before, after)) = c.split_once("(*)") {
        format!("{before}(*{name}){after}")
    } else if let Some((element, size)) = c.split_once('[') {
        format!("{element} {name}[{size}")
    } else {
        format!("{} {name}", c.replace(" *", "*"))
    }
}

/// Returns a plain C type of the same size, alignment and class.
fn plain(ty: &Type) -> String {
    let is_of_c = |c: &str| {
        [
            "void", "char", "int", "float", "size_t", "bool", "uint8_t", "uint16_t", "uint32_t",
            "uint64_t", "int32_t", "int64_t",
        ]
        .contains(&c)
            || c.starts_with("unsigned ")
    };
    if is_of_c(bare(ty.c)) && !ty.c.contains('(') {
        return ty.c.to_owned();
    }
    match (ty.class, ty.size) {
        (Class::Pointer, _) if ty.c.starts_with("const ") => "const void *".to_owned(),
        (Class::Pointer, _) => "void *".to_owned(),
        (Class::Function, _) => "void (*)(void)".to_owned(),
        (Class::Enum, _) => "int".to_owned(),
        (Class::Int | Class::Uint, size) => {
            let sign = if ty.class == Class::Uint { "u" } else { "" };
            format!("{sign}int{}_t", size * 8)
        }
        (Class::Struct, size) => match (ty.c.trim_start_matches("struct "), size) {
            // AMD's SDK also uses this type, whether HIP's headers are there or not.
            ("dim3", _) => "rocprofiler_dim3_t".to_owned(),
            ("hipMemLocation" | "hipChannelFormatDesc", size) => {
                format!("uint32_t[{}]", size / 4)
            }
            ("hipIpcMemHandle_t" | "hipIpcEventHandle_t" | "ncclUniqueId", size) => {
                format!("char[{size}]")
            }
            (_, 8) => "uint64_t".to_owned(),
            (_, size) => format!("uint64_t[{}]", size / 8),
        },
        _ => ty.c.to_owned(),
    }
}
