//! What is declared is exported, and what is exported is declared.

use super::{LIMIT, all_headers, compiler, include};
use midair_tests::Result;
use midair_tests::stage::stage;
use midair_tests::target::run;
use object::{Object, ObjectSymbol};
use std::collections::BTreeSet;

/// Declared for tools to define: the libraries do not have them.
const OF_TOOLS: [&str; 3] = [
    "rocprofiler_configure",
    "rocprofiler_configure_attach",
    "rocprofiler_configure_experimental",
];

/// A library, the folders of its headers, and what it exports for other parts of the product, by names that are looked up.
const LIBRARIES: [(&str, &[&str], &[&str]); 4] = [
    (
        "librocprofiler-sdk.so.1",
        &["rocprofiler-sdk/"],
        &["midair_agent_enter"],
    ),
    (
        "librocprofiler-sdk-rocattach.so.1",
        &["rocprofiler-sdk-rocattach/"],
        &[],
    ),
    (
        "librocprofiler-sdk-roctx.so.1",
        &["rocprofiler-sdk-roctx/", "roctracer/"],
        // For registration libraries, and for profilers of the first generation.
        &[
            "rocprofiler_register_import_roctx",
            "roctxRegisterTracerCallback",
        ],
    ),
    // AMD's header does not declare these either: attachers and the SDK look them up.
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
        ],
    ),
];

/// Functions that the headers declare without a body, with the header: the compiler tells them.
fn declared() -> Result<Vec<(String, String)>> {
    let dir = tempfile::tempdir()?;
    let (source, list) = (dir.path().join("all.c"), dir.path().join("list"));
    let all: Vec<String> = all_headers()?
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
        // `/* FILE:LINE:NC */ extern TYPE NAME (PARAMETERS);`, and `NF` for a definition.
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
