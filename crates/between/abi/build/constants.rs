//! Generates the constants of enums, the layouts of structs and the list of the SDK's functions.

use super::{Text, number, object, text};
use serde_json::Value;
use std::fmt::Write;

/// Returns whether a header belongs to the SDK itself rather than to a library that it traces.
fn is_sdk_header(header: &str) -> bool {
    header
        .strip_prefix("rocprofiler-sdk/")
        .is_some_and(|rest| !rest.contains("/details/") && !rest.starts_with("ompt/"))
}

/// Returns `constants.rs`: every enumerator of the SDK's own enums, as i32 under its C name.
pub fn enums(sdk: &Value) -> Text {
    let mut out = String::new();
    for (name, value) in object(sdk, &["enums"])? {
        // The operations of the APIs are listed by name in the tables.
        if name.ends_with("_api_id_t") || name == "rocprofiler_ompt_operation_t" {
            continue;
        }
        if !name.starts_with("rocprofiler_")
            || !value
                .get("header")
                .and_then(Value::as_str)
                .is_some_and(is_sdk_header)
        {
            continue;
        }
        for (constant, number) in object(value, &["values"])? {
            let number = number
                .as_i64()
                .ok_or_else(|| format!("{constant} has no number"))?;
            if i32::try_from(number).is_ok() {
                writeln!(
                    out,
                    "/// Of `{name}`.\npub const {constant}: i32 = {number};"
                )?;
            }
        }
    }
    Ok(out)
}

/// Returns `layout.rs`: a module for each struct, with `SIZE`, `ALIGN` and the offset of every
/// named field.
pub fn layouts(sdk: &Value) -> Text {
    let mut out = String::new();
    for (name, value) in object(sdk, &["structs"])? {
        if !name.starts_with("rocprofiler_") {
            continue;
        }
        let fields = value
            .get("fields")
            .and_then(Value::as_array)
            .ok_or_else(|| format!("{name} has no fields"))?;
        writeln!(out, "pub mod {name} {{")?;
        writeln!(out, "pub const SIZE: usize = {};", number(value, "size")?)?;
        writeln!(out, "pub const ALIGN: usize = {};", number(value, "align")?)?;
        for field in fields {
            let field_name = text(field, "name")?;
            let plain = field_name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_');
            // Bit fields share an offset, so they get no constant. Structs with bit fields are not
            // filled through these constants.
            if plain && !field_name.is_empty() {
                writeln!(
                    out,
                    "pub const r#{field_name}: usize = {};",
                    number(field, "offset")?
                )?;
            }
        }
        out.push_str("}\n");
    }
    Ok(out)
}

/// Returns `functions.rs`: the SDK's functions with the class of their result.
pub fn functions(sdk: &Value) -> Text {
    let mut out = String::from(
        "/// Functions of the SDK's headers.\npub static SDK_FUNCTIONS: &[SdkFunction] = &[\n",
    );
    for (name, value) in object(sdk, &["functions"])? {
        let result = value
            .get("ret")
            .ok_or_else(|| format!("{name} has no result"))?;
        let header = text(value, "header")?;
        // The operations of the APIs are listed by name in the tables.
        if name.ends_with("_api_id_t") || name == "rocprofiler_ompt_operation_t" {
            continue;
        }
        if !name.starts_with("rocprofiler_") || !is_sdk_header(header) {
            continue;
        }
        let result = match text(result, "class")? {
            "enum" => "Status",
            "ptr" => "Pointer",
            "uint" => "Number",
            "void" => "Nothing",
            other => return Err(format!("{name} returns an unexpected {other}").into()),
        };
        writeln!(
            out,
            "SdkFunction {{ name: \"{name}\", result: ResultClass::{result}, header: \"{header}\" }},"
        )?;
    }
    out.push_str("];\n");
    Ok(out)
}
