//! Generates the descriptions of the API tables whose slots we wrap.

use super::{Text, enumerators, number, text};
use serde_json::Value;
use std::collections::HashMap;
use std::error::Error;
use std::fmt::Write;

/// The JSON file that describes a library's tables.
#[derive(Clone, Copy)]
pub enum Api {
    /// hip_api_tables.json.
    Hip,
    /// hsa_api_tables.json.
    Hsa,
    /// roctx.json, converted by [`roctx`].
    Roctx,
    /// library_tables.json: libraries above HIP.
    Library,
}

/// The contents of the JSON files of all libraries' tables.
pub struct Apis {
    /// HIP.
    pub hip: Value,
    /// HSA.
    pub hsa: Value,
    /// ROCTx.
    pub roctx: Value,
    /// RCCL, rocDecode, rocJPEG.
    pub library: Value,
}

impl Apis {
    /// Returns the JSON of a table.
    pub fn of(&self, source: &Source) -> &Value {
        match source.api {
            Api::Hip => &self.hip,
            Api::Hsa => &self.hsa,
            Api::Roctx => &self.roctx,
            Api::Library => &self.library,
        }
    }
}

/// Converts roctx.json, which lists structs and function types, into the form of the other files.
pub fn roctx(raw: &Value) -> Result<Value, Box<dyn Error>> {
    let mut tables = serde_json::Map::new();
    for (name, table) in super::object(raw, &["structs"])? {
        if !name.ends_with("ApiTable_t") {
            continue;
        }
        let mut entries = Vec::new();
        for field in table
            .get("fields")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let Some(function) = text(field, "name")?.strip_suffix("_fn") else {
                continue;
            };
            let signature = super::object(raw, &["typedefs", text(field, "type")?])?;
            let mut entry = signature.clone();
            entry.insert("name".into(), function.into());
            entry.insert("offset".into(), number(field, "offset")?.into());
            entries.push(Value::Object(entry));
        }
        tables.insert(
            name.clone(),
            serde_json::json!({ "size": number(table, "size")?, "entries": entries }),
        );
    }
    Ok(serde_json::json!({ "tables": tables }))
}

/// One table: its C name, the enum of its operations, and our names for both.
pub struct Source {
    /// Name of the static in `tables.rs`.
    pub constant: &'static str,
    /// Variant of `TableId`.
    pub id: &'static str,
    /// C name of the struct.
    pub c_name: &'static str,
    /// The JSON file that describes the table.
    pub api: Api,
    /// Enum of AMD's operation ids and the prefix of its enumerators.
    pub operations: (&'static str, &'static str),
    /// AMD's buffer-tracing kind of the records that we write for it.
    pub kind: u8,
}

