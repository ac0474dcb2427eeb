//! Generates the panels, tables and metrics of each architecture from `api/compute/*.json` into
//! `OUT_DIR`. They become constants, so that a program reads and parses none of this when it
//! starts.

use serde_json::Value;
use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The architectures, in the order in which they are listed.
const ARCHITECTURES: [&str; 4] = ["gfx908", "gfx90a", "gfx942", "gfx950"];

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let directory = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../../api/compute");
    println!("cargo:rerun-if-changed={}", directory.display());
    println!("cargo:rerun-if-changed=build");
    let specification = read(directory.join("mi_gpu_spec.json"))?;
    let mut out = String::from("pub(crate) static ARCHITECTURES: &[Architecture] = &[\n");
    for name in ARCHITECTURES {
        let facts = read(directory.join(format!("{name}.json")))?;
        let newer = directory.join(format!("{name}_2026.json"));
        let newer = match newer.exists() {
            true => read(newer)?,
            false => Value::Null,
        };
        architecture(
            &mut out,
            name,
            &facts,
            &newer,
            &specification["archs"][name],
        )
        .map_err(|error| format!("{name}: {error}"))?;
    }
    out.push_str("];\n");
    fs::write(
        Path::new(&env::var("OUT_DIR")?).join("architectures.rs"),
        out,
    )?;
    Ok(())
}

fn read(file: PathBuf) -> Outcome<Value> {
    let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(serde_json::from_str(&text).map_err(|e| format!("{}: {e}", file.display()))?)
}

fn architecture(
    out: &mut String,
    name: &str,
    facts: &Value,
    newer: &Value,
    specification: &Value,
) -> Outcome<()> {
    writeln!(
        out,
        "Architecture {{ name: {name:?}, builtins: {},",
        pairs(&facts["builtins"])?
    )?;
    writeln!(out, "denominators: {},", pairs(&facts["denominators"])?)?;
    write!(out, "limits: &[")?;
    for (block, limit) in specification["counters_per_block"]
        .as_object()
        .ok_or("no limits")?
    {
        write!(out, "({block:?}, {}), ", limit.as_u64().ok_or("a limit")?)?;
    }
    write!(out, "],\nmodels: &[")?;
    for model in list(&specification["models"])? {
        write!(
            out,
            "Model {{ name: {:?}, chips: &{:?}, partitions: &[",
            text(&model["model"])?,
            ["chip_id_physical", "chip_id_virtual"]
                .iter()
                .filter_map(|key| model[*key].as_u64())
                .collect::<Vec<_>>()
        )?;
        for (partition, count) in model["xcds_by_compute_partition"]
            .as_object()
            .into_iter()
            .flatten()
        {
            write!(
                out,
                "({partition:?}, {}), ",
                count.as_u64().ok_or("a partition")?
            )?;
        }
        out.push_str("] }, ");
    }
    out.push_str("],\nsets: &[\n");
    for set in list(&facts["sets"])? {
        write!(
            out,
            "Set {{ name: {:?}, title: {:?}, metrics: &[",
            text(&set["set"])?,
            text(&set["title"])?
        )?;
        for metric in list(&set["metrics"])? {
            write!(out, "({:?}, {:?}), ", text(&metric[0])?, text(&metric[1])?)?;
        }
        out.push_str("] },\n");
    }
    out.push_str("],\nnewer_sets: &[\n");
    for (set, ids) in newer["sets"].as_object().into_iter().flatten() {
        write!(out, "({set:?}, &[")?;
        for id in list(ids)? {
            write!(out, "{:?}, ", text(id)?)?;
        }
        out.push_str("]),\n");
    }
    out.push_str("],\npanels: &[\n");
    for panel in list(&facts["panels"])? {
        writeln!(
            out,
            "Panel {{ id: {}, title: {:?}, tables: &[",
            panel["id"].as_u64().ok_or("a panel's id")? / 100,
            text(&panel["title"])?
        )?;
        for it in list(&panel["tables"])? {
            table(out, it, newer).map_err(|error| format!("table {}: {error}", it["id"]))?;
        }
        // This table was added in 2026.
        if panel["id"] == 400 && !newer["tables"]["402"].is_null() {
            let it =
                serde_json::json!({"id": 402, "title": "Roofline Plot Points", "kind": "None"});
            table(out, &it, newer)?;
        }
        out.push_str("] },\n");
    }
    out.push_str("] },\n");
    Ok(())
}

