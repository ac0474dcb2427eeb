//! Shared by the build scripts of `sim/hsa` and `sim/hip`: API tables and exported stubs from `api/*.json`.
//!
//! Which functions are implemented is read from the sources themselves: a slot whose name is used
//! anywhere below `src/api` holds the function of that name, every other slot a function that
//! answers "not supported" in its own type.

use serde_json::Value;
use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write;
use std::path::Path;

/// How a library's exported functions reach their table (source: `docs/sources.md#hsa`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `mov table(%rip),%rax; jmp *offset(%rax)`, and a table that begins with its version.
    Hsa,
    /// `call get_table; mov offset(%rax),%rax; jmp *%rax`, and a table that begins with its size.
    Hip,
}

/// One table.
pub struct Table {
    /// Rust name of the static.
    pub name: &'static str,
    /// C name of the struct.
    pub c_name: &'static str,
    /// Bytes that its header says; less than the struct has where the runtime that is stood in for has fewer.
    pub size: u64,
    /// Bytes that there are: with slots that only some of the runtimes have that are stood in for
    /// (`sim/hsa/src/vintage.rs`).
    pub room: u64,
    /// `{major, step}` of an HSA table.
    pub version: [u32; 2],
}

/// Words that occur in the Rust files of `dir`, comments left out.
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

/// The statics and stubs of `tables`.
pub fn generate(
    api: &Value,
    tables: &[Table],
    form: Form,
    implemented: &BTreeSet<String>,
) -> Result<String, Box<dyn Error>> {
    let mut out = String::new();
    // HSA's tables lie in one object, the root table first, as in AMD's runtime.
    let (mut fields, mut values) = (String::new(), String::new());
    for table in tables {
        let header = if form == Form::Hsa { 16 } else { 8 };
        let count = (table.room - header) / 8;
        // Slots that no header knows of: some function, whose address nobody may touch.
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
            stub(&mut stubs, name, table.name, offset, form)?;
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
            writeln!(
                out,
                "#[unsafe(naked)] unsafe extern \"C\" fn get_{name}() {{ naked_asm!(\"mov rax, [rip + {{table}}]\", \"ret\", \
                 table = sym {name}_AT) }}",
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

/// What a function answers that is not supported, by the class of its result.
fn answer(class: &str) -> Result<&'static str, Box<dyn Error>> {
    Ok(match class {
        // A status that nobody reads, where there is no result.
        "enum" | "void" => "status",
        "int" | "uint" => "zero",
        "ptr" => "null",
        "struct" => "channel_format",
        other => return Err(format!("a result of class {other}").into()),
    })
}

fn stub(out: &mut String, name: &str, table: &str, offset: u64, form: Form) -> std::fmt::Result {
    let body = match form {
        Form::Hsa => format!(
            "\"endbr64\", \"mov rax, [rip + {{table}}]\", \"jmp [rax + {offset}]\", table = sym {table}_AT"
        ),
        // Arguments stay in their registers: the getter touches none of them.
        Form::Hip => format!(
            "\"endbr64\", \"sub rsp, 8\", \"call {{get}}\", \"mov rax, [rax + {offset}]\", \"add rsp, 8\", \"jmp rax\", get = sym get_{table}"
        ),
    };
    writeln!(
        out,
        "#[unsafe(no_mangle)] #[unsafe(naked)] pub unsafe extern \"C\" fn {name}() {{ naked_asm!({body}) }}"
    )
}
