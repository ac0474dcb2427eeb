//! The GPU's time by launching stack, from files of a recording (`midair flame --diff`).
//!
//! A database has it by launch, the page and the folded stacks have sums. Nothing in a file is believed:
//! sizes and the time to read have limits.

use crate::files;
use crate::read::bound::wrong;
use crate::read::{bound, unusable};
use midair_failure::Failure;
use midair_output::{CodeLine, Function, NO_STACK, Part, frame_name};
use rusqlite::Connection;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// The longest file that is in memory as a whole.
const MOST_BYTES: u64 = 256 << 20;
/// How deep results lie, and how many entries are looked at.
const DEPTH: usize = 8;
const MOST_ENTRIES: usize = 100_000;
/// The most frames of a stack.
const MOST_FRAMES: usize = 256;
/// The end of the names of frames below kernels.
const SAMPLED: &str = " (sampled)";
/// The ends of the names of files with stacks, the one that is taken first.
const ENDS: [&str; 3] = [".db", ".folded", ".html"];
const HOW: &str = "midair flame and midair attach --stacks python record them, and -f html, rocpd and folded have them";

/// The GPU's nanoseconds of a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recorded {
    /// By stack: the outermost frame first, then the kernel or the copy.
    pub stacks: BTreeMap<Vec<String>, u64>,
    /// By line of code, as in the table `CODE`. Folded stacks have no paths of files that tell libraries
    /// from the user's own code, so there it is the innermost frame.
    pub lines: BTreeMap<String, u64>,
}

/// Reads the stacks of a file, or of the files of one format in a directory.
///
/// # Errors
/// When there are none, when a file cannot be read, or is none of midair's: names it.
pub fn read(path: &Path) -> Result<Recorded, Failure> {
    let mut all = Recorded::default();
    if files::is_directory(&files::named(path)) {
        let mut found = Vec::new();
        walk(path, DEPTH, &mut 0, &mut found)?;
        for end in ENDS {
            for file in found.iter().filter(|file| has_end(file, end)) {
                add(file, &mut all)?;
            }
            if !all.stacks.is_empty() {
                break;
            }
        }
    } else {
        add(path, &mut all)?;
    }
    match all.stacks.is_empty() {
        true => Err(unusable(format!("{} has no stacks", path.display())).hint(HOW)),
        false => Ok(all),
    }
}

fn has_end(path: &Path, end: &str) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().ends_with(end)
}

fn walk(
    path: &Path,
    deep: usize,
    seen: &mut usize,
    found: &mut Vec<PathBuf>,
) -> Result<(), Failure> {
    let cannot = |error: &dyn std::fmt::Display| {
        unusable(format!("cannot read {}: {error}", path.display()))
    };
    for entry in files::entries(path).map_err(|error| cannot(&error))? {
        *seen += 1;
        if *seen > MOST_ENTRIES {
            return Err(cannot(&format!("it has more than {MOST_ENTRIES} entries")));
        }
        if files::is_directory(&entry) {
            if deep > 0 {
                walk(&entry, deep - 1, seen, found)?;
            }
        } else if ENDS.iter().any(|end| has_end(&entry, end)) && files::is_file(&entry) {
            found.push(entry);
        }
    }
    Ok(())
}

fn add(path: &Path, to: &mut Recorded) -> Result<(), Failure> {
    match ENDS.iter().find(|end| has_end(path, end)) {
        Some(&".db") => database(path, to),
        Some(&".folded") => folded(path, to),
        Some(_) => page(path, to),
        None => Err(unusable(format!(
            "cannot read stacks from {}: its name ends in none of {}",
            path.display(),
            ENDS.join(", ")
        ))
        .hint(HOW)),
    }
}

