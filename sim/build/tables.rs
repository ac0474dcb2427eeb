//! Generates API tables and exported stubs from `api/*.json`, for the build scripts of `sim/hsa`
//! and `sim/hip`.
//!
//! The sources themselves tell which functions are implemented. Where a slot's name is used
//! anywhere below `src/api`, the slot holds the function of that name. Every other slot holds a
//! function that answers "not supported" in the type of its result.

use serde_json::Value;
use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write;
use std::path::Path;

/// How a library's exported functions reach their table (source: `docs/sources.md#hsa`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `mov table(%rip),%rax; jmp *offset(%rax)`, and a table that starts with its version.
    Hsa,
    /// `call get_table; mov offset(%rax),%rax; jmp *%rax`, and a table that starts with its size.
    Hip,
}

/// One table.
pub struct Table {
    /// Rust name of the static.
    pub name: &'static str,
    /// C name of the struct.
    pub c_name: &'static str,
    /// The bytes that the table's header says. They are fewer than the struct has where the runtime
    /// that we stand in for has fewer functions.
    pub size: u64,
    /// The bytes that the table really has. They include slots that only some of the runtimes have
    /// that we stand in for (`sim/hsa/src/vintage.rs`).
    pub room: u64,
    /// `{major, step}` of an HSA table.
    pub version: [u32; 2],
}

/// Returns the words that occur in the Rust files of `dir` outside of comments.
pub fn words(dir: &Path) -> Result<BTreeSet<String>, Box<dyn Error>> {
    println!("cargo:rerun-if-changed={}", dir.display());
    let mut words = BTreeSet::new();
    for entry in std::fs::read_dir(dir)? {
        let text = std::fs::read_to_string(entry?.path())?;
        for line in text.lines() {
            let code = line.split("//").next().unwrap_or_default();
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            words.extend(code.split(|c| !is_word(c)).map(str::to_owned));
        }
    }
    Ok(words)
}

/// Returns the statics and the stubs of `tables` as Rust text.
pub fn generate(
    api: &Value,
    tables: &[Table],
    form: Form,
    implemented: &BTreeSet<String>,
) -> Result<String, Box<dyn Error>> {
    let mut out = String::new();
    // HSA's tables lie in one object, with the root table first, as in AMD's runtime.
    let (mut fields, mut values) = (String::new(), String::new());
    for table in tables {
        let header = if form == Form::Hsa { 16 } else { 8 };
        let count = (table.room - header) / 8;
        // Slots that no header knows hold some function, since no caller may change or call it by
        // its address.
        let unknown = match form {
            Form::Hsa => "crate::unsupported::status as *mut ()",
            Form::Hip => "std::ptr::null_mut()",
        };
        let mut slots = vec![unknown.to_owned(); usize::try_from(count)?];
        let entries = api
            .pointer(&format!("/tables/{}/entries", table.c_name))
            .and_then(Value::as_array)
            .ok_or_else(|| format!("no table {}", table.c_name))?;
        let mut stubs = String::new();
        for entry in entries.iter().filter(|entry| entry.get("params").is_some()) {
            let name = entry["name"].as_str().ok_or("a slot without a name")?;
            let offset = entry["offset"].as_u64().ok_or("a slot without a place")?;
            if offset + 8 > table.room {
                continue;
            }
            let class = entry["ret"]["class"].as_str().unwrap_or("void");
            let function = if implemented.contains(name) {
                format!("crate::api::{name}")
            } else {
                format!("crate::unsupported::{}", answer(class)?)
            };
            let slot = slots
                .get_mut(usize::try_from((offset - header) / 8)?)
                .ok_or("a slot past the end")?;
            *slot = format!("{function} as *mut ()");
            writeln!(
                stubs,
                "{}",
                stub(name, table.name, offset, form, machine()?)
            )?;
        }
        let first = match form {
            Form::Hsa => format!(
                "[AtomicU32::new({}), AtomicU32::new({}), AtomicU32::new({}), AtomicU32::new(0)]",
                table.version[0], table.size, table.version[1]
            ),
            Form::Hip => table.size.to_string(),
        };
        let name = table.name;
        let slots: Vec<String> = slots
            .iter()
            .map(|slot| format!("AtomicPtr::new({slot})"))
            .collect();
        let value = format!(
            "Table {{ header: {first}, slots: [{}] }}",
            slots.join(",\n")
        );
        let field = name.to_lowercase();
        let place = match form {
            Form::Hsa => format!("ALL.{field}"),
            Form::Hip => name.to_owned(),
        };
        match form {
            Form::Hsa => {
                writeln!(fields, "pub {field}: Table<{count}>,")?;
                writeln!(values, "{field}: {value},")?;
            }
            Form::Hip => writeln!(out, "pub static {name}: Table<{count}> = {value};")?,
        }
        if !stubs.is_empty() {
            writeln!(
                out,
                "pub static {name}_AT: Place<{count}> = Place(&raw const {place});\n{stubs}"
            )?;
        }
        if form == Form::Hip {
            let body = match machine()? {
                Machine::X86_64 => r#""mov rax, [rip + {table}]", "ret""#,
                Machine::Aarch64 => r#""adrp x0, {table}", "ldr x0, [x0, :lo12:{table}]", "ret""#,
            };
            writeln!(
                out,
                "#[unsafe(naked)] unsafe extern \"C\" fn get_{name}() {{ naked_asm!({body}, table = sym {name}_AT) }}",
                name = table.name
            )?;
        }
    }
    if form == Form::Hsa {
        let named: Vec<String> = tables
            .iter()
            .map(|table| format!("(&raw const ALL.{}).cast()", table.name.to_lowercase()))
            .collect();
        writeln!(
            out,
            "#[repr(C)]\npub struct All {{ root: Root<{count}>,\n{fields}}}\n\
             pub static ALL: All = All {{ root: Root {{ header: [3, 16 + 8 * {count}, 1, 0], tables: [{}, std::ptr::null()] }},\n{values}}};",
            named.join(", "),
            count = named.len() + 1,
        )?;
    }
    Ok(out)
}

