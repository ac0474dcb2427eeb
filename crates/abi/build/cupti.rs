//! CUPTI: names of calls, enumerators, and where the fields of its records lie in each version.

use super::{Text, number, object, text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write;

/// `cupti_12.json`, `cupti_13.json` and `cupti_versions.json`.
pub struct Cupti {
    /// CUDA 12's.
    pub twelve: Value,
    /// CUDA 13's.
    pub thirteen: Value,
    /// What differs between the versions of both.
    pub versions: Value,
}

/// Enums whose enumerators become constants and names: module, C enum, what is left out in front, what the module says.
const ENUMS: &[(&str, &str, &str, &str)] = &[
    (
        "activity_kind",
        "CUpti_ActivityKind",
        "CUPTI_ACTIVITY_KIND_",
        "Kinds of activity",
    ),
    (
        "result",
        "CUptiResult",
        "CUPTI_",
        "What CUPTI's functions return",
    ),
    (
        "memory_kind",
        "CUpti_ActivityMemoryKind",
        "CUPTI_ACTIVITY_MEMORY_KIND_",
        "Kinds of memory",
    ),
    (
        "memcpy_kind",
        "CUpti_ActivityMemcpyKind",
        "CUPTI_ACTIVITY_MEMCPY_KIND_",
        "Directions of a copy",
    ),
    (
        "synchronization",
        "CUpti_ActivitySynchronizationType",
        "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_",
        "Kinds of wait",
    ),
    (
        "memory_operation",
        "CUpti_ActivityMemoryOperationType",
        "CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_",
        "What was done to memory",
    ),
    (
        "unified_memory",
        "CUpti_ActivityUnifiedMemoryCounterKind",
        "CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_",
        "What is counted of unified memory",
    ),
    (
        "unified_memory_scope",
        "CUpti_ActivityUnifiedMemoryCounterScope",
        "CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_SCOPE_",
        "For which devices it is counted",
    ),
    (
        "flag",
        "CUpti_ActivityFlag",
        "CUPTI_ACTIVITY_FLAG_",
        "Bits of a record's flags",
    ),
    (
        "attribute",
        "CUpti_ActivityAttribute",
        "CUPTI_ACTIVITY_ATTR_",
        "Attributes of the activity interface",
    ),
    (
        "thread_id_type",
        "CUpti_ActivityThreadIdType",
        "CUPTI_ACTIVITY_THREAD_ID_TYPE_",
        "Which number of a thread records have",
    ),
    (
        "object_kind",
        "CUpti_ActivityObjectKind",
        "CUPTI_ACTIVITY_OBJECT_",
        "What a marker belongs to",
    ),
];

/// Records that we read: name in Rust, kind in `cupti_versions.json`, and the fields.
const RECORDS: &[(&str, &str, &[&str])] = &[
    (
        "kernel",
        "CONCURRENT_KERNEL",
        &[
            "registersPerThread",
            "start",
            "end",
            "completed",
            "deviceId",
            "contextId",
            "streamId",
            "gridX",
            "gridY",
            "gridZ",
            "blockX",
            "blockY",
            "blockZ",
            "staticSharedMemory",
            "dynamicSharedMemory",
            "localMemoryPerThread",
            "correlationId",
            "name",
            "graphNodeId",
            "graphId",
        ],
    ),
    (
        "memcpy",
        "MEMCPY",
        &[
            "copyKind",
            "srcKind",
            "dstKind",
            "flags",
            "bytes",
            "start",
            "end",
            "deviceId",
            "contextId",
            "streamId",
            "correlationId",
            "graphNodeId",
            "graphId",
        ],
    ),
    (
        "memcpy_peer",
        "MEMCPY2",
        &[
            "copyKind",
            "srcKind",
            "dstKind",
            "flags",
            "bytes",
            "start",
            "end",
            "deviceId",
            "contextId",
            "streamId",
            "srcDeviceId",
            "dstDeviceId",
            "correlationId",
            "graphNodeId",
            "graphId",
        ],
    ),
    (
        "memset",
        "MEMSET",
        &[
            "value",
            "bytes",
            "start",
            "end",
            "deviceId",
            "contextId",
            "streamId",
            "correlationId",
            "memoryKind",
            "graphNodeId",
            "graphId",
        ],
    ),
    (
        "call",
        "RUNTIME",
        &[
            "cbid",
            "start",
            "end",
            "threadId",
            "correlationId",
            "returnValue",
        ],
    ),
    (
        "marker",
        "MARKER",
        &[
            "flags",
            "timestamp",
            "id",
            "objectKind",
            "objectId.pt.processId",
            "objectId.pt.threadId",
            "name",
            "domain",
        ],
    ),
    (
        "synchronization",
        "SYNCHRONIZATION",
        &[
            "type",
            "start",
            "end",
            "correlationId",
            "contextId",
            "streamId",
            "cudaEventId",
        ],
    ),
    (
        "memory",
        "MEMORY2",
        &[
            "memoryOperationType",
            "memoryKind",
            "correlationId",
            "address",
            "bytes",
            "timestamp",
            "deviceId",
            "contextId",
            "streamId",
            "name",
        ],
    ),
    (
        "unified_memory",
        "UNIFIED_MEMORY_COUNTER",
        &[
            "counterKind",
            "value",
            "start",
            "end",
            "address",
            "srcId",
            "dstId",
            "streamId",
        ],
    ),
];

/// `cupti_names.rs`: names of calls, and a module per enum.
pub fn names(cupti: &Cupti) -> Text {
    let mut out = String::new();
    for (function, of, enum_name) in [
        (
            "runtime_name",
            "RUNTIME",
            "CUpti_runtime_api_trace_cbid_enum",
        ),
        ("driver_name", "DRIVER", "CUpti_driver_api_trace_cbid_enum"),
    ] {
        let calls = calls(cupti, of, enum_name)?;
        let last = calls.keys().next_back().copied().unwrap_or(0);
        writeln!(out, "static {of}_NAMES: [&str; {}] = [", last + 1)?;
        for id in 0..=last {
            writeln!(out, "{:?},", calls.get(&id).map_or("", String::as_str))?;
        }
        writeln!(
            out,
            "];\n/// Name of the call with this callback id (`{enum_name}`), without the version that CUPTI puts behind a runtime call's.\n\
             /// `None` for what none of the known versions names: the id is to be shown then.\n\
             pub fn {function}(cbid: u32) -> Option<&'static str> {{ named(&{of}_NAMES, cbid) }}\n\
             /// The id that goes with [`{function}`]'s answer: for tests, and for choosing calls by name.\n\
             pub fn {}(name: &str) -> Option<u32> {{ {of}_NAMES.iter().position(|n| !name.is_empty() && *n == name).and_then(|at| u32::try_from(at).ok()) }}",
            function.replace("name", "cbid")
        )?;
    }
    for (module, enum_name, prefix, about) in ENUMS {
        writeln!(out, "/// {about} (`{enum_name}`).\npub mod {module} {{")?;
        let mut by_value: BTreeMap<u64, String> = BTreeMap::new();
        for (full, value) in enumerators(cupti, enum_name)? {
            let short = full.strip_prefix(prefix).unwrap_or(&full).to_owned();
            writeln!(out, "/// `{full}`.\npub const {short}: u32 = {value};")?;
            by_value.entry(value).or_insert(short);
        }
        // Bits mean something else in each kind of record, so there is no name for a number.
        if *module != "flag" {
            out.push_str(
                "/// What CUPTI calls it, without the prefix; `None` for what no known version has.\n\
                 pub fn name(value: u32) -> Option<&'static str> { Some(match value {\n",
            );
            for (value, name) in by_value {
                writeln!(out, "{value} => {name:?},")?;
            }
            out.push_str("_ => return None })}\n");
        }
        out.push_str("}\n");
    }
    Ok(out)
}

/// Calls by callback id, the newest name of each.
fn calls(cupti: &Cupti, of: &str, name: &str) -> Result<BTreeMap<u64, String>, Box<dyn Error>> {
    let prefix = format!("CUPTI_{of}_TRACE_CBID_");
    let mut calls = BTreeMap::new();
    for values in [
        object(&cupti.twelve, &["enums", name, "values"])?,
        object(&cupti.thirteen, &["enums", name, "values"])?,
        object(&cupti.versions, &["callbacks", name])?,
    ] {
        for (full, id) in values {
            let short = full
                .strip_prefix(&prefix)
                .ok_or_else(|| format!("{full} does not begin with {prefix}"))?;
            let id = id.as_u64().ok_or_else(|| format!("{full} has no number"))?;
            if matches!(short, "INVALID" | "SIZE" | "FORCE_INT") || is_number(short) {
                continue;
            }
            calls.insert(id, without_version(short).to_owned());
        }
    }
    Ok(calls)
}

/// `cuda123` or `cuda123_v12000`: a call that is not public has its number for a name.
fn is_number(name: &str) -> bool {
    without_version(name)
        .strip_prefix("cuda")
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
}

/// Without `_vNNNN`, the version of CUDA in which a runtime call came; `_v2` is part of a call's name.
fn without_version(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((front, digits))
            if digits.len() >= 4 && digits.bytes().all(|b| b.is_ascii_digit()) =>
        {
            front
        }
        _ => name,
    }
}

