//! Generates the tables and stubs of libhsa-runtime64.so.1.

#[path = "../build/tables.rs"]
mod tables;

use std::error::Error;
use std::path::Path;
use tables::{Form, Table};

/// Sizes and versions of ROCr 7.2.4 (source: `docs/sources.md#hsa`).
const TABLES: [Table; 5] = [
    Table {
        name: "CORE",
        c_name: "CoreApiTable",
        size: 1016,
        room: 1016,
        version: [2, 0],
    },
    Table {
        name: "AMD_EXT",
        c_name: "AmdExtTable",
        size: 624,
        // Room for the slots of ROCm 10 (760 bytes), and for two that no header knows.
        room: 776,
        version: [2, 8],
    },
    Table {
        name: "FINALIZER",
        c_name: "FinalizerExtTable",
        size: 64,
        room: 64,
        version: [2, 0],
    },
    Table {
        name: "IMAGE",
        c_name: "ImageExtTable",
        size: 128,
        room: 128,
        version: [2, 1],
    },
    // Tools fill the entries of this table. The stand-in never has anything to report to them.
    Table {
        name: "TOOLS",
        c_name: "ToolsApiTable",
        size: 64,
        room: 64,
        version: [1, 0],
    },
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libhsa-runtime64.so.1");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=../build/tables.rs");
    let here = std::env::var("CARGO_MANIFEST_DIR")?;
    let json = Path::new(&here).join("../../api/hsa_api_tables.json");
    println!("cargo:rerun-if-changed={}", json.display());
    let api = serde_json::from_str(&std::fs::read_to_string(&json)?)?;
    let words = tables::words(&Path::new(&here).join("src/api"))?;
    let text = tables::generate(&api, &TABLES, Form::Hsa, &words)?;
    std::fs::write(
        Path::new(&std::env::var("OUT_DIR")?).join("tables.rs"),
        text,
    )?;
    Ok(())
}
