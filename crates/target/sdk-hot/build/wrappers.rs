//! Generates one typed wrapper for each slot of the API tables, the pointers to the original
//! functions that the wrappers call, and the list of both.

use midair_abi::tables::{ALL, Class, Function, Parameter, Table, TableId, Type};
use std::error::Error;
use std::fmt::Write;

/// Returns the module of a table's wrappers.
fn module(id: TableId) -> &'static str {
    match id {
        TableId::HipRuntime => "hip_runtime",
        TableId::HipCompiler => "hip_compiler",
        TableId::HsaCore => "hsa_core",
        TableId::HsaAmdExt => "hsa_amd_ext",
        TableId::HsaImageExt => "hsa_image_ext",
        TableId::HsaFinalizeExt => "hsa_finalize_ext",
        TableId::RoctxCore => "roctx_core",
        TableId::RoctxControl => "roctx_control",
        TableId::RoctxName => "roctx_name",
        TableId::Rccl => "rccl",
        TableId::Rocdecode => "rocdecode",
        TableId::Rocjpeg => "rocjpeg",
    }
}

/// Returns whether a table is one of ROCTx. Its calls become records with a message, or ranges.
fn is_roctx(id: TableId) -> bool {
    matches!(
        id,
        TableId::RoctxCore | TableId::RoctxControl | TableId::RoctxName
    )
}

/// Returns whether a table starts with `{u32 major, u32 minor = size, …}`.
fn is_hsa(id: TableId) -> bool {
    matches!(
        id,
        TableId::HsaCore | TableId::HsaAmdExt | TableId::HsaImageExt | TableId::HsaFinalizeExt
    )
}

/// Returns the Rust type that the System V x86-64 calling convention passes like the C type.
/// Structs of 8 bytes contain only integers (HSA handles, hipMemLocation), so they are passed like
/// a u64.
fn rust_type(ty: &Type) -> Result<&'static str, Box<dyn Error>> {
    Ok(match (ty.class, ty.size) {
        (Class::Void, _) => "()",
        (Class::Bool | Class::Uint, 1) => "u8",
        (Class::Uint, 2) => "u16",
        (Class::Uint | Class::Enum, 4) => "u32",
        (Class::Uint, 8) => "u64",
        (Class::Int, 4) => "i32",
        (Class::Int, 8) => "i64",
        (Class::Float, 4) => "f32",
        (Class::Pointer | Class::Function, 8) => "*mut c_void",
        (Class::Struct, 8) => "u64",
        (Class::Struct, size) => match (ty.c, size) {
            ("dim3", 12) => "Dim3",
            ("hipExtent", 24) => "Extent",
            ("hipPitchedPtr", 32) => "PitchedPtr",
            ("hipIpcMemHandle_t" | "hipIpcEventHandle_t", 64) => "IpcHandle",
            ("hsa_fabric_handle_t", 16) => "FabricHandle",
            ("ncclUniqueId", 128) => "UniqueId",
            ("hipChannelFormatDesc", 20) => "ChannelFormatDesc",
            ("hsa_ext_control_directives_t", 144) => "ControlDirectives",
            _ => return Err(format!("no Rust type for struct {} of {size} bytes", ty.c).into()),
        },
        _ => return Err(format!("no Rust type for {ty:?}").into()),
    })
}

/// Returns the expressions that turn a value into the words of a record.
fn words(ty: &Type, value: &str) -> Vec<String> {
    match (ty.class, ty.size) {
        (Class::Void, _) => Vec::new(),
        (Class::Uint | Class::Struct, 8) => vec![value.to_owned()],
        (Class::Int, 4) => vec![format!("i64::from({value}) as u64")],
        (Class::Int, _) => vec![format!("{value} as u64")],
        (Class::Float, _) => vec![format!("u64::from({value}.to_bits())")],
        (Class::Pointer | Class::Function, _) => vec![format!("{value} as u64")],
        (Class::Struct, size) => (0..size.div_ceil(8))
            .map(|i| format!("word(&{value}, {i})"))
            .collect(),
        _ => vec![format!("u64::from({value})")],
    }
}

/// Returns the kind of the records of a table's calls.
fn record_kind(table: &Table) -> Result<u8, Box<dyn Error>> {
    midair_domain::of_buffer_kind(i32::from(table.kind))
        .map(|domain| domain.kind)
        .ok_or_else(|| format!("no domain has the calls of {}", table.c_name).into())
}