/// Enumerators of both versions, without sizes, counts and what only makes the enum 32 bits wide.
fn enumerators(cupti: &Cupti, name: &str) -> Result<BTreeMap<String, u64>, Box<dyn Error>> {
    let mut all = BTreeMap::new();
    for source in [&cupti.twelve, &cupti.thirteen] {
        for (full, value) in object(source, &["enums", name, "values"])? {
            let value = value
                .as_u64()
                .ok_or_else(|| format!("{full} has no number"))?;
            if !full.ends_with("FORCE_INT") && !full.ends_with("_COUNT") && !full.ends_with("_SIZE")
                || full.ends_with("BUFFER_SIZE")
                || full.ends_with("POOL_SIZE")
            {
                all.insert(full.clone(), value);
            }
        }
    }
    Ok(all)
}

/// `cupti_layouts.rs`: a struct of places per record, and their values for each version.
pub fn layouts(cupti: &Cupti) -> Text {
    let mut out = String::new();
    for (record, kind, fields) in RECORDS {
        writeln!(
            out,
            "/// Where the fields of a `{kind}` record lie.\n#[derive(Debug, Clone, Copy, PartialEq, Eq)]\npub struct {} {{\n\
             /// Bytes of the record.\npub size: usize,",
            type_name(record)
        )?;
        for field in *fields {
            writeln!(out, "/// `{field}`.\npub {}: Place,", snake(field))?;
        }
        out.push_str("}\n");
    }
    out.push_str(
        "/// Layouts of one version of CUPTI.\n#[derive(Debug, Clone, Copy, PartialEq, Eq)]\npub struct Layouts {\n\
         /// CUDA's version: major, minor.\npub cuda: (u32, u32),\n\
         /// What `cuptiGetVersion` says.\npub api: u32,\n",
    );
    for (record, kind, _) in RECORDS {
        writeln!(out, "/// `{kind}`.\npub {record}: {},", type_name(record))?;
    }
    let versions = cupti
        .versions
        .get("versions")
        .and_then(Value::as_array)
        .ok_or("cupti_versions.json has no versions")?;
    writeln!(
        out,
        "}}\n/// The versions that we know, oldest first.\npub static LAYOUTS: [Layouts; {}] = [",
        versions.len()
    )?;
    for version in versions {
        let (major, minor) = text(version, "cuda")?
            .split_once('.')
            .ok_or("a version is major.minor")?;
        writeln!(
            out,
            "Layouts {{ cuda: ({major}, {minor}), api: {},",
            number(version, "api")?
        )?;
        for (record, kind, fields) in RECORDS {
            let name = version
                .get("structs")
                .map(|structs| text(structs, kind))
                .ok_or("a version has no structs")??;
            out.push_str(&one(cupti, record, name, fields)?);
        }
        out.push_str("},\n");
    }
    out.push_str("];\n");
    Ok(out)
}