/// All tables, in the order of `TableId`.
pub const SOURCES: [Source; 12] = [
    Source {
        constant: "HIP_RUNTIME",
        id: "HipRuntime",
        c_name: "HipDispatchTable",
        api: Api::Hip,
        operations: (
            "rocprofiler_hip_runtime_api_id_t",
            "ROCPROFILER_HIP_RUNTIME_API_ID_",
        ),
        kind: 21,
    },
    Source {
        constant: "HIP_COMPILER",
        id: "HipCompiler",
        c_name: "HipCompilerDispatchTable",
        api: Api::Hip,
        operations: (
            "rocprofiler_hip_compiler_api_id_t",
            "ROCPROFILER_HIP_COMPILER_API_ID_",
        ),
        kind: 22,
    },
    Source {
        constant: "HSA_CORE",
        id: "HsaCore",
        c_name: "CoreApiTable",
        api: Api::Hsa,
        operations: (
            "rocprofiler_hsa_core_api_id_t",
            "ROCPROFILER_HSA_CORE_API_ID_",
        ),
        kind: 1,
    },
    Source {
        constant: "HSA_AMD_EXT",
        id: "HsaAmdExt",
        c_name: "AmdExtTable",
        api: Api::Hsa,
        operations: (
            "rocprofiler_hsa_amd_ext_api_id_t",
            "ROCPROFILER_HSA_AMD_EXT_API_ID_",
        ),
        kind: 2,
    },
    Source {
        constant: "HSA_IMAGE_EXT",
        id: "HsaImageExt",
        c_name: "ImageExtTable",
        api: Api::Hsa,
        operations: (
            "rocprofiler_hsa_image_ext_api_id_t",
            "ROCPROFILER_HSA_IMAGE_EXT_API_ID_",
        ),
        kind: 3,
    },
    Source {
        constant: "HSA_FINALIZE_EXT",
        id: "HsaFinalizeExt",
        c_name: "FinalizerExtTable",
        api: Api::Hsa,
        operations: (
            "rocprofiler_hsa_finalize_ext_api_id_t",
            "ROCPROFILER_HSA_FINALIZE_EXT_API_ID_",
        ),
        kind: 4,
    },
    Source {
        constant: "ROCTX_CORE",
        id: "RoctxCore",
        c_name: "roctxCoreApiTable_t",
        api: Api::Roctx,
        operations: (
            "rocprofiler_marker_core_api_id_t",
            "ROCPROFILER_MARKER_CORE_API_ID_",
        ),
        kind: 7,
    },
    Source {
        constant: "ROCTX_CONTROL",
        id: "RoctxControl",
        c_name: "roctxControlApiTable_t",
        api: Api::Roctx,
        operations: (
            "rocprofiler_marker_control_api_id_t",
            "ROCPROFILER_MARKER_CONTROL_API_ID_",
        ),
        kind: 8,
    },
    Source {
        constant: "ROCTX_NAME",
        id: "RoctxName",
        c_name: "roctxNameApiTable_t",
        api: Api::Roctx,
        operations: (
            "rocprofiler_marker_name_api_id_t",
            "ROCPROFILER_MARKER_NAME_API_ID_",
        ),
        kind: 9,
    },
    Source {
        constant: "RCCL",
        id: "Rccl",
        c_name: "rcclApiFuncTable",
        api: Api::Library,
        operations: ("rocprofiler_rccl_api_id_t", "ROCPROFILER_RCCL_API_ID_"),
        kind: 14,
    },
    Source {
        constant: "ROCDECODE",
        id: "Rocdecode",
        c_name: "RocDecodeDispatchTable",
        api: Api::Library,
        operations: (
            "rocprofiler_rocdecode_api_id_t",
            "ROCPROFILER_ROCDECODE_API_ID_",
        ),
        kind: 23,
    },
    Source {
        constant: "ROCJPEG",
        id: "Rocjpeg",
        c_name: "RocJpegDispatchTable",
        api: Api::Library,
        operations: (
            "rocprofiler_rocjpeg_api_id_t",
            "ROCPROFILER_ROCJPEG_API_ID_",
        ),
        kind: 19,
    },
];

/// A slot with its operation id. Slots without an enumerator of AMD's get ids behind the known
/// ones, in the order of their slots.
pub struct Slot<'a> {
    /// Name of the function.
    pub name: &'a str,
    /// Operation id.
    pub operation: i64,
    /// Whether the id is one of AMD's.
    pub known: bool,
    /// The JSON of the entry.
    pub entry: &'a Value,
}

/// Returns the functions of a table in the order of their slots.
pub fn slots<'a>(
    source: &Source,
    api: &'a Value,
    sdk: &Value,
) -> Result<Vec<Slot<'a>>, Box<dyn Error>> {
    let (enum_name, prefix) = source.operations;
    let known: HashMap<&str, i64> = enumerators(sdk, enum_name)?
        .into_iter()
        .filter_map(|(name, value)| Some((name.strip_prefix(prefix)?, value)))
        .collect();
    let mut next = known.values().max().map_or(0, |v| v + 1);
    let entries = api
        .pointer(&format!("/tables/{}/entries", source.c_name))
        .and_then(Value::as_array)
        .ok_or_else(|| format!("no table {}", source.c_name))?;
    let mut slots = Vec::new();
    for entry in entries.iter().filter(|e| e.get("params").is_some()) {
        let name = text(entry, "name")?;
        let (operation, is_known) = match known.get(name) {
            Some(value) => (*value, true),
            None => {
                next += 1;
                (next - 1, false)
            }
        };
        slots.push(Slot {
            name,
            operation,
            known: is_known,
            entry,
        });
    }
    Ok(slots)
}