fn table(out: &mut String, it: &Value, newer: &Value) -> Outcome<()> {
    let id = it["id"].as_u64().ok_or("no id")?;
    let source = match it["kind"].as_str() {
        Some("metric_table") => "Source::Metrics",
        Some("pc_sampling_table") => "Source::PcSampling",
        Some("raw_csv_table") => match it["source"].as_str() {
            Some("pmc_kernel_top.csv") => "Source::TopKernels",
            Some("pmc_dispatch_info.csv") => "Source::Dispatches",
            Some("sysinfo.csv") => "Source::System",
            other => return Err(format!("the source {other:?}").into()),
        },
        Some("None") => "Source::Nothing",
        other => return Err(format!("the kind {other:?}").into()),
    };
    let style = match it["cli_style"].as_str() {
        None => "Style::Plain",
        Some("mem_chart") => "Style::MemoryChart",
        Some("simple_bar") => "Style::Bar",
        Some("simple_box") => "Style::Spread",
        Some("simple_multiple_bar") => "Style::Bars",
        Some(other) => return Err(format!("the style {other:?}").into()),
    };
    writeln!(
        out,
        "Table {{ id: {id}, title: {:?}, source: {source}, style: {style}, columns: &[",
        it["title"].as_str().unwrap_or_default()
    )?;
    for column in it["columns"].as_array().into_iter().flatten() {
        write!(out, "({:?}, {:?}), ", text(&column[0])?, text(&column[1])?)?;
    }
    let of_2026 = newer["tables"][id.to_string()][0]["values"].as_object();
    if it["columns"].is_null()
        && let Some(values) = of_2026
    {
        out.push_str("(\"metric\", \"Metric\"), ");
        for (key, heading) in [("value", "Value"), ("unit", "Unit"), ("peak", "Peak")] {
            if values.contains_key(key) {
                write!(out, "({key:?}, {heading:?}), ")?;
            }
        }
    }
    out.push_str("], metrics: &[\n");
    for row in it["metrics"].as_array().into_iter().flatten() {
        metric(out, row)?;
    }
    out.push_str("], newer: &[\n");
    // The rows as of 2026. Each is either a row of 2025 at another place and under another number,
    // or a new row.
    for row in newer["tables"][id.to_string()]
        .as_array()
        .into_iter()
        .flatten()
    {
        match row["id_2025"].as_str() {
            Some(older) => writeln!(
                out,
                "Newer::Moved {{ id: {:?}, from: {older:?} }},",
                text(&row["id"])?
            )?,
            None => {
                out.push_str("Newer::Own(");
                metric(out, row)?;
                out.truncate(out.trim_end().trim_end_matches(',').len());
                out.push_str("),\n");
            }
        }
    }
    out.push_str("] },\n");
    Ok(())
}

fn metric(out: &mut String, row: &Value) -> Outcome<()> {
    let id = text(&row["id"])?;
    let unit = row["unit"].as_str().or(row["values"]["unit"].as_str());
    write!(
        out,
        "Metric {{ id: {id:?}, name: {:?}, unit: {:?}, level: {:?}, cells: &[",
        text(&row["name"])?,
        unit.unwrap_or_default(),
        row["coll_level"].as_str().unwrap_or_default()
    )?;
    for (column, value) in row["values"].as_object().ok_or("no values")? {
        if column == "unit" {
            continue;
        }
        // Some columns hold a word about the metric, not an expression.
        let content = match value {
            Value::String(word) if WORDS.contains(&column.as_str()) => {
                format!("Content::Word({word:?})")
            }
            Value::String(expression) => {
                let sums = row["sum_form"][column].as_str();
                let sums = sums.map(|sums| format!("Some({sums:?})"));
                format!(
                    "Content::Formula {{ means: {expression:?}, sums: {} }}",
                    sums.as_deref().unwrap_or("None")
                )
            }
            Value::Number(number) => {
                format!("Content::Formula {{ means: \"{number}\", sums: None }}")
            }
            Value::Null => "Content::Nothing".to_owned(),
            other => return Err(format!("{id}: {column} is {other}").into()),
        };
        write!(out, "Cell {{ column: {column:?}, content: {content} }}, ")?;
    }
    out.push_str("] },\n");
    Ok(())
}

/// Columns whose values are words, not expressions.
const WORDS: [&str; 4] = ["xfer", "coherency", "type", "transaction"];

fn pairs(value: &Value) -> Outcome<String> {
    let mut out = String::from("&[");
    for (name, expression) in value.as_object().ok_or("not an object")? {
        write!(out, "({name:?}, {:?}), ", text(expression)?)?;
    }
    out.push(']');
    Ok(out)
}

fn list(value: &Value) -> Outcome<&Vec<Value>> {
    Ok(value
        .as_array()
        .ok_or_else(|| format!("{value} is no list"))?)
}

fn text(value: &Value) -> Outcome<&str> {
    Ok(value
        .as_str()
        .ok_or_else(|| format!("{value} is no text"))?)
}
