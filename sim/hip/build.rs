//! Generates the tables and stubs of libamdhip64.so.7, and a library to link it against.

#[path = "../build/tables.rs"]
mod tables;

use std::error::Error;
use std::path::Path;
use std::process::Command;
use tables::{Form, Table};

/// The sizes in HIP 7.2.4 (source: `docs/sources.md#hip`), which has fewer functions than the
/// newest header.
const TABLES: [Table; 2] = [
    Table {
        name: "HIP",
        c_name: "HipDispatchTable",
        size: 4056,
        room: 4056,
        version: [0, 0],
    },
    Table {
        name: "COMPILER",
        c_name: "HipCompilerDispatchTable",
        size: 80,
        room: 80,
        version: [0, 0],
    },
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=../build/tables.rs");
    let here = std::env::var("CARGO_MANIFEST_DIR")?;
    let out = std::env::var("OUT_DIR")?;
    let json = Path::new(&here).join("../../api/hip_api_tables.json");
    println!("cargo:rerun-if-changed={}", json.display());
    let api = serde_json::from_str(&std::fs::read_to_string(&json)?)?;
    let words = tables::words(&Path::new(&here).join("src/api"))?;
    let text = tables::generate(&api, &TABLES, Form::Hip, &words)?;
    std::fs::write(Path::new(&out).join("tables.rs"), text)?;
    link(Path::new(&here), Path::new(&out))
}

/// Links the library so that it needs libhsa-runtime64.so.1 by name and finds it next to itself, as
/// AMD's does. Cargo does not link one cdylib against another. So the linker gets an empty library
/// with that SONAME, and with the names that `src/hsa.rs` declares.
fn link(here: &Path, out: &Path) -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=src/hsa.rs");
    let declared = std::fs::read_to_string(here.join("src/hsa.rs"))?;
    let names = declared.lines().filter_map(|line| {
        let rest = line.trim().strip_prefix("pub fn ")?;
        rest.split('(').next()
    });
    let source: String = names
        .map(|name| format!("void {name}(void) {{}}\n"))
        .collect();
    let file = out.join("names.c");
    std::fs::write(&file, source)?;
    let library = out.join("libhsa-runtime64.so.1");
    // The one of the processor that is compiled for, if cargo was given one.
    println!("cargo:rerun-if-env-changed=RUSTC_LINKER");
    let gcc = std::env::var("RUSTC_LINKER").unwrap_or_else(|_| "gcc".to_owned());
    let status = Command::new(&gcc)
        .args(["-shared", "-fPIC", "-nostdlib", "-fno-builtin"])
        .args(["-Wl,-soname,libhsa-runtime64.so.1", "-o"])
        .args([&library, &file])
        .status()
        .map_err(|error| format!("{gcc}: {error}"))?;
    if !status.success() {
        return Err(format!("{gcc}: {status}").into());
    }
    for argument in [
        "-soname,libamdhip64.so.7",
        "-z,nodelete",
        "-rpath,$ORIGIN",
        "--no-as-needed",
    ] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{argument}");
    }
    println!("cargo:rustc-cdylib-link-arg={}", library.display());
    Ok(())
}
