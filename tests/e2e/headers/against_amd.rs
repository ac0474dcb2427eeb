//! Compiles each text with our headers and with AMD's own: sizes, offsets, values and names of
//! members are the same.
//!
//! AMD's headers come from `cargo xtask amd-headers` (rocprofiler-sdk, ROCTx, HIP) and from the lab
//! (rocprofiler-register, and the HIP and HSA headers of another release).

use super::{LANGUAGES, compile, headers_of, include, linked_with_comgr, stand_ins};
use midair_tests::lab::Lab;
use midair_tests::target::{PATIENCE, run};
use midair_tests::{Result, build_dir, leave_out, workspace};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the directory of AMD's headers. `None` means that they are not there and that the
/// environment does not demand them. The test then says that it was left out.
fn amd() -> Result<Option<PathBuf>> {
    let directory = match std::env::var_os("MIDAIR_AMD_HEADERS_DIR") {
        Some(directory) if !directory.is_empty() => PathBuf::from(directory),
        _ => build_dir()?.join("../../amd-headers"),
    };
    if directory.join("made-from").is_file() {
        return Ok(Some(directory.canonicalize()?));
    }
    let what = format!(
        "{} is not there: make it with `cargo xtask amd-headers`",
        directory.display()
    );
    if std::env::var_os("MIDAIR_AMD_HEADERS").is_some_and(|value| value == "1") {
        return Err(what.into());
    }
    leave_out(&what)?;
    Ok(None)
}

/// Collects all identifiers in the headers below a directory.
fn words(directory: &Path, found: &mut BTreeSet<String>) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            words(&path, found)?;
        } else {
            let text = std::fs::read_to_string(&path)?;
            found.extend(
                text.split(|c: char| !(c.is_alphanumeric() || c == '_'))
                    .map(str::to_owned),
            );
        }
    }
    Ok(())
}

/// The headers of AMD's package that matter here.
const COMPARED: [&str; 13] = [
    "rocprofiler-sdk/agent.h",
    "rocprofiler-sdk/buffer.h",
    "rocprofiler-sdk/buffer_tracing.h",
    "rocprofiler-sdk/callback_tracing.h",
    "rocprofiler-sdk/external_correlation.h",
    "rocprofiler-sdk/fwd.h",
    "rocprofiler-sdk/internal_threading.h",
    "rocprofiler-sdk/registration.h",
    "rocprofiler-sdk/hip/api_args.h",
    "rocprofiler-sdk/hip/runtime_api_id.h",
    "rocprofiler-sdk/marker/api_args.h",
    "rocprofiler-sdk/marker/api_id.h",
    "rocprofiler-sdk-roctx/api_trace.h",
];

/// Names that the package's copy of those headers does not have as AMD's own releases do: the copy
/// is cut down to what the package's program uses.
const CUT: [&str; 2] = [
    "rocprofiler_buffer_tracing_hsa_api_record_t",
    "rocprofiler_callback_tracing_hsa_api_data_t",
];

fn text(value: &Value) -> Result<&str> {
    value
        .as_str()
        .ok_or_else(|| format!("not a text: {value}").into())
}