/// Returns `tables.rs`: one static for each table.
pub fn generate(apis: &Apis, sdk: &Value) -> Text {
    let mut out = String::new();
    for source in &SOURCES {
        let api = apis.of(source);
        let size = api
            .pointer(&format!("/tables/{}/size", source.c_name))
            .and_then(Value::as_u64)
            .ok_or_else(|| format!("no size of {}", source.c_name))?;
        writeln!(
            out,
            "/// `{c}`.\npub static {n}: Table = Table {{ id: TableId::{id}, c_name: \"{c}\", kind: {kind}, size: {size}, \
             functions: &[",
            c = source.c_name,
            n = source.constant,
            id = source.id,
            kind = source.kind,
        )?;
        for slot in slots(source, api, sdk)? {
            function(&mut out, &slot).map_err(|e| format!("{}: {e}", slot.name))?;
        }
        out.push_str("] };\n");
    }
    Ok(out)
}

/// Writes a function. Returns the size of the struct of its arguments.
pub fn function(out: &mut String, slot: &Slot) -> Result<u64, Box<dyn Error>> {
    let entry = slot.entry;
    let parameters = entry
        .get("params")
        .and_then(Value::as_array)
        .ok_or("params is not a list")?;
    let result = c_type(entry.get("ret").ok_or("no ret")?)?;
    let (mut word, mut offset, mut stream, mut list) = (0, 0u64, None, String::new());
    let mut widest = 1;
    for (index, parameter) in parameters.iter().enumerate() {
        let ty = c_type(parameter)?;
        if ty.c == "hipStream_t" && stream.is_none() {
            stream = Some(index);
        }
        widest = widest.max(ty.align);
        offset = offset.next_multiple_of(ty.align);
        write!(
            list,
            "Parameter {{ name: {:?}, ty: {}, word: {word}, args_offset: {offset} }}, ",
            text(parameter, "name")?,
            ty.rust(),
        )?;
        word += ty.size.div_ceil(8);
        offset += ty.size;
    }
    writeln!(
        out,
        "Function {{ name: name(\"{}\\0\"), offset: {}, operation: {}, known: {}, result: {}, words: {word}, stream: \
         {stream:?}, parameters: &[{list}] }},",
        slot.name,
        number(entry, "offset")?,
        slot.operation,
        slot.known,
        result.rust(),
    )?;
    Ok(offset.next_multiple_of(widest))
}

/// A C type as the JSON describes it.
struct CType {
    c: String,
    class: &'static str,
    size: u64,
    align: u64,
}

impl CType {
    fn rust(&self) -> String {
        format!(
            "Type {{ c: {:?}, class: Class::{}, size: {} }}",
            self.c, self.class, self.size
        )
    }
}

fn c_type(value: &Value) -> Result<CType, Box<dyn Error>> {
    let c = text(value, "type")?
        .trim_start_matches("struct ")
        .to_owned();
    let size = number(value, "size")?;
    let class = match text(value, "class")? {
        "void" => "Void",
        "bool" => "Bool",
        "int" => "Int",
        "uint" => "Uint",
        "enum" => "Enum",
        "float" => "Float",
        "ptr" => "Pointer",
        "fnptr" => "Function",
        "struct" => "Struct",
        other => return Err(format!("unknown class {other:?} of {c}").into()),
    };
    // The JSON does not tell alignments. Scalars are aligned to their size. The alignments of
    // structs are listed by name (source: their fields in hip_types.json and hsa_types.json).
    let align = match (class, c.as_str()) {
        ("Void", _) => 1,
        ("Struct", "dim3" | "hipMemLocation" | "hipChannelFormatDesc") => 4,
        (
            "Struct",
            "hipIpcMemHandle_t" | "hipIpcEventHandle_t" | "hsa_fabric_handle_t" | "ncclUniqueId",
        ) => 1,
        ("Struct", "hipExtent" | "hipPos" | "hipPitchedPtr" | "hsa_ext_control_directives_t") => 8,
        ("Struct", _) if size == 8 => 8,
        ("Struct", _) => return Err(format!("the alignment of {c} is not known here").into()),
        _ => size,
    };
    Ok(CType {
        c,
        class,
        size,
        align,
    })
}
