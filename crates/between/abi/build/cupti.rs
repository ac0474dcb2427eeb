//! Generates the names of CUPTI's calls and enumerators, and the offsets of its records' fields in
//! each version.

use super::{Text, number, object, text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write;

/// The contents of `cupti_12.json`, `cupti_13.json`, `cupti_versions.json` `cuda_silent.json`
/// and `cuda_launches.json`.
pub struct Cupti {
    /// The headers of CUDA 12.
    pub twelve: Value,
    /// The headers of CUDA 13.
    pub thirteen: Value,
    /// The differences between the versions of CUDA 12 and 13.
    pub versions: Value,
    /// `cuda_silent.json`: calls that only ask for state.
    pub silent: Value,
    /// `cuda_launches.json`: calls that give the GPU work.
    pub launches: Value,
}

/// Enums whose enumerators become constants and names: module, C enum, the prefix to remove, and
/// the documentation of the module.
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

/// The records that we read: name in Rust, kind in `cupti_versions.json`, and the fields.
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

/// Returns `cupti_names.rs`: names of calls, and a module for each enum.
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
        if of == "DRIVER" {
            let launches = listed(&cupti.launches["driver"], &calls)?;
            writeln!(
                out,
                "/// Callback ids of the driver's calls that give the GPU work, in order (`cuda_launches.json`).\n\
                 pub static LAUNCHES: [u32; {}] = {launches:?};",
                launches.len()
            )?;
        }
        let silent = listed(&cupti.silent[&of.to_lowercase()], &calls)?;
        writeln!(
            out,
            "/// Callback ids of calls that only ask for state, in order (`cuda_silent.json`).\n\
             pub static SILENT_{of}: [u32; {}] = {silent:?};",
            silent.len()
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
        // The bits have another meaning in each kind of record, so a number alone has no name.
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

/// Returns the calls by callback id, each under its newest name.
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
                .ok_or_else(|| format!("{full} does not start with {prefix}"))?;
            let id = id.as_u64().ok_or_else(|| format!("{full} has no number"))?;
            if matches!(short, "INVALID" | "SIZE" | "FORCE_INT") || is_number(short) {
                continue;
            }
            calls.insert(id, without_version(short).to_owned());
        }
    }
    Ok(calls)
}

/// Returns the ids of the calls of a list of names, with all versions of these calls. It fails if
/// CUPTI has no call of a listed name.
fn listed(names: &Value, calls: &BTreeMap<u64, String>) -> Result<Vec<u64>, Box<dyn Error>> {
    let listed = names.as_array().ok_or("a list of calls is missing")?;
    let mut found = Vec::new();
    for name in listed {
        let name = name.as_str().ok_or("the name of a call is no text")?;
        let before = found.len();
        found.extend(
            calls
                .iter()
                .filter(|(_, call)| without_variant(call) == name)
                .map(|(id, _)| *id),
        );
        if found.len() == before {
            return Err(format!("CUPTI has no call {name}").into());
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Returns the name without its suffixes `_ptsz` and `_ptds` (the stream of each thread), `_v2` and
/// `_v3`.
fn without_variant(name: &str) -> &str {
    let mut name = name;
    while let Some((front, end)) = name.rsplit_once('_')
        && (matches!(end, "ptsz" | "ptds")
            || end.strip_prefix('v').is_some_and(|digits| {
                !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
            }))
    {
        name = front;
    }
    name
}

/// Returns whether a call's name is only a number, such as `cuda123` or `cuda123_v12000`. CUPTI
/// names the calls that are not public so.
fn is_number(name: &str) -> bool {
    without_version(name)
        .strip_prefix("cuda")
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
}

/// Returns the name without `_vNNNN`, the version of CUDA that introduced a runtime call. `_v2` is
/// part of a call's name.
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

/// Returns the enumerators of both versions. Sizes and counts are left out, and so is the
/// enumerator that only makes the enum 32 bits wide.
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

/// Returns `cupti_layouts.rs`: for each record a struct with the places of its fields, and the
/// values of these structs in each version.
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

/// Returns the value of one record's layout.
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

/// Turns `memcpy_peer` into `MemcpyPeerLayout`.
fn type_name(record: &str) -> String {
    let mut name = String::new();
    for word in record.split('_') {
        let mut letters = word.chars();
        name.extend(letters.next().map(|c| c.to_ascii_uppercase()));
        name.push_str(letters.as_str());
    }
    name + "Layout"
}

/// Turns `graphNodeId` into `graph_node_id`, and `objectId.pt.threadId` into `thread_id`. `type`
/// becomes `type_of`, since `type` is a keyword of Rust.
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
