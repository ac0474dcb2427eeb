//! The table. `bench-results/vm.json` keeps a row until it is run again, and `vm.md` is made from
//! it. A run of some of a row's tests (`--test`) does not replace the row: it stands alongside the row,
//! under its regular expression, until the whole row is run again.

use std::fs;
use std::process::Command;

use serde_json::{Map, Value, json};

use midair_dev_kit::run::{At, Failure, Outcome, output, root};

use super::boot::Ran;
use super::kernel::Ready;
use super::results::Results;
use super::rows::{ROWS, Row};

/// The key of the runs of some tests, in a row's entry.
const PARTS: &str = "parts";

/// Puts a row's results into the table, or alongside the row if only some tests were run.
pub fn put(
    row: &Row,
    kernel: &Ready,
    ran: &Ran,
    results: &Results,
    only: Option<&str>,
) -> Outcome<()> {
    let directory = root().join("bench-results");
    let path = directory.join("vm.json");
    let there = fs::read_to_string(&path).unwrap_or_default();
    let mut table: Map<String, Value> = serde_json::from_str(&there).unwrap_or_default();
    let mut entry = results.as_json();
    let said = |command: &mut Command| {
        let text = output(command)?;
        Ok::<_, Failure>(String::from_utf8_lossy(&text).trim().to_owned())
    };
    entry["processor"] = ran.processor.clone().into();
    entry["seconds"] = ran.took.as_secs().into();
    entry["package"] = kernel.release.clone().into();
    entry["about"] = row.about.into();
    entry["kernel_words"] = row.kernel_words.into();
    entry["date"] = said(Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]))?.into();
    entry["commit"] = ran.commit.clone().into();
    match only {
        None => {
            table.insert(row.name.to_owned(), entry);
        }
        Some(only) => {
            let whole = table.entry(row.name).or_insert_with(|| json!({}));
            whole[PARTS][only] = entry;
        }
    }
    let text = serde_json::to_string_pretty(&json!(table))
        .map_err(|error| Failure(format!("{}: {error}", path.display())))?;
    fs::write(&path, text + "\n").at("writing", &path)?;
    let path = directory.join("vm.md");
    fs::write(&path, page(&table)).at("writing", &path)
}

