//! The page with the difference of two recordings, as a browser shows it.

use crate::common::list;
use crate::html::assert_policy;
use midair_output::Difference;
use midair_tests::chromium;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `relu` has gone, `gemm` takes three times as long, and `new` has come.
fn page(directory: &Path) -> PathBuf {
    let path = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let difference = Difference {
        names: ["a".to_owned(), "b".to_owned()],
        stacks: BTreeMap::from([
            (path(&["main", "f </script>", "relu"]), [2_000_000, 0]),
            (path(&["main", "gemm"]), [1_000_000, 3_000_000]),
            (path(&["new"]), [0, 4_000_000]),
            (path(&["same"]), [3_000_000, 3_000_000]),
        ]),
        is_normalized: false,
    };
    let file = directory.join("flame_diff.html");
    std::fs::write(&file, difference.page()).unwrap();
    file
}

#[test]
fn the_policy_allows_the_script_of_the_difference_alone() {
    let directory = tempfile::tempdir().unwrap();
    assert_policy(&page(directory.path()));
}

/// Returns width and colour of a box.
fn of(found: &Value, state: &str, name: &str) -> (u64, String) {
    let boxes = list(&found[state]).iter();
    let mut those = boxes.filter(|it| it[0] == name);
    let it = those.next().unwrap_or_else(|| panic!("{name}: {found}"));
    let colour = it[2].as_str().unwrap().to_owned();
    (it[1].as_u64().unwrap(), colour)
}

#[test]
fn grown_is_red_and_shrunk_is_blue() {
    let Some(browser) = chromium().unwrap() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let script =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/python/difference_page.py");
    let output = Command::new("python3")
        .arg(script)
        .args([&browser, &page(directory.path())])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(list(&found["errors"]).is_empty(), "{found}");
    assert_eq!(list(&found["asked_for"]).len(), 1, "{found}");
    // Of 16 ms in both together.
    for (name, width) in [
        ("all", 100),
        ("main", 38),
        ("relu", 13),
        ("gemm", 25),
        ("new", 25),
    ] {
        assert_eq!(of(&found, "times", name).0, width, "{name}: {found}");
    }
    let colour = |state: &str, name: &str| {
        let (_, colour) = of(&found, state, name);
        let parts = colour.trim_start_matches("rgba(").split(", ");
        let parts: Vec<f64> = parts.filter_map(|part| part.parse().ok()).collect();
        // Red less blue.
        parts[0] - parts[2]
    };
    assert!(
        colour("times", "new") > 50.0 && colour("times", "gemm") > 50.0,
        "{found}"
    );
    assert!(colour("times", "relu") < -50.0, "{found}");
    assert_eq!(colour("times", "same"), 0.0, "{found}");
    assert_eq!(found["hits"], 1);
    // 6 ms before and 10 ms after: the same time is a smaller share.
    assert!(colour("shares", "same") < -10.0, "{found}");
    assert_eq!(of(&found, "zoomed", "gemm").0, 100, "{found}");
    assert!(
        list(&found["zoomed"]).iter().all(|it| it[0] != "relu"),
        "{found}"
    );
    // From the kernels: each is at the top.
    assert_eq!(
        of(&found, "inverted", "gemm").0,
        of(&found, "shares", "gemm").0
    );
    let about = found["about"].as_str().unwrap();
    assert!(
        about.contains("before: 6.00 ms, 100.0%") && about.contains("change: +4.00 ms, +66.7%"),
        "{about}"
    );
}
