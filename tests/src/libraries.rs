//! Stand-ins for libraries above HIP (RCCL, rocDecode, rocJPEG), made from
//! `api/library_tables.json`.
//!
//! Each is compiled from C++ in the shape of the real library: exported functions call through a
//! table that a function-local static holds. When the table is made, it is passed to a registration
//! library if there is one. The functions only write to a log what they are asked to do, with their
//! arguments.

use crate::{Result, compile, stage::plain_environment, target::run, workspace};
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A library: its table, SONAME, the name under which it registers, and its version.
const LIBRARIES: [(&str, &str, &str, u32); 3] = [
    ("rcclApiFuncTable", "librccl.so.1", "rccl", 22203),
    (
        "RocDecodeDispatchTable",
        "librocdecode.so.0",
        "rocdecode",
        1000,
    ),
    ("RocJpegDispatchTable", "librocjpeg.so.0", "rocjpeg", 600),
];

/// The variable that names the file to which the functions write.
pub const LOG: &str = "LIBRARIES_LOG";

const PRELUDE: &str = r#"#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>
struct ncclUniqueId { char internal[128]; };
static void say(const char* line)
{
    const char* const name = getenv("LIBRARIES_LOG");
    const int file = name != nullptr ? open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (file < 0) return;
    if (write(file, line, strlen(line)) < 0) abort();
    close(file);
}
[[maybe_unused]] static unsigned long word(const void* value) { return (unsigned long) value; }
[[maybe_unused]] static unsigned long word(unsigned long value) { return value; }
[[maybe_unused]] static unsigned long word(int value) { return (unsigned long) value; }
[[maybe_unused]] static unsigned long word(const ncclUniqueId& id) { return id.internal[0] + 1000 * id.internal[127]; }
"#;

/// Returns a plain C++ type of the same size and class.
fn plain(ty: &Value) -> Result<String> {
    let class = ty["class"].as_str().ok_or("a type has a class")?;
    Ok(match (class, ty["size"].as_u64()) {
        ("ptr", _) => "void*",
        ("enum" | "int", Some(4)) => "int",
        ("uint", Some(8)) => "unsigned long",
        ("struct", Some(128)) => "ncclUniqueId",
        other => return Err(format!("no type for {other:?}").into()),
    }
    .to_owned())
}

fn source(table: &Value, register_as: &str, version: u32) -> Result<String> {
    let mut out = PRELUDE.to_owned();
    let (mut slots, mut filled, mut stubs) = (String::new(), String::new(), String::new());
    for entry in table["entries"].as_array().ok_or("entries")? {
        let Some(name) = entry["name"].as_str() else {
            continue;
        };
        let types: Vec<String> = entry["params"]
            .as_array()
            .ok_or("parameters")?
            .iter()
            .map(plain)
            .collect::<Result<_>>()?;
        let numbered: Vec<String> = (0..types.len()).map(|n| format!("a{n}")).collect();
        let parameters: Vec<String> = types
            .iter()
            .zip(&numbered)
            .map(|(ty, name)| format!("{ty} {name}"))
            .collect();
        let (parameters, list) = (parameters.join(", "), numbered.join(", "));
        let is_text = entry["ret"]["class"] == "ptr";
        let result = if is_text { "const char*" } else { "int" };
        let words: Vec<String> = numbered
            .iter()
            .map(|name| format!(", word({name})"))
            .collect();
        write!(
            out,
            "static {result} real_{name}({parameters})\n{{\n    char line[512];\n    \
             snprintf(line, sizeof line, \"{name}{}\\n\"{});\n    say(line);\n    return {};\n}}\n",
            " %lu".repeat(types.len()),
            words.concat(),
            if is_text { "\"a text\"" } else { "0" },
        )?;
        writeln!(slots, "    {result} (*{name}_fn)({});", types.join(", "))?;
        writeln!(filled, "    table.{name}_fn = real_{name};")?;
        writeln!(
            stubs,
            "extern \"C\" {result} {name}({parameters}) {{ return table()->{name}_fn({list}); }}"
        )?;
    }
    write!(
        out,
        "struct Table\n{{\n    size_t size;\n{slots}}};\n\
         extern \"C\" unsigned rocprofiler_register_import_{register_as}() {{ return 1; }}\n\
         static Table make()\n{{\n    Table table;\n    table.size = sizeof table;\n{filled}    return table;\n}}\n\
         static void tell(Table* table)\n{{\n    \
         void* const library = dlopen(\"librocprofiler-register.so.0\", RTLD_LAZY | RTLD_LOCAL);\n    \
         auto* const tell = library != nullptr ? (int (*)(const char*, unsigned (*)(), unsigned, void**, unsigned long, void*)) \
         dlsym(library, \"rocprofiler_register_library_api_table\") : nullptr;\n    \
         void* tables[] = {{table}};\n    unsigned long id = 0;\n    \
         if (tell != nullptr) tell(\"{register_as}\", &rocprofiler_register_import_{register_as}, {version}, tables, 1, &id);\n}}\n\
         static Table the;\n\
         __attribute__((noinline)) static Table* first()\n{{\n    the = make();\n    tell(&the);\n    return &the;\n}}\n\
         __attribute__((noinline)) static Table* table()\n{{\n    static Table* const made = first();\n    return made;\n}}\n{stubs}"
    )?;
    Ok(out)
}

/// Compiles the stand-ins into `dir`.
///
/// # Errors
/// Returns what the compiler said.
pub fn lay_out(dir: &Path) -> Result<()> {
    let json = std::fs::read_to_string(workspace().join("api/library_tables.json"))?;
    let api: Value = serde_json::from_str(&json)?;
    for (table, soname, register_as, version) in LIBRARIES {
        let file = dir.join(format!("{register_as}.cpp"));
        std::fs::write(&file, source(&api["tables"][table], register_as, version)?)?;
        let mut compiler = Command::new("g++");
        compiler.env_clear().envs(plain_environment());
        compiler
            .args(["-std=c++17", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra"])
            .args(["-Werror", "-o"])
            .arg(dir.join(soname))
            .arg(file)
            .args([&format!("-Wl,-soname,{soname}"), "-Wl,-z,nodelete", "-ldl"]);
        run(compiler, Duration::from_secs(120))?.success()?;
    }
    Ok(())
}

/// Compiles `tests/c/libraries.c` against the stand-ins in `dir` and returns the program's path.
///
/// # Errors
/// Returns what the compiler said.
pub fn program(dir: &Path, more: &[String]) -> Result<std::path::PathBuf> {
    let program = dir.join("libraries");
    let mut compiler = Command::new("gcc");
    compiler.env_clear().envs(plain_environment());
    compiler
        .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(compile::sources().join("libraries.c"))
        .arg(format!("-L{}", dir.display()))
        .arg(format!("-Wl,-rpath,{}", dir.display()))
        .args(LIBRARIES.map(|(_, soname, ..)| format!("-l:{soname}")))
        .args(more);
    run(compiler, Duration::from_secs(120))?.success()?;
    Ok(program)
}

/// Returns how often each function was called, by the libraries' log.
///
/// # Errors
/// Fails when the log cannot be read.
pub fn calls(log: &Path) -> Result<crate::caller::Counts> {
    let mut counts = crate::caller::Counts::new();
    let text = match std::fs::read_to_string(log) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error.into()),
    };
    for line in text.lines() {
        let name = line.split(' ').next().unwrap_or_default();
        *counts.entry(name.to_owned()).or_default() += 1;
    }
    Ok(counts)
}