/// Returns `wrappers.rs`.
pub fn generate() -> Result<String, Box<dyn Error>> {
    let mut out = String::new();
    let mut originals = String::new();
    for table in ALL {
        table_module(&mut out, &mut originals, table)?;
    }
    writeln!(
        out,
        "/// Calls the runtime's own functions, bypassing every wrapper. The table must have been adopted.\n\
         pub mod original {{\nuse super::*;\n{originals}}}"
    )?;
    writeln!(
        out,
        "/// Every table, indexed by [`midair_abi::tables::TableId`].\npub static TABLES: [Table; {}] = [",
        ALL.len()
    )?;
    for table in ALL {
        writeln!(
            out,
            "Table {{ id: TableId::{:?}, name: {:?}, kind: {}, hsa: {}, size: {}, slots: {}::SLOTS }},",
            table.id,
            table.c_name,
            record_kind(table)?,
            is_hsa(table.id),
            table.size,
            module(table.id),
        )?;
    }
    out.push_str("];\n");
    Ok(out)
}

fn table_module(
    out: &mut String,
    originals: &mut String,
    table: &Table,
) -> Result<(), Box<dyn Error>> {
    let module = module(table.id);
    let count = table.functions.len();
    writeln!(
        out,
        "/// Wrappers of `{}`.\npub mod {module} {{\nuse super::*;\n\
         /// What the slots held before ours were put in; null until then.\n\
         pub static ORIGINALS: [AtomicPtr<()>; {count}] = [const {{ AtomicPtr::new(std::ptr::null_mut()) }}; {count}];",
        table.c_name,
    )?;
    let mut slots = String::new();
    for (index, function) in table.functions.iter().enumerate() {
        let signature = Signature::of(function).map_err(|e| format!("{}: {e}", function.name))?;
        wrapper(out, table, index, function, &signature)?;
        let name = function.name.as_str();
        writeln!(
            slots,
            "Slot {{ name: \"{name}\", offset: {}, operation: {}, wrapper: {name} as *const (), original: \
             &ORIGINALS[{index}], has_stream: {} }},",
            function.offset,
            function.operation,
            function.stream.is_some(),
        )?;
        // The SAFETY comments are part of the output, because the rules for unsafe code hold there,
        // too.
        writeln!(
            originals,
            "/// The runtime's `{name}`.\n///\n/// # Safety\n/// As the C function; its table must have been adopted.\n\
             #[inline]\npub unsafe fn {name}({params}) -> {ret} {{\n\
             // SAFETY: an adopted slot of this name holds a function of this type; the caller keeps its contract.\n\
             unsafe {{ transmute::<*mut (), {ty}>({module}::ORIGINALS[{index}].load(Relaxed))({args}) }}\n}}",
            params = signature.parameters,
            ret = signature.result,
            ty = signature.pointer,
            args = signature.arguments,
        )?;
    }
    if table.id == TableId::HipRuntime {
        launches(out, table)?;
    }
    writeln!(
        out,
        "/// Its slots in order.\npub static SLOTS: &[Slot] = &[\n{slots}];\n}}"
    )?;
    Ok(())
}

/// Writes a bit set of the operations that launch kernels which the program names.
fn launches(out: &mut String, table: &Table) -> Result<(), Box<dyn Error>> {
    let mut words: Vec<u64> = Vec::new();
    for function in table.functions {
        let name = function.name.as_str();
        if name.contains("Launch") && !name.contains("HostFunc") {
            let (word, bit) = (function.operation as usize / 64, function.operation % 64);
            words.resize(words.len().max(word + 1), 0);
            if let Some(word) = words.get_mut(word) {
                *word |= 1 << bit;
            }
        }
    }
    writeln!(
        out,
        "/// Operations that launch kernels which the program names, a bit each.\n\
         pub const LAUNCHES: [u64; {}] = {words:?};",
        words.len()
    )?;
    let last = table.functions.iter().map(|it| it.operation).max();
    let mut steps = vec!["None"; last.map_or(0, |last| last as usize + 1)];
    for function in table.functions {
        if let Some(step) = steps.get_mut(function.operation as usize) {
            *step = graph_step(function);
        }
    }
    let steps: Vec<String> = steps.iter().map(|step| format!("Step::{step}")).collect();
    writeln!(
        out,
        "use crate::probe::graph_steps::Step;\n\
         /// Which step towards the kernels of a graph each operation is.\n\
         pub(crate) static GRAPH_STEPS: [Step; {}] = [{}];",
        steps.len(),
        steps.join(", ")
    )?;
    // What happens to HIP's executable graphs and to its events.
    for (constant, name) in [
        ("GRAPH_LAUNCH", "hipGraphLaunch"),
        ("GRAPH_LAUNCH_SPT", "hipGraphLaunch_spt"),
        ("GRAPH_EXEC_DESTROY", "hipGraphExecDestroy"),
        ("EVENT_RECORD", "hipEventRecord"),
        ("EVENT_RECORD_SPT", "hipEventRecord_spt"),
        ("EVENT_RECORD_WITH_FLAGS", "hipEventRecordWithFlags"),
        ("STREAM_WAIT_EVENT", "hipStreamWaitEvent"),
        ("STREAM_WAIT_EVENT_SPT", "hipStreamWaitEvent_spt"),
    ] {
        let mut all = table.functions.iter();
        let function = all
            .find(|function| function.name.as_str() == name)
            .ok_or("a function of graphs or events is not in the table")?;
        writeln!(
            out,
            "/// The operation of `{name}`.\npub const {constant}: u32 = {};",
            function.operation
        )?;
    }
    Ok(())
}