fn count(to: &mut Recorded, path: Vec<String>, time: u64) {
    // Two recordings are of two processes.
    let is_process = |name: &String| {
        name.strip_prefix("process ")
            .is_some_and(|pid| pid.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let skipped = usize::from(path.first().is_some_and(is_process));
    let path: Vec<String> = path.into_iter().skip(skipped).take(MOST_FRAMES).collect();
    if !path.is_empty() {
        let sum = to.stacks.entry(path).or_default();
        *sum = sum.saturating_add(time);
    }
}

fn count_line(to: &mut Recorded, line: String, time: u64) {
    let sum = to.lines.entry(line).or_default();
    *sum = sum.saturating_add(time);
}

fn text(path: &Path) -> Result<String, Failure> {
    let cannot =
        |why: &dyn std::fmt::Display| unusable(format!("cannot read {}: {why}", path.display()));
    if files::state(path).is_some_and(|(bytes, _)| bytes > MOST_BYTES) {
        return Err(cannot(&"it has more than 256 MiB").hint("-f rocpd has no such limit"));
    }
    files::text(path).map_err(|error| cannot(&error))
}

fn damaged(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    unusable(format!("{} is damaged: {why}", path.display()))
}

fn folded(path: &Path, to: &mut Recorded) -> Result<(), Failure> {
    for line in text(path)?.lines() {
        let parts = line.rsplit_once(' ');
        let parts = parts.and_then(|(stack, time)| Some((stack, time.parse().ok()?)));
        let Some((stack, time)) = parts else {
            return Err(damaged(path, &"a line has no time"));
        };
        let names: Vec<String> = stack.split(';').map(str::to_owned).collect();
        // What is below a kernel is from samples of it.
        let is_own = |name: &&String| !name.ends_with(SAMPLED);
        let mut inwards = names.iter().rev().filter(is_own);
        let innermost = inwards.nth(1).or(names.first());
        count_line(to, innermost.cloned().unwrap_or_default(), time);
        count(to, names, time);
    }
    Ok(())
}

fn page(path: &Path, to: &mut Recorded) -> Result<(), Failure> {
    let text = text(path)?;
    let data = text.split_once("<script type=\"application/json\" id=\"data\">");
    let data = data.and_then(|(_, rest)| rest.split_once("</script>"));
    let Some((data, _)) = data else {
        return Err(damaged(path, &"it is no page of midair's"));
    };
    let data: Value = serde_json::from_str(data).map_err(|error| damaged(path, &error))?;
    let list = |value: &'_ Value| value.as_array().cloned().unwrap_or_default();
    let frames = list(&data["frames"]);
    for stack in list(&data["stacks"]) {
        let name = |place: &Value| {
            let place = usize::try_from(place.as_u64()?).ok()?;
            Some(frames.get(place)?.as_str()?.to_owned())
        };
        let names: Option<Vec<String>> = list(&stack[1]).iter().map(name).collect();
        let (Some(names), Some(time)) = (names, stack[0][0].as_u64()) else {
            return Err(damaged(path, &"a stack is incomplete"));
        };
        count(to, names, time);
    }
    let tables = list(&data["tables"]);
    let code = tables.iter().find(|table| table["title"] == "CODE");
    for row in code.map(|table| list(&table["rows"])).unwrap_or_default() {
        // The whole name, or else the one that is shown.
        let name = row[1].as_str().or(row[0].as_str()).unwrap_or_default();
        count_line(to, name.to_owned(), row[3].as_u64().unwrap_or(0));
    }
    Ok(())
}

/// A table of work, the column that refers to names, the table of names, and the name.
const WORK: [[&str; 4]; 2] = [
    [
        "kernel_dispatch",
        "kernel_id",
        "info_kernel_symbol",
        "COALESCE(n.display_name, n.kernel_name)",
    ],
    ["memory_copy", "name_id", "string", "n.string"],
];

fn database(path: &Path, to: &mut Recorded) -> Result<(), Failure> {
    let database = bound::open(path)?;
    for suffix in bound::suffixes(&database, path)? {
        let mut found = Vec::new();
        for [work, key, names, name] in WORK {
            bound::only_tables(&database, &[work, names, "event", "string"], &suffix, path)?;
            let end = suffix.replace('"', "\"\"");
            let question = format!(
                "SELECT d.stack, {name}, d.took FROM (SELECT json_extract(e.call_stack, '$.id') AS stack, w.{key} AS key, \
                 total(w.\"end\" - w.start) AS took FROM \"rocpd_{work}{end}\" AS w \
                 JOIN \"rocpd_event{end}\" AS e ON e.id = w.event_id AND e.guid = w.guid \
                 WHERE w.start > 0 AND w.\"end\" >= w.start GROUP BY 1, 2) AS d \
                 LEFT JOIN \"rocpd_{names}{end}\" AS n ON n.id = d.key"
            );
            found.extend(rows(&database, &question).map_err(|error| wrong(path, &error))?);
        }
        if found.iter().all(|(stack, ..)| stack.is_none()) {
            continue;
        }
        let mut known: HashMap<i64, (Vec<String>, String)> = HashMap::new();
        for (stack, name, time) in found {
            let (mut whole, line) = match stack {
                None => (vec![NO_STACK.to_owned()], NO_STACK.to_owned()),
                Some(stack) => match known.get(&stack) {
                    Some(frames) => frames.clone(),
                    None => {
                        let frames = frames(&database, &suffix, stack);
                        let frames = frames.map_err(|error| wrong(path, &error))?;
                        known.entry(stack).or_insert(frames).clone()
                    }
                },
            };
            whole.truncate(MOST_FRAMES - 1);
            whole.push(name);
            count_line(to, line, time);
            count(to, whole, time);
        }
    }
    Ok(())
}

type Row = (Option<i64>, String, u64);

fn rows(database: &Connection, question: &str) -> rusqlite::Result<Vec<Row>> {
    let mut statement = database.prepare(question)?;
    let rows = statement.query_map([], |row| {
        let name: Option<String> = row.get(1)?;
        let name = name.unwrap_or_else(|| "(a name that is not described)".to_owned());
        // A number that a file invents saturates.
        Ok((row.get(0)?, name, row.get::<_, f64>(2)? as u64))
    })?;
    rows.collect()
}

/// Returns the names of the frames of a stack, the outermost first, and of its line.
fn frames(
    database: &Connection,
    suffix: &str,
    stack: i64,
) -> rusqlite::Result<(Vec<String>, String)> {
    let end = suffix.replace('"', "\"\"");
    let question = format!("SELECT string FROM \"rocpd_string{end}\" WHERE id = ?1");
    let text: String = database.query_row(&question, [stack], |row| row.get(0))?;
    let stack: Value = serde_json::from_str(&text).unwrap_or_default();
    let frames = stack["frames"].as_array().into_iter().flatten();
    let frame = |frame: &Value| {
        let frame = &frame["program_counter"];
        let text = |key: &str| frame[key].as_str().unwrap_or_default().to_owned();
        let line = frame["line_number"].as_u64().unwrap_or(0);
        let (file, name) = (text("filename"), text("function"));
        let part = Part::of(&file, &name);
        let function = Function { file, name, part };
        (function, u32::try_from(line).unwrap_or(0))
    };
    let frames: Vec<(Function, u32)> = frames.map(frame).take(MOST_FRAMES).collect();
    let named = frames.iter().rev();
    let names = named.map(|(function, line)| frame_name(function, *line));
    let all = frames.iter().map(|(function, line)| (function, *line));
    Ok((names.collect(), CodeLine::among(all).name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(name);
        std::fs::write(&file, text).unwrap();
        (directory, file)
    }

    #[test]
    fn processes_are_left_out_and_times_are_summed_up() {
        let text = "process 7;main;gemm 5\nprocess 8;main;gemm 6\nprocessing 7;relu 1\n";
        let (directory, file) = written("a.folded", text);
        let recorded = read(&file).unwrap();
        let path = |names: [&str; 2]| names.map(str::to_owned).to_vec();
        let wanted = [
            (path(["main", "gemm"]), 11),
            (path(["processing 7", "relu"]), 1),
        ];
        assert_eq!(recorded.stacks, BTreeMap::from(wanted));
        assert_eq!(recorded.lines["main"], 11);
        assert_eq!(read(directory.path()).unwrap(), recorded);
    }

    #[test]
    fn frames_below_a_kernel_are_no_lines_of_code() {
        let text = "main;step;gemm;a.hip:7 (sampled);+0x10 s_nop 0 (sampled) 5\nmain;step;gemm;+0x0 (sampled) 2\n";
        let (_directory, file) = written("a.folded", text);
        let recorded = read(&file).unwrap();
        assert_eq!(recorded.lines, BTreeMap::from([("step".to_owned(), 7)]));
        assert_eq!(recorded.stacks.len(), 2);
    }

    #[test]
    fn what_is_no_recording_with_stacks_is_refused_by_name() {
        let page =
            |data: &str| format!("<script type=\"application/json\" id=\"data\">{data}</script>");
        for (name, text, why) in [
            ("a.folded", String::new(), "has no stacks"),
            ("b.folded", "main;gemm x\n".to_owned(), "a line has no time"),
            ("c.html", "<html>".to_owned(), "no page of midair's"),
            ("d.html", page("{"), "is damaged"),
            (
                "e.html",
                page("{\"stacks\":[],\"frames\":[]}"),
                "has no stacks",
            ),
            (
                "f.html",
                page("{\"stacks\":[[[1],[7]]],\"frames\":[\"a\"]}"),
                "a stack is incomplete",
            ),
            ("g.db", "nothing".to_owned(), "g.db"),
            ("h.csv", "a,b\n".to_owned(), "its name ends in none of"),
        ] {
            let (directory, file) = written(name, &text);
            let failure = read(&file).unwrap_err();
            assert!(failure.what.contains(why), "{name}: {failure}");
            assert!(failure.what.contains(name), "{name}: {failure}");
            // Files of other kinds do not count in a directory.
            if name == "h.csv" {
                let failure = read(directory.path()).unwrap_err();
                assert!(failure.what.contains("has no stacks"), "{failure}");
            }
        }
        let missing = read(Path::new("/nonexistent/a.html")).unwrap_err();
        assert!(missing.what.contains("/nonexistent/a.html"), "{missing}");
    }
}