/// Returns the table as a page, in the order of the rows.
fn page(table: &Map<String, Value>) -> String {
    let mut text = String::from(
        "# Debian's kernels\n\nWritten by `cargo vm`: each row is a boot under qemu, on the processor (KVM) or emulated (TCG).\n\n\
         Emulated, `growth::neither_side_keeps_memory_of_a_session` does 60 sessions at least, elsewhere 240 (`MIDAIR_GROWTH=20`). It still fails\n\
         if either side keeps half a KiB of each. Since 53dec6b1 every third of an attacher's deaths is tried there (`death::` of midair-session).\n\n\
         | row | kernel | on | tests: passed | flaky | failed | left out | not run | torture: right | not right | left out | commit | s |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut notes = String::new();
    let mut parts = String::new();
    for row in ROWS {
        let Some(entry) = table.get(row.name) else {
            continue;
        };
        // A row of which only some tests were ever run has no line of its own.
        if !entry["release"].is_null() {
            text.push_str(&line(row.name, entry));
            notes.push_str(&about(row, entry));
        }
        for (only, part) in entry[PARTS].as_object().into_iter().flatten() {
            let name = format!("{} | `{}`", row.name, only.replace('|', "\\|"));
            parts.push_str(&line(&name, part));
            let details = details(part);
            if !details.is_empty() {
                notes.push_str(&format!("\n## {}, `{only}`\n{details}", row.name));
            }
        }
    }
    if !parts.is_empty() {
        text.push_str(
            "\nTests that were run again since, by `--test`:\n\n\
             | row | tests | kernel | on | passed | flaky | failed | left out | not run | torture: right | not right | left out | commit | s |\n\
             |---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
        );
        text.push_str(&parts);
    }
    text + &notes
}

/// Returns the section of a row.
fn about(row: &Row, entry: &Value) -> String {
    let mut text = format!("\n## {}\n\n{}.", row.name, row.about);
    if !row.kernel_words.is_empty() {
        text.push_str(&format!(" Kernel words: `{}`.", row.kernel_words));
    }
    let modules = word(&entry["security_modules"]);
    text + &format!(" Security modules: {modules}.\n") + &details(entry)
}

/// Returns a run's line of the table.
fn line(name: &str, entry: &Value) -> String {
    let failed = count(&entry["failed"]) + count(&entry["took_too_long"]);
    let torture = &entry["torture"];
    let cells = match torture {
        Value::Null => " |  | ".to_owned(),
        _ => format!(
            "{} | {} | {}",
            torture["right"],
            count(&torture["wrong"]),
            count(&torture["left_out"])
        ),
    };
    format!(
        "| {name} | {} | {} | {} | {} | {failed} | {} | {} | {cells} | {} | {} |\n",
        word(&entry["release"]),
        word(&entry["processor"]),
        word(&entry["passed"]),
        count(&entry["flaky"]),
        count(&entry["left_out"]),
        entry["not_run"].as_u64().unwrap_or(0),
        word(&entry["commit"]),
        word(&entry["seconds"]),
    )
}

/// Returns what a run said and which of its tests did not pass.
fn details(entry: &Value) -> String {
    let torture = &entry["torture"];
    let mut text = String::new();
    for (name, key) in [
        ("found", &entry["said"]),
        ("failed", &entry["failed"]),
        ("took too long", &entry["took_too_long"]),
        ("flaky", &entry["flaky"]),
        ("the kernel complained", &entry["complaints"]),
        ("torture, not right", &torture["wrong"]),
        ("left out", &entry["left_out"]),
        ("torture, left out", &torture["left_out"]),
    ] {
        let lines = lines(key);
        if !lines.is_empty() {
            text.push_str(&format!("\n{name}:\n\n"));
        }
        for line in lines {
            text.push_str(&format!("* {}\n", line.replace('|', "/")));
        }
    }
    text
}

/// Returns a value as a cell has it.
fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn lines(value: &Value) -> Vec<&str> {
    let all = value.as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().filter_map(Value::as_str).collect()
}

fn count(value: &Value) -> usize {
    lines(value).len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_its_counts_and_names_what_failed() {
        let mut table = Map::new();
        let entry = json!({"release": "6.1.0", "processor": "KVM", "passed": 3,
            "flaky": [], "failed": ["a b"], "took_too_long": ["c d"], "left_out": [],
            "said": ["uid 1 is refused"], "complaints": [], "torture": null,
            "security_modules": "yama", "commit": "abc", "seconds": 5});
        table.insert(ROWS[0].name.to_owned(), entry);
        let text = page(&table);
        assert!(text.contains("| 6.1.0 | KVM | 3 | 0 | 2 | 0 |"), "{text}");
        assert!(text.contains("* a b\n") && text.contains("* uid 1 is refused\n"));
        assert_eq!(text.matches("## ").count(), 1);
    }

    #[test]
    fn a_run_of_some_tests_stands_beside_its_row() {
        let whole = json!({"release": "6.1.0", "processor": "KVM", "passed": 3,
            "security_modules": "yama", "commit": "abc", "seconds": 5});
        let part = json!({"release": "6.1.9", "processor": "TCG", "passed": 2,
            "failed": ["a b"], "commit": "def", "seconds": 4});
        let mut table = Map::new();
        table.insert(ROWS[0].name.to_owned(), whole);
        table[ROWS[0].name][PARTS]["^a|^b"] = part.clone();
        let text = page(&table);
        assert!(text.contains("| 6.1.0 | KVM | 3 | 0 | 0 |"), "{text}");
        let line = format!("| {} | `^a\\|^b` | 6.1.9 | TCG | 2 | 0 | 1 |", ROWS[0].name);
        assert!(text.contains(&line), "{text}");
        assert!(text.contains("* a b\n"), "{text}");
        // Of a row that never ran as a whole there is no line but the part's.
        table.insert(ROWS[0].name.to_owned(), json!({PARTS: {"^a": part}}));
        let text = page(&table);
        assert!(text.contains("| `^a` | 6.1.9 |"), "{text}");
        assert!(!text.contains("null"), "{text}");
    }
}
