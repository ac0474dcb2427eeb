//! Json files with AMD's keys.

use super::{Shown, Times, damaged};
use crate::files;
use midair_failure::Failure;
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;

/// The longest file that is read. It is in memory as a whole.
const MOST_BYTES: u64 = 64 << 20;
/// The key that holds everything.
const TOOL: &str = "rocprofiler-sdk-tool";

/// Returns the kernels of a file.
pub(super) fn show(path: &Path) -> Result<Shown, Failure> {
    let (mut times, mut shown) = (Times::default(), Shown::default());
    kernels(path, &mut times)?;
    if times.is_empty() {
        shown.notes.push("no kernels were recorded".to_owned());
    }
    times.put("KERNEL", &mut shown);
    Ok(shown)
}

/// Sums up the kernels of a file.
pub(super) fn kernels(path: &Path, times: &mut Times) -> Result<(), Failure> {
    let wrong = |why: &dyn std::fmt::Display| damaged(path, why);
    if files::state(path).is_some_and(|(bytes, _)| bytes > MOST_BYTES) {
        return Err(wrong(&"json files over 64 MiB are not read")
            .hint("-f rocpd or -f csv writes results that have no such limit"));
    }
    let text = files::read(path).map_err(|error| wrong(&error))?;
    let document: Value = serde_json::from_slice(&text).map_err(|error| wrong(&error))?;
    let Some(sessions) = document[TOOL].as_array() else {
        return Err(wrong(&format!("it has no {TOOL}")));
    };
    for session in sessions {
        let all = |value: &'_ Value| value.as_array().cloned().unwrap_or_default();
        let symbols = all(&session["kernel_symbols"]);
        let named = symbols.iter().map(|symbol| {
            let name = ["formatted_kernel_name", "kernel_name"]
                .into_iter()
                .find_map(|key| symbol[key].as_str());
            (symbol["kernel_id"].as_u64(), name.unwrap_or_default())
        });
        let names: HashMap<Option<u64>, &str> = named.collect();
        let dispatches = session["buffer_records"]["kernel_dispatch"].as_array();
        for dispatch in dispatches.into_iter().flatten() {
            let kernel = dispatch["dispatch_info"]["kernel_id"].as_u64();
            let name = kernel.and_then(|_| names.get(&kernel)).copied();
            let time = |key: &str| dispatch[key].as_i64().unwrap_or(0);
            let name = name.unwrap_or("(a kernel that is not described)");
            times.count(name, time("start_timestamp"), time("end_timestamp"));
        }
    }
    Ok(())
}