/// Returns the function that answers for one that is not supported, by the class of the result.
fn answer(class: &str) -> Result<&'static str, Box<dyn Error>> {
    Ok(match class {
        // Where there is no result, the function returns a status that no caller reads.
        "enum" | "void" => "status",
        "int" | "uint" => "zero",
        "ptr" => "null",
        "struct" => "channel_format",
        other => return Err(format!("a result of class {other}").into()),
    })
}

/// The processor that is compiled for.
#[derive(Clone, Copy)]
enum Machine {
    X86_64,
    Aarch64,
}

fn machine() -> Result<Machine, Box<dyn Error>> {
    match std::env::var("CARGO_CFG_TARGET_ARCH")?.as_str() {
        "x86_64" => Ok(Machine::X86_64),
        "aarch64" => Ok(Machine::Aarch64),
        other => Err(format!("no stubs for {other}").into()),
    }
}

/// An exported function. Arguments stay in their registers.
fn stub(name: &str, table: &str, offset: u64, form: Form, machine: Machine) -> String {
    let body = match (form, machine) {
        (Form::Hsa, Machine::X86_64) => format!(
            "\"endbr64\", \"mov rax, [rip + {{table}}]\", \"jmp [rax + {offset}]\", table = sym {table}_AT"
        ),
        // The getter touches no argument.
        (Form::Hip, Machine::X86_64) => format!(
            "\"endbr64\", \"sub rsp, 8\", \"call {{get}}\", \"mov rax, [rax + {offset}]\", \"add rsp, 8\", \"jmp rax\", get = sym get_{table}"
        ),
        // `hint #34` is `bti c`.
        (Form::Hsa, Machine::Aarch64) => format!(
            "\"hint #34\", \"adrp x16, {{table}}\", \"ldr x16, [x16, :lo12:{{table}}]\", \"ldr x16, [x16, #{offset}]\", \"br x16\", \
             table = sym {table}_AT"
        ),
        // The getter's result is in the register of the first argument.
        (Form::Hip, Machine::Aarch64) => format!(
            "\"hint #34\", \"stp x29, x30, [sp, #-32]!\", \"mov x29, sp\", \"str x0, [sp, #16]\", \"bl {{get}}\", \
             \"ldr x16, [x0, #{offset}]\", \"ldr x0, [sp, #16]\", \"ldp x29, x30, [sp], #32\", \"br x16\", get = sym get_{table}"
        ),
    };
    format!(
        "#[unsafe(no_mangle)] #[unsafe(naked)] pub unsafe extern \"C\" fn {name}() {{ naked_asm!({body}) }}"
    )
}