/// Returns which step towards the kernels of a graph a function is: a variant of
/// `crate::probe::graph_steps::Step`.
fn graph_step(function: &Function) -> &'static str {
    match function.name.as_str() {
        "hipStreamBeginCapture" | "hipStreamBeginCapture_spt" => "Begin",
        "hipStreamBeginCaptureToGraph" => "BeginToGraph",
        "hipStreamEndCapture" | "hipStreamEndCapture_spt" => "End",
        "hipGraphInstantiate"
        | "hipGraphInstantiateWithFlags"
        | "hipGraphInstantiateWithParams" => "Instantiate",
        "hipGraphClone" => "Copy",
        "hipGraphExecUpdate" => "Update",
        "hipGraphCreate" => "Create",
        "hipGraphDestroy" | "hipGraphExecDestroy" => "Destroy",
        "hipGraphLaunch" | "hipGraphLaunch_spt" => "Replay",
        // Nodes that are added, to a graph that is the second argument. Those that copy, fill and wait launch
        // no kernels of the program's.
        "hipGraphAddKernelNode" => "AddKernel",
        "hipGraphAddNode" => "AddAny",
        "hipGraphAddChildGraphNode" => "AddChild",
        "hipGraphExecKernelNodeSetParams" => "SetKernel",
        "hipGraphExecNodeSetParams" => "SetAny",
        // Nodes and their order that are changed in a graph, or on a stream that is captured.
        "hipGraphExecChildGraphNodeSetParams"
        | "hipGraphNodeSetEnabled"
        | "hipGraphRemoveDependencies"
        | "hipStreamUpdateCaptureDependencies" => "ChangeFirst",
        // Nodes of which the call does not say the graph.
        "hipGraphKernelNodeSetParams" | "hipGraphNodeSetParams" | "hipGraphDestroyNode" => {
            "ChangeAny"
        }
        name if name.contains("MultiDevice") || name.contains("HostFunc") => "None",
        name if name.contains("Launch") => match function.parameters {
            [_, grid, ..] if grid.ty.c == "dim3" => "LaunchByDim3",
            [_, grid, ..] if grid.name == "gridDimX" => "LaunchByBlocks",
            [_, grid, ..] if grid.name == "globalWorkSizeX" => "LaunchByItems",
            [config, ..] if config.name == "config" => "LaunchByConfig",
            _ => "LaunchUnknown",
        },
        _ => "None",
    }
}

/// A function's type in Rust.
struct Signature {
    /// `a0: T, a1: U`.
    parameters: String,
    /// `a0, a1`.
    arguments: String,
    /// Result type.
    result: &'static str,
    /// Type of a pointer to the function.
    pointer: String,
    /// Expressions of the argument words.
    words: Vec<String>,
}

impl Signature {
    fn of(function: &Function) -> Result<Signature, Box<dyn Error>> {
        let (mut parameters, mut arguments, mut types, mut all_words) =
            (String::new(), String::new(), String::new(), Vec::new());
        for (index, Parameter { ty, word, .. }) in function.parameters.iter().enumerate() {
            let rust = rust_type(ty)?;
            write!(parameters, "a{index}: {rust}, ")?;
            write!(arguments, "a{index}, ")?;
            write!(types, "{rust}, ")?;
            if usize::from(*word) != all_words.len() {
                return Err("the words of the table and ours differ".into());
            }
            all_words.extend(words(ty, &format!("a{index}")));
        }
        if usize::from(function.words) != all_words.len() {
            return Err("the words of the table and ours differ".into());
        }
        let result = rust_type(&function.result)?;
        let pointer = format!("unsafe extern \"C-unwind\" fn({types}) -> {result}");
        Ok(Signature {
            parameters,
            arguments,
            result,
            pointer,
            words: all_words,
        })
    }
}

