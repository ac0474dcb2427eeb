//! Generates the table of counters from `api/counters.json` into `OUT_DIR`.

use serde_json::{Map, Value};
use std::error::Error;
use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let file = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../../api/counters.json");
    println!("cargo:rerun-if-changed={}", file.display());
    println!("cargo:rerun-if-changed=build");
    let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    let json: Value = serde_json::from_str(&text)?;
    let mut out = String::from("static PACKED: &[Packed] = &[\n");
    for (name, architecture) in object(&json["architectures"], "architectures")? {
        let mut counters = String::new();
        let mut rows: Vec<(&String, String)> = Vec::new();
        for (counter, it) in object(&architecture["basic"], name)? {
            let (block, event) = (&it["block"], &it["event"]);
            let (Some(block), Some(event)) = (block.as_str(), event.as_u64()) else {
                return Err(format!("{name}: {counter} has no block or no event").into());
            };
            rows.push((counter, format!("{block}\t{event}")));
        }
        for (counter, it) in object(&architecture["derived"], name)? {
            let Some(expression) = it.as_str() else {
                return Err(format!("{name}: {counter} has no expression").into());
            };
            if expression.contains(['\t', '\n']) {
                return Err(format!("{name}: {counter} has a tab or a line's end").into());
            }
            rows.push((counter, expression.to_owned()));
        }
        rows.sort();
        for pair in rows.windows(2) {
            if pair[0].0 == pair[1].0 {
                return Err(format!("{name}: {} is there twice", pair[0].0).into());
            }
        }
        for (counter, definition) in rows {
            writeln!(counters, "{counter}\t{definition}")?;
        }
        writeln!(
            out,
            "Packed {{ name: {name:?}, counters: {counters:?}, blocks: &["
        )?;
        // The limits apply to one instance of a block, however the device is partitioned. The
        // last shape in the list is the whole device.
        let whole = object(&architecture["blocks"], name)?.iter().next_back();
        let (shape, blocks) = whole.ok_or_else(|| format!("{name}: no blocks"))?;
        for (block, it) in object(blocks, name)? {
            let limit = it["counters_per_instance"].as_u64();
            let limit = limit.ok_or_else(|| format!("{name}: {block} has no limit"))?;
            let dimensions = dimensions(&it["dimensions"]);
            let dimensions = dimensions.ok_or_else(|| format!("{name}: {block}'s dimensions"))?;
            writeln!(
                out,
                "Block {{ name: {block:?}, counters: {limit}, dimensions: &[{dimensions}] }},"
            )?;
        }
        let numbers: Vec<&str> = shape.split(',').collect();
        let [xccs, engines, units, arrays] = numbers[..] else {
            return Err(format!("{name}: the shape {shape}").into());
        };
        writeln!(
            out,
            "], shape: Shape {{ xccs: {xccs}, engines: {engines}, units: {units}, arrays: {arrays} }} }},"
        )?;
    }
    out.push_str("];\n");
    fs::write(Path::new(&env::var("OUT_DIR")?).join("counters.rs"), out)?;
    Ok(())
}

/// Returns the list as Rust text, such as `(Dimension::Xcc, 8), `.
fn dimensions(list: &Value) -> Option<String> {
    let mut out = String::new();
    for pair in list.as_array()? {
        let name = match pair[0].as_str()? {
            "XCD" => "Xcc",
            "AID" => "Aid",
            "SE" => "ShaderEngine",
            "SA" => "ShaderArray",
            "WGP" => "Wgp",
            "INSTANCE" => "Instance",
            _ => return None,
        };
        write!(out, "(Dimension::{name}, {}), ", pair[1].as_u64()?).ok()?;
    }
    Some(out)
}

fn object<'a>(value: &'a Value, what: &str) -> Result<&'a Map<String, Value>, Box<dyn Error>> {
    let object = value.as_object();
    object.ok_or_else(|| format!("{what}: not an object").into())
}
