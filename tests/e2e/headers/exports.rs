//! Every declared function is exported, and every exported function is declared.

use super::{BESIDES, LANGUAGES, LIMIT, compile, compiler, headers_of, include};
use midair_tests::stage::stage;
use midair_tests::target::{PATIENCE, run};
use midair_tests::{Result, workspace};
use object::{Object, ObjectSymbol};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::process::Command;

/// Functions that are declared for tools to define, and that the libraries do not have.
const OF_TOOLS: [&str; 3] = [
    "rocprofiler_configure",
    "rocprofiler_configure_attach",
    "rocprofiler_configure_experimental",
];

/// A library, the folders of its headers, and further functions that it exports for lookups by name
/// from other parts of the product.
const LIBRARIES: [(&str, &[&str], &[&str]); 6] = [
    ("libmidair.so.0", &["midair/"], &[]),
    (
        "librocprofiler-sdk-rocpd.so.1",
        &["rocprofiler-sdk-rocpd/"],
        &[],
    ),
    (
        "librocprofiler-sdk.so.1",
        &["rocprofiler-sdk/"],
        // The first is OpenMP's, whose runtime looks it up. The others belong to AMD's experimental
        // headers.
        &[
            "ompt_start_tool",
            "rocprofiler_configure_device_thread_trace_service",
            "rocprofiler_configure_dispatch_thread_trace_service",
            "rocprofiler_spm_configure_buffer_dispatch_service",
            "rocprofiler_spm_configure_callback_dispatch_service",
            "rocprofiler_spm_create_counter_config",
            "rocprofiler_spm_destroy_counter_config",
            "rocprofiler_spm_iterate_agent_supported_counters",
            "rocprofiler_spm_query_agent_configurations",
            "rocprofiler_thread_trace_decoder_codeobj_load",
            "rocprofiler_thread_trace_decoder_codeobj_unload",
            "rocprofiler_thread_trace_decoder_create",
            "rocprofiler_thread_trace_decoder_destroy",
            "rocprofiler_thread_trace_decoder_info_string",
            "rocprofiler_trace_decode",
        ],
    ),
    (
        "librocprofiler-sdk-rocattach.so.1",
        &["rocprofiler-sdk-rocattach/"],
        &[],
    ),
    (
        "librocprofiler-sdk-roctx.so.1",
        &["rocprofiler-sdk-roctx/", "roctracer/"],
        // For registration libraries, and for profilers of roctracer's generation.
        &[
            "rocprofiler_register_import_roctx",
            "roctxRegisterTracerCallback",
        ],
    ),
    // AMD's header does not declare these, either. Attachers and the SDK look them up by name.
    (
        "librocprofiler-register.so.0",
        &["rocprofiler-register/"],
        &[
            "attach",
            "detach",
            "rocprofiler_call_client_detach",
            "rocprofiler_call_client_reattach",
            "rocprofiler_register_attach",
            "rocprofiler_register_detach",
            "rocprofiler_register_invoke_all_registrations",
            "rocprofiler_register_invoke_nonpropagated_registrations",
            "rocprofiler_register_invoke_reattach",
            "rocprofiler_register_runtime_tool_activation_callback",
        ],
    ),
];

/// Returns the functions that the headers declare without a body, each with its header, as the
/// compiler reports them.
fn declared() -> Result<Vec<(String, String)>> {
    let dir = tempfile::tempdir()?;
    let (source, list) = (dir.path().join("all.c"), dir.path().join("list"));
    let all: Vec<String> = headers_of(LANGUAGES[0])?
        .iter()
        .map(|header| format!("#include <{header}>\n"))
        .collect();
    std::fs::write(&source, all.concat())?;
    let mut command = compiler(super::LANGUAGES[0]);
    command
        .arg("-c")
        .arg("-o")
        .arg(dir.path().join("all.o"))
        .arg(&source);
    command
        .arg("-aux-info")
        .arg(&list)
        .arg(format!("-I{}", include()?.display()));
    run(command, LIMIT)?.success()?;
    let mut functions = Vec::new();
    for line in std::fs::read_to_string(list)?.lines() {
        // The compiler's lines are `/* FILE:LINE:NC */ extern TYPE NAME (PARAMETERS);`, with `NF`
        // for a definition.
        let Some((place, declaration)) = line
            .strip_prefix("/* ")
            .and_then(|line| line.split_once(" */ "))
        else {
            continue;
        };
        let include = include()?.display().to_string();
        let Some(header) = place
            .split(':')
            .next()
            .and_then(|file| file.strip_prefix(&include))
        else {
            continue;
        };
        if place.ends_with('F') {
            continue;
        }
        let name = declaration
            .split_once(" (")
            .and_then(|(before, _)| before.rsplit([' ', '*']).next());
        functions.push((
            name.ok_or("a declaration has a name")?.to_owned(),
            header.trim_start_matches('/').to_owned(),
        ));
    }
    Ok(functions)
}