/// The value of one record's layout.
fn one(cupti: &Cupti, record: &str, name: &str, fields: &[&str]) -> Text {
    let layout = cupti
        .versions
        .get("structs")
        .and_then(|structs| structs.get(name))
        .ok_or_else(|| format!("no struct {name}"))?;
    let size = number(layout, "size")?;
    let mut out = format!("{record}: {} {{ size: {size},", type_name(record));
    for field in fields {
        let place = layout
            .get("fields")
            .and_then(|all| all.get(field))
            .and_then(Value::as_array)
            .ok_or_else(|| format!("{name} has no {field}"))?;
        let at = |i: usize| place.get(i).and_then(Value::as_u64).unwrap_or(u64::MAX);
        let (offset, width) = (at(0), at(1));
        if offset.checked_add(width).is_none_or(|end| end > size) {
            return Err(format!("{name}.{field} does not lie in its struct").into());
        }
        write!(
            out,
            "{}: Place {{ offset: {offset}, width: {width} }},",
            snake(field)
        )?;
    }
    out.push_str("},\n");
    Ok(out)
}

/// `memcpy_peer` to `MemcpyPeerLayout`.
fn type_name(record: &str) -> String {
    let mut name = String::new();
    for word in record.split('_') {
        let mut letters = word.chars();
        name.extend(letters.next().map(|c| c.to_ascii_uppercase()));
        name.push_str(letters.as_str());
    }
    name + "Layout"
}

/// `graphNodeId` to `graph_node_id`, `objectId.pt.threadId` to `thread_id`; `type` is a word of Rust.
fn snake(field: &str) -> String {
    let mut name = String::new();
    let field = field.rsplit('.').next().unwrap_or(field);
    for c in field.chars() {
        if c.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(c.to_ascii_lowercase());
    }
    if name == "type" {
        name.push_str("_of");
    }
    name
}