/// Returns a program that prints every size, offset and value of the names in `known`.
fn program(known: &BTreeSet<String>) -> Result<String> {
    let read = |name: &str| -> Result<Value> {
        Ok(serde_json::from_str(&std::fs::read_to_string(
            workspace().join("api").join(name),
        )?)?)
    };
    let mut out = String::from("#include <stddef.h>\n#include <stdio.h>\n");
    for header in COMPARED {
        writeln!(out, "#include <{header}>")?;
    }
    out.push_str("#define SIZE(type) printf(#type \" %zu\\n\", sizeof(type));\n\
        #define FIELD(type, field) printf(#type \".\" #field \" %zu %zu\\n\", offsetof(type, field), sizeof(((type*) 0)->field));\n\
        #define VALUE(name) printf(#name \" %ld\\n\", (long) name);\nint main()\n{\n");
    for name in ["rocprofiler_sdk.json", "roctx.json"] {
        let api = read(name)?;
        let compared = |name: &str, value: &Value| {
            COMPARED.contains(&value["header"].as_str().unwrap_or_default())
                && known.contains(name)
                && !CUT.contains(&name)
        };
        for (name, of) in api["enums"].as_object().ok_or("no enums")? {
            if compared(name, of) {
                // Constants that are newer than the package are not in it.
                let constants = of["values"].as_object().ok_or("no values")?.keys();
                for constant in constants.filter(|constant| known.contains(*constant)) {
                    writeln!(out, "VALUE({constant})")?;
                }
            }
        }
        for (name, of) in api["structs"].as_object().ok_or("no structs")? {
            if !compared(name, of) {
                continue;
            }
            writeln!(out, "SIZE({name})")?;
            for field in of["fields"].as_array().ok_or("no fields")? {
                // The members of the argument unions come below, with their contents.
                let union_of_calls = name == "rocprofiler_hip_api_args_t";
                if field.get("bits").is_none()
                    && !text(&field["type"])?.contains("anonymous")
                    && !union_of_calls
                {
                    writeln!(out, "FIELD({name}, {})", text(&field["name"])?)?;
                }
            }
        }
    }
    for anonymous in [
        "rocprofiler_record_header_t, category",
        "rocprofiler_record_header_t, kind",
        "rocprofiler_record_header_t, hash",
        "rocprofiler_callback_tracing_code_object_load_data_t, rocp_agent",
        "rocprofiler_callback_tracing_code_object_load_data_t, storage_file",
        "rocprofiler_callback_tracing_code_object_load_data_t, memory_base",
        "rocprofiler_callback_tracing_code_object_load_data_t, memory_size",
        "rocprofiler_agent_v0_t, capability.ui32",
        "rocprofiler_agent_v0_t, fw_version.ui32",
        "rocprofiler_agent_cache_t, type.ui32",
        "rocprofiler_agent_io_link_t, flags.LinkProperty",
        "rocprofiler_agent_mem_bank_t, flags.MemoryProperty",
    ] {
        writeln!(out, "FIELD({anonymous})")?;
    }
    // The arguments of each HIP function have the names that AMD's SDK gives them.
    let hip = read("hip_api_tables.json")?;
    for table in ["HipDispatchTable", "HipCompilerDispatchTable"] {
        for entry in hip["tables"][table]["entries"]
            .as_array()
            .ok_or("no entries")?
        {
            let Some(parameters) = entry["params"].as_array() else {
                continue;
            };
            let function = text(&entry["name"])?;
            if table == "HipDispatchTable" {
                writeln!(out, "VALUE(ROCPROFILER_HIP_RUNTIME_API_ID_{function})")?;
            }
            let of = "rocprofiler_hip_api_args_t";
            if parameters.is_empty() {
                writeln!(out, "FIELD({of}, {function}.no_args)")?;
            }
            for parameter in parameters {
                let name = midair_abi::members::sdk_name(function, text(&parameter["name"])?);
                writeln!(out, "FIELD({of}, {function}.{name})")?;
            }
        }
    }
    out.push_str("    return 0;\n}\n");
    Ok(out)
}

fn printed(dir: &Path, text: &str, flags: &[String]) -> Result<Vec<String>> {
    let mut all = vec![
        "-D__HIP_PLATFORM_AMD__".to_owned(),
        "-Wno-invalid-offsetof".to_owned(),
        // AMD's own headers cause warnings.
        "-w".to_owned(),
    ];
    all.extend_from_slice(flags);
    let out = compile(dir, LANGUAGES[1], text, &all)?;
    Ok(run(Command::new(out), PATIENCE)?.success()?.stdout)
}

/// Whether both lines have the end of one enum, and ours is the larger one.
fn is_longer(ours: &str, theirs: &str) -> bool {
    let end = |line: &str| -> Option<(String, i64)> {
        let (name, value) = line.split_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?)).filter(|_| name.ends_with("_LAST"))
    };
    match (end(ours), end(theirs)) {
        (Some((name, ours)), Some((other, theirs))) => name == other && ours > theirs,
        _ => false,
    }
}

/// Returns the differences between the two outputs. The only intended ones are the ends of enums
/// that have grown.
fn differences(ours: &[String], theirs: &[String]) -> Vec<(String, String)> {
    assert_eq!(ours.len(), theirs.len());
    ours.iter()
        .zip(theirs)
        .filter(|(ours, theirs)| ours != theirs && !is_longer(ours, theirs))
        .map(|(ours, theirs)| (ours.clone(), theirs.clone()))
        .collect()
}

#[test]
fn layouts_and_values_are_those_of_amds_headers() -> Result<()> {
    let Some(amd) = amd()? else {
        return Ok(());
    };
    let dir = tempfile::tempdir()?;
    let mut known = BTreeSet::new();
    for part in ["rocprofiler-sdk", "rocprofiler-sdk-roctx"] {
        words(&amd.join(part), &mut known)?;
    }
    let text = program(&known)?;
    let ours = format!("-I{}", include()?.display());
    let theirs = printed(dir.path(), &text, &[format!("-I{}", amd.display())])?;
    assert!(theirs.len() > 3000, "only {} facts", theirs.len());
    // Our headers are compiled without the libraries' own headers, and with them.
    let plain = printed(dir.path(), &text, std::slice::from_ref(&ours))?;
    assert_eq!(differences(&plain, &theirs), []);
    let runtimes = dir.path().join("runtimes");
    std::fs::create_dir(&runtimes)?;
    for part in ["hip", "hsa", "hsakmt"] {
        std::os::unix::fs::symlink(amd.join(part), runtimes.join(part))?;
    }
    let with = printed(
        dir.path(),
        &text,
        &[ours, format!("-isystem{}", runtimes.display())],
    )?;
    assert_eq!(differences(&with, &theirs), []);
    Ok(())
}

