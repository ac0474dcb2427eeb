//! Generates CUPTI's records, kinds and call numbers as C, from the JSON of its headers. The code
//! that reads the records in a target has a generator of its own (`crates/between/abi`), so that an error
//! in either makes the tests fail.

use serde_json::Value;
use std::error::Error;
use std::fmt::Write;
use std::path::Path;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Enumerations, as the newer header has them: it only adds to the older one.
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

/// Records that the stand-in writes, by the major version of the header that has them.
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

/// Records of headers newer than the two, from `cupti_versions.json`, which has only places and
/// sizes.
const NEWER: [&str; 5] = ["Kernel11", "Kernel12", "Kernel13", "Memcpy7", "Memset5"];

fn main() -> Outcome<()> {
    let here = std::env::var("CARGO_MANIFEST_DIR")?;
    let mut out = String::from("#pragma once\n#include <stddef.h>\n#include <stdint.h>\n");
    let read = |name: &str| -> Outcome<Value> {
        let json = Path::new(&here).join("../../api").join(name);
        println!("cargo:rerun-if-changed={}", json.display());
        Ok(serde_json::from_str(&std::fs::read_to_string(&json)?)?)
    };
    for (major, records) in RECORDS {
        let api = read(&format!("cupti_{major}.json"))?;
        for record in records {
            structure(&mut out, &api, major, record)?;
        }
        if major == "13" {
            for name in ENUMS {
                enumeration(&mut out, &api, name)?;
            }
        }
    }
    let versions = read("cupti_versions.json")?;
    for record in NEWER {
        newer(&mut out, &versions, record)?;
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

/// A member of a record.
struct Member {
    name: String,
    class: String,
    offset: u64,
    size: u64,
}

fn number(value: &Value) -> Outcome<u64> {
    Ok(value
        .as_u64()
        .ok_or_else(|| format!("{value} is no number"))?)
}

fn structure(out: &mut String, api: &Value, major: &str, name: &str) -> Outcome<()> {
    let said = &api["structs"][format!("CUpti_Activity{name}")];
    let mut members = Vec::new();
    for field in said["fields"]
        .as_array()
        .ok_or_else(|| format!("no record {name}"))?
    {
        let text = |key: &str| field[key].as_str().unwrap_or_default().to_owned();
        members.push(Member {
            name: text("name"),
            class: text("class"),
            offset: number(&field["offset"])?,
            size: number(&field["size"])?,
        });
    }
    write_structure(
        out,
        &format!("v{major}_{name}"),
        number(&said["size"])?,
        &members,
    )
}

fn newer(out: &mut String, versions: &Value, name: &str) -> Outcome<()> {
    let said = &versions["structs"][format!("CUpti_Activity{name}")];
    let mut members = Vec::new();
    for (field, place) in said["fields"]
        .as_object()
        .ok_or_else(|| format!("no record {name}"))?
    {
        members.push(Member {
            class: if field == "name" { "ptr" } else { "uint" }.to_owned(),
            name: field.clone(),
            offset: number(&place[0])?,
            size: number(&place[1])?,
        });
    }
    members.sort_by_key(|member| member.offset);
    write_structure(
        out,
        &format!("newer_{name}"),
        number(&said["size"])?,
        &members,
    )
}

/// Writes a struct such as `struct v12_Kernel9`. Every byte of it belongs to a member, and the
/// compiler checks the members' places.
fn write_structure(out: &mut String, name: &str, whole: u64, members: &[Member]) -> Outcome<()> {
    let (mut at, mut checks) = (0, String::new());
    writeln!(out, "struct {name} {{")?;
    for Member {
        name: member,
        class,
        offset,
        size,
    } in members
    {
        if *offset > at {
            writeln!(out, "    unsigned char gap{at}[{}];", offset - at)?;
        }
        match class.as_str() {
            "enum" | "uint" if [1, 2, 4, 8].contains(size) => {
                writeln!(out, "    uint{}_t {member};", size * 8)?;
            }
            "int" => writeln!(out, "    int{}_t {member};", size * 8)?,
            "ptr" => writeln!(out, "    const void *{member};")?,
            _ => writeln!(out, "    unsigned char {member}[{size}];")?,
        }
        writeln!(
            checks,
            "_Static_assert(offsetof(struct {name}, {member}) == {offset}, \"\");"
        )?;
        at = offset + size;
    }
    if whole > at {
        writeln!(out, "    unsigned char gap{at}[{}];", whole - at)?;
    }
    writeln!(out, "}} __attribute__((packed, aligned(8)));")?;
    writeln!(
        out,
        "_Static_assert(sizeof(struct {name}) == {whole}, \"\");\n{checks}"
    )?;
    Ok(())
}