#[test]
fn libraries_export_what_their_headers_declare() -> Result<()> {
    let declared = declared()?;
    assert!(declared.len() > 80, "{declared:?}");
    let mut seen = 0;
    for (library, folders, others) in LIBRARIES {
        let data = std::fs::read(stage()?.join("lib").join(library))
            .map_err(|error| format!("{library}: {error}"))?;
        let exported: BTreeSet<String> = object::File::parse(&*data)?
            .dynamic_symbols()
            .filter(|symbol| symbol.is_definition() && symbol.is_global())
            .map(|symbol| Ok(symbol.name()?.to_owned()))
            // These functions are used between midair's parts only, and their prefix says so.
            .filter(|name| {
                let is_ours = name.as_ref().is_ok_and(|name| name.starts_with("midair_"));
                !is_ours || library.starts_with("libmidair.")
            })
            .collect::<Result<_>>()?;
        let mut expected: BTreeSet<String> = declared
            .iter()
            .filter(|(name, header)| {
                folders.iter().any(|folder| header.starts_with(folder))
                    && !OF_TOOLS.contains(&name.as_str())
            })
            .map(|(name, _)| name.clone())
            .collect();
        seen += expected.len();
        expected.extend(others.iter().map(|name| (*name).to_owned()));
        assert_eq!(exported, expected, "{library}");
    }
    assert_eq!(
        seen + OF_TOOLS.len(),
        declared.len(),
        "a header of no library"
    );
    Ok(())
}

/// Returns the functions whose headers say that they are not served, in the file's first comment or
/// in the one before the function.
fn said_to_be_missing(declared: &[(String, String)]) -> Result<BTreeSet<String>> {
    const MARK: &str = "Not served";
    let mut missing = BTreeSet::new();
    for (name, header) in declared {
        let text = std::fs::read_to_string(include()?.join(header))?;
        let title = text.split("*/").next().unwrap_or_default();
        let before = text.split(&format!("{name}(")).next().unwrap_or_default();
        let comment = before.rsplit("/*").next().unwrap_or_default();
        if title.contains(MARK) || comment.contains(MARK) {
            missing.insert(name.clone());
        }
    }
    Ok(missing)
}

/// Calls each function with nothing but zeros. Those that are not built say so, and no others do.
#[test]
fn headers_document_which_functions_are_not_served() -> Result<()> {
    let api: Value = serde_json::from_str(&std::fs::read_to_string(
        workspace().join("api/rocprofiler_sdk.json"),
    )?)?;
    let declared = declared()?;
    let missing = said_to_be_missing(&declared)?;
    let mut text = format!(
        "{BESIDES}#include <rocprofiler-sdk/rocprofiler.h>\n#include <stdio.h>\n\
         #include <string.h>\nint main(void)\n{{\n",
    );
    let mut called = BTreeSet::new();
    for (name, of) in api["functions"].as_object().ok_or("no functions")? {
        let is_declared = declared.iter().any(|(function, _)| function == name);
        // Functions that return a text or a number have no status.
        let is_status = of["ret"]["type"] == "rocprofiler_status_t";
        if !is_declared || !is_status || OF_TOOLS.contains(&name.as_str()) {
            continue;
        }
        text.push_str("    {\n");
        let parameters = of["params"].as_array().ok_or("no parameters")?;
        for (number, parameter) in parameters.iter().enumerate() {
            let kind = parameter["type"].as_str().ok_or("no type")?;
            writeln!(
                text,
                "        {kind} a{number};\n        memset((void*) &a{number}, 0, sizeof(a{number}));"
            )?;
        }
        let arguments: Vec<String> = (0..parameters.len()).map(|n| format!("a{n}")).collect();
        writeln!(
            text,
            "        printf(\"%d {name}\\n\", (int) {name}({}));\n    }}",
            arguments.join(", ")
        )?;
        called.insert(name.clone());
    }
    text.push_str("    return 0;\n}\n");
    let dir = tempfile::tempdir()?;
    let lib = stage()?.join("lib").display().to_string();
    let program = compile(
        dir.path(),
        LANGUAGES[0],
        &text,
        &[
            format!("-I{}", include()?.display()),
            format!("-L{lib}"),
            format!("-Wl,-rpath,{lib}"),
            "-lrocprofiler-sdk".to_owned(),
        ],
    )?;
    let exit = run(Command::new(program), PATIENCE)?.success()?;
    let answered: BTreeSet<String> = exit
        .stdout
        .iter()
        .filter_map(|line| line.strip_prefix("17 "))
        .map(str::to_owned)
        .collect();
    assert_eq!(exit.stdout.len(), called.len());
    assert!(called.len() > 50 && !answered.is_empty(), "{exit}");
    let said: BTreeSet<String> = missing.intersection(&called).cloned().collect();
    assert_eq!(answered, said);
    Ok(())
}
