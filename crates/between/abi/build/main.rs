//! Generates the tables of this crate from `api/*.json` into `OUT_DIR`. The output is never edited
//! or committed.

#[path = "constants.rs"]
mod constants;
#[path = "cupti.rs"]
mod cupti;
#[path = "names.rs"]
mod names;
#[path = "ompt.rs"]
mod ompt;
#[path = "tables.rs"]
mod tables;

use serde_json::Value;
use std::error::Error;
use std::path::Path;
use std::{env, fs};

/// The result of a generator: Rust text, or a description of what is wrong with the JSON.
type Text = Result<String, Box<dyn Error>>;

fn main() -> Result<(), Box<dyn Error>> {
    let manifest = env::var("CARGO_MANIFEST_DIR")?;
    let api = Path::new(&manifest).join("../../../api");
    let read = |name: &str| -> Result<Value, Box<dyn Error>> {
        let path = api.join(name);
        println!("cargo:rerun-if-changed={}", path.display());
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(serde_json::from_str(&text)?)
    };
    println!("cargo:rerun-if-changed=build");
    let sdk = read("rocprofiler_sdk.json")?;
    let apis = tables::Apis {
        hip: read("hip_api_tables.json")?,
        hsa: read("hsa_api_tables.json")?,
        roctx: tables::roctx(&read("roctx.json")?)?,
        library: read("library_tables.json")?,
    };

    let nvidia = cupti::Cupti {
        twelve: read("cupti_12.json")?,
        thirteen: read("cupti_13.json")?,
        versions: read("cupti_versions.json")?,
        silent: read("cuda_silent.json")?,
        launches: read("cuda_launches.json")?,
    };

    let out = env::var("OUT_DIR")?;
    let write = |name: &str, text: String| fs::write(Path::new(&out).join(name), text);
    write("tables.rs", tables::generate(&apis, &sdk)?)?;
    write("ompt.rs", ompt::generate(&sdk)?)?;
    write("names.rs", names::generate(&apis, &sdk)?)?;
    write("constants.rs", constants::enums(&sdk)?)?;
    write("layout.rs", constants::layouts(&sdk)?)?;
    write("functions.rs", constants::functions(&sdk)?)?;
    write("cupti_names.rs", cupti::names(&nvidia)?)?;
    write("cupti_layouts.rs", cupti::layouts(&nvidia)?)?;
    Ok(())
}

/// Returns the object at a path of keys, or an error that names the path.
fn object<'a>(
    value: &'a Value,
    path: &[&str],
) -> Result<&'a serde_json::Map<String, Value>, Box<dyn Error>> {
    let mut at = value;
    for key in path {
        at = at
            .get(key)
            .ok_or_else(|| format!("the JSON has no {}", path.join(".")))?;
    }
    at.as_object()
        .ok_or_else(|| format!("{} is not an object", path.join(".")).into())
}

/// Returns the enumerators of an enum of rocprofiler_sdk.json, by value, without `NONE = -1` and
/// `LAST`.
fn enumerators<'a>(sdk: &'a Value, name: &str) -> Result<Vec<(&'a str, i64)>, Box<dyn Error>> {
    let mut all: Vec<(&str, i64)> = object(sdk, &["enums", name, "values"])?
        .iter()
        .filter_map(|(k, v)| Some((k.as_str(), v.as_i64()?)))
        .filter(|(k, v)| *v >= 0 && !k.ends_with("_LAST"))
        .collect();
    all.sort_by_key(|(_, v)| *v);
    Ok(all)
}

/// Returns the text of a field, or an error that names the field.
fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str, Box<dyn Error>> {
    value
        .get(key)
        .and_then(Value::as_str)
        .ok_or_else(|| format!("no text {key:?} in {value}").into())
}

/// Returns the number of a field, or an error that names the field.
fn number(value: &Value, key: &str) -> Result<u64, Box<dyn Error>> {
    value
        .get(key)
        .and_then(Value::as_u64)
        .ok_or_else(|| format!("no number {key:?} in {value}").into())
}