/// Functions that a hook may carry out in another way than by a single call of the original. The
/// record still describes the application's call. All of them reserve packets, and a hook puts the
/// windows of counters among these.
const REPLACED: [&str; 5] = [
    "hsa_queue_create",
    "hsa_queue_add_write_index_scacq_screl",
    "hsa_queue_add_write_index_scacquire",
    "hsa_queue_add_write_index_relaxed",
    "hsa_queue_add_write_index_screlease",
];

/// Writes a wrapper as two functions. When nothing is traced, the first one only reads one word and
/// jumps, without a stack frame. Everything else is in the second one.
fn wrapper(
    out: &mut String,
    table: &Table,
    index: usize,
    function: &Function,
    signature: &Signature,
) -> Result<(), Box<dyn Error>> {
    let name = function.name.as_str();
    let controls = matches!(table.id, TableId::RoctxControl);
    let stream = function
        .stream
        .map_or_else(|| "0".to_owned(), |i| format!("a{i} as u64"));
    let results = words(&function.result, "result");
    let result = results.first().cloned().unwrap_or_else(|| "0".to_owned());
    let kind = record_kind(table)?;
    if REPLACED.contains(&name) {
        writeln!(
            out,
            "/// Records a call of `{name}` as its wrapper does, and has `act` carry it out.\n\
             #[inline]\n\
             pub fn {name}_by({params} act: impl FnOnce() -> {ret}) -> {ret} {{\n\
             if crate::probe::generation() == 0 {{ return act(); }}\n\
             let mut call = crate::probe::enter({kind}, {operation}, {stream});\n\
             if call.is_reported() {{ crate::callbacks::enter(call, &[{words}]); }}\n\
             let result = act();\n\
             if call.is_reported() {{ call = crate::callbacks::exit(call, &[{results}]); }}\n\
             crate::probe::exit(call, || [{words}], {value});\n\
             result\n}}",
            params = signature.parameters,
            ret = signature.result,
            operation = function.operation,
            words = signature.words.join(", "),
            results = results.join(", "),
            value = result,
        )?;
    }
    writeln!(
        out,
        "/// Wraps `{name}`.\n///\n/// # Safety\n/// As the C function; only while its original is in place.\n\
         pub unsafe extern \"C-unwind\" fn {name}({params}) -> {ret} {{\n\
         if crate::probe::generation() != 0 {{\n\
         // SAFETY: the caller's own call, passed on.\n\
         return unsafe {{ traced_{name}({args}) }};\n}}\n\
         // SAFETY: this wrapper is only ever installed in the slot whose old value, a function of this type, was\n\
         // stored here before. It is never cleared.\n\
         let original = unsafe {{ transmute::<*mut (), {ty}>(ORIGINALS[{index}].load(Relaxed)) }};\n\
         // SAFETY: the caller's own call, passed on.\n\
         unsafe {{ original({args}) }}\n}}\n\
         #[inline(never)]\n\
         unsafe extern \"C-unwind\" fn traced_{name}({params}) -> {ret} {{\n\
         {pauses}let mut call = crate::probe::enter({kind}, {operation}, {stream});\n\
         if call.is_reported() {{ {enter}(call, &[{words}]); }}\n\
         // SAFETY: as in the function above, the only caller.\n\
         let original = unsafe {{ transmute::<*mut (), {ty}>(ORIGINALS[{index}].load(Relaxed)) }};\n\
         // SAFETY: the caller's own call, passed on.\n\
         let result = unsafe {{ original({args}) }};\n\
         if call.is_reported() {{ call = {leave}&[{results}]); }}\n\
         crate::{exit}::exit(call, || [{words}], {value});\n\
         {resumes}result\n}}",
        pauses = if controls {
            format!("crate::pause::before({}, a0);\n", function.operation)
        } else {
            String::new()
        },
        resumes = if controls {
            format!("crate::pause::after({});\n", function.operation)
        } else {
            String::new()
        },
        params = signature.parameters,
        ret = signature.result,
        operation = function.operation,
        enter = if is_roctx(table.id) {
            "crate::callbacks::ranges::enter"
        } else {
            "crate::callbacks::enter"
        },
        leave = if is_roctx(table.id) {
            format!(
                "crate::callbacks::ranges::exit(call, &[{}], ",
                signature.words.join(", ")
            )
        } else {
            "crate::callbacks::exit(call, ".to_owned()
        },
        exit = if is_roctx(table.id) {
            "markers"
        } else {
            "probe"
        },
        ty = signature.pointer,
        args = signature.arguments,
        words = signature.words.join(", "),
        value = result,
        results = results.join(", "),
    )?;
    Ok(())
}
