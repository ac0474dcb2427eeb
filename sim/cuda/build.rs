//! CUPTI's records, kinds and call numbers as C, from the JSON of its headers. The code that reads records in a target has a
//! generator of its own (`crates/abi`): an error in either makes the tests fail.

use serde_json::Value;
use std::error::Error;
use std::fmt::Write;
use std::path::Path;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Enumerations, by the newer header: it only adds to the older one.
const ENUMS: [&str; 9] = [
    "CUptiResult",
    "CUpti_ActivityKind",
    "CUpti_ActivityMemcpyKind",
    "CUpti_ActivityMemoryKind",
    "CUpti_ActivityMemoryOperationType",
    "CUpti_ActivitySynchronizationType",
    "CUpti_ActivityUnifiedMemoryCounterKind",
    "CUpti_driver_api_trace_cbid_enum",
    "CUpti_runtime_api_trace_cbid_enum",
];

/// Records that the stand-in writes, by header.
const RECORDS: [(&str, &[&str]); 2] = [
    (
        "12",
        &[
            "Kernel9",
            "Memcpy5",
            "Memcpy6",
            "MemcpyPtoP4",
            "Memset4",
            "API",
            "Marker2",
            "Synchronization",
            "Synchronization2",
            "Memory3",
            "Memory4",
            "UnifiedMemoryCounter2",
            "UnifiedMemoryCounter3",
        ],
    ),
    (
        "13",
        &["Kernel10", "Memcpy6", "MemcpyPtoP4", "Memset4", "Memory4"],
    ),
];

fn main() -> Outcome<()> {
    let here = std::env::var("CARGO_MANIFEST_DIR")?;
    let mut out = String::from("#pragma once\n#include <stddef.h>\n#include <stdint.h>\n");
    for (major, records) in RECORDS {
        let json = Path::new(&here).join(format!("../../api/cupti_{major}.json"));
        println!("cargo:rerun-if-changed={}", json.display());
        let api: Value = serde_json::from_str(&std::fs::read_to_string(&json)?)?;
        for record in records {
            structure(&mut out, &api, major, record)?;
        }
        if major == "13" {
            for name in ENUMS {
                enumeration(&mut out, &api, name)?;
            }
        }
    }
    let to = Path::new(&std::env::var("OUT_DIR")?).join("records.h");
    std::fs::write(to, out)?;
    Ok(())
}

fn enumeration(out: &mut String, api: &Value, name: &str) -> Outcome<()> {
    let values = api["enums"][name]["values"]
        .as_object()
        .ok_or_else(|| format!("no enumeration {name}"))?;
    writeln!(out, "enum {{")?;
    for (name, value) in values {
        writeln!(out, "    {name} = {value},")?;
    }
    writeln!(out, "}};")?;
    Ok(())
}

/// `struct v12_Kernel9`, every byte of it a member, with the places checked by the compiler.
fn structure(out: &mut String, api: &Value, major: &str, name: &str) -> Outcome<()> {
    let said = &api["structs"][format!("CUpti_Activity{name}")];
    let number = |value: &Value| value.as_u64().ok_or_else(|| format!("{name}: {value}"));
    let fields = said["fields"]
        .as_array()
        .ok_or_else(|| format!("no record {name}"))?;
    let (mut at, mut checks) = (0, String::new());
    writeln!(out, "struct v{major}_{name} {{")?;
    for field in fields {
        let (member, class) = (&field["name"], &field["class"]);
        let member = member.as_str().ok_or("a field without a name")?;
        let (offset, size) = (number(&field["offset"])?, number(&field["size"])?);
        if offset > at {
            writeln!(out, "    unsigned char gap{at}[{}];", offset - at)?;
        }
        match class.as_str() {
            Some("enum" | "uint") => writeln!(out, "    uint{}_t {member};", size * 8)?,
            Some("int") => writeln!(out, "    int{}_t {member};", size * 8)?,
            Some("ptr") => writeln!(out, "    const void *{member};")?,
            _ => writeln!(out, "    unsigned char {member}[{size}];")?,
        }
        writeln!(
            checks,
            "_Static_assert(offsetof(struct v{major}_{name}, {member}) == {offset}, \"\");"
        )?;
        at = offset + size;
    }
    let whole = number(&said["size"])?;
    if whole > at {
        writeln!(out, "    unsigned char gap{at}[{}];", whole - at)?;
    }
    writeln!(out, "}} __attribute__((packed, aligned(8)));")?;
    writeln!(
        out,
        "_Static_assert(sizeof(struct v{major}_{name}) == {whole}, \"\");\n{checks}"
    )?;
    Ok(())
}