/// Compiles each of midair's headers next to the headers of HIP and HSA, of the lab's release, in both
/// languages.
#[test]
fn headers_compile_beside_the_runtimes_own() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let dir = tempfile::tempdir()?;
    // The program uses the runtimes' types, and not our plain ones.
    let main = "int main(void)\n{\n    rocprofiler_hip_api_args_t hip;\n    rocprofiler_hsa_api_args_t hsa;\n    \
         hip.hipMemcpy.kind = hipMemcpyHostToDevice;\n    hsa.hsa_queue_create.agent.handle = 0;\n    \
         return (int) hip.hipMemcpy.kind - (int) hipMemcpyHostToDevice + (int) hsa.hsa_queue_create.agent.handle;\n}\n";
    // In C++ it also uses the types of the runtimes' tables of functions, and compares ids of the
    // runtimes.
    let tables = "static_assert(sizeof(HsaApiTable) > 0 && sizeof(HipDispatchTable) > 3000, \"tables\");\n\
         bool same(hsa_signal_t one, hsa_signal_t other);\n\
         bool same(hsa_signal_t one, hsa_signal_t other) { return one == other; }\n";
    for language in LANGUAGES {
        let mut flags = vec![
            format!("-I{}", include()?.display()),
            format!("-I{}", stand_ins().display()),
        ];
        flags.extend(super::runtimes(&lab)?);
        flags.extend(linked_with_comgr(&lab));
        let mut text: String = headers_of(language)?
            .iter()
            .map(|header| format!("#include <{header}>\n"))
            .collect();
        if language.2 == "cpp" {
            text.push_str(tables);
        }
        compile(dir.path(), language, &(text + main), &flags)?;
    }
    Ok(())
}

/// The distribution's header of rocprofiler-register is older than ours, and says the same as far
/// as it goes.
#[test]
fn the_register_header_is_compatible_with_the_distributions() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let amd = lab.root().join("usr/include/rocprofiler-register");
    let mut known = BTreeSet::new();
    words(&amd, &mut known)?;
    let api: Value = serde_json::from_str(&std::fs::read_to_string(
        workspace().join("api/rocprofiler_register.json"),
    )?)?;
    let mut text = String::from(
        "#include <rocprofiler-register/rocprofiler-register.h>\n#include <stddef.h>\n#include <stdio.h>\nint main()\n{\n",
    );
    for name in api["enums"]["rocprofiler_register_error_code_t"]["values"]
        .as_object()
        .ok_or("no codes")?
        .keys()
    {
        // The end of the enum moves when codes are added.
        if known.contains(name) && name != "ROCP_REG_ERROR_CODE_END" {
            writeln!(text, "printf(\"{name} %d\\n\", (int) {name});")?;
        }
    }
    for (name, of) in api["structs"].as_object().ok_or("no structs")? {
        writeln!(text, "printf(\"{name} %zu\\n\", sizeof({name}));")?;
        for field in of["fields"].as_array().ok_or("no fields")? {
            let field = field["name"].as_str().ok_or("no name")?;
            writeln!(
                text,
                "printf(\"{name}.{field} %zu\\n\", offsetof({name}, {field}));"
            )?;
        }
    }
    // A version as a number, and the definition of an import function.
    text.push_str(
        "printf(\"version %d\\n\", (int) ROCPROFILER_REGISTER_COMPUTE_VERSION_3(7, 2, 4));\n\
         printf(\"import %u\\n\", (unsigned) ROCPROFILER_REGISTER_IMPORT_FUNC(hip)());\nreturn 0;\n}\n\
         ROCPROFILER_REGISTER_DEFINE_IMPORT(hip, 70204)\n",
    );
    let text = text.replace(
        "int main()",
        "extern \"C\" uint32_t rocprofiler_register_import_hip(void);\nint main()",
    );
    let dir = tempfile::tempdir()?;
    let theirs = dir.path().join("theirs");
    std::fs::create_dir(&theirs)?;
    std::os::unix::fs::symlink(&amd, theirs.join("rocprofiler-register"))?;
    let ours = printed(dir.path(), &text, &[format!("-I{}", include()?.display())])?;
    let theirs = printed(dir.path(), &text, &[format!("-I{}", theirs.display())])?;
    assert!(ours.len() > 12, "{ours:?}");
    assert_eq!(differences(&ours, &theirs), []);
    Ok(())
}
