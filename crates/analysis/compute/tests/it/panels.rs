//! `--config-dir`: panels of the user's, in the format of AMD's `analysis_configs`.

use super::common::{collector, compute, errors, run};
use std::fs;
use std::path::Path;

/// A panel in the shape of AMD's: folded and quoted texts, expressions over several lines.
const PANEL: &str = r"# Generated
Panel Config:
  id: 500
  title: My processor
  metrics_description:
    CPF Share: 'A share. Note: of
      busy cycles.'
    Other: >-
      Some text: folded.
  data source:
  - metric_table:
      id: 501
      title: My fetcher
      header:
        metric: Metric
        avg: Mean
        peak: Peak
        unit: Unit
      metric:
        CPF Share:
          avg: AVG((100 *
            CPF_CPF_STAT_STALL) / CPF_CPF_STAT_BUSY)
          peak: 100
          unit: pct
        CPF Sum (all):
          avg: SUM(CPF_CPF_STAT_STALL) / SUM($denom)
          peak: None
          unit: (Cycles + $normUnit)
        Wrong:
          avg: SYSTEM(CPF_CPF_STAT_STALL)
          unit: pct
  - metric_table:
      id: 502
      title: Spread
      header:
        metric: Metric
        expr: Expression
      metric:
        Stall:
          expr: CPF_CPF_STAT_STALL
      cli_style: simple_box
";

fn panels(at: &Path) {
    fs::create_dir_all(at).unwrap();
    fs::write(at.join("0500_mine.yaml"), PANEL).unwrap();
}

#[test]
fn the_users_panels_are_counted_and_shown() {
    let temporary = tempfile::tempdir().unwrap();
    let here = temporary.path();
    collector(
        here,
        "echo \"$asked\" > asked; cp $made $out/pmc_results.db",
    );
    panels(&here.join("mine/gfx942"));
    let list = compute(here, &["--list-metrics", "gfx942", "--config-dir", "mine"]);
    assert_eq!(
        list,
        "5 -> My processor\n\t5.1 -> My fetcher\n\t\t5.1.0 -> CPF Share\n\t\t5.1.1 -> CPF Sum (all)\n\t\t5.1.2 -> Wrong\n\
         \t5.2 -> Spread\n\t\t5.2.0 -> Stall\n"
    );
    let words = [
        "profile",
        "-d",
        "w",
        "-n",
        "x",
        "--config-dir",
        "mine",
        "--attach-pid",
        "7",
    ];
    let output = run(here, &words);
    let said = errors(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("5.1.2 Wrong: avg cannot be read"), "{said}");
    let group = fs::read_to_string(here.join("w/perfmon/pmc_perf_0.yaml")).unwrap();
    for counter in ["CPF_CPF_STAT_BUSY", "CPF_CPF_STAT_STALL", "SQ_WAVES"] {
        assert!(group.contains(counter), "{group}");
    }
    assert!(!group.contains("TCC"), "{group}");
    let config = fs::read_to_string(here.join("w/profiling_config.yaml")).unwrap();
    assert!(config.contains("config_dir: 'mine'\n"), "{config}");

    // The directory itself may have the panels. The built-in metric has the same value.
    let text = compute(here, &["analyze", "-p", "w", "--config-dir", "mine/gfx942"]);
    let row = |text: &str, id: &str| -> Vec<String> {
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("│ {id} ")));
        let line = line.unwrap_or_else(|| panic!("{id} is not in {text}"));
        let fields = line.trim_matches('│').split('│');
        fields.map(|field| field.trim().to_owned()).collect()
    };
    let share = row(&text, "5.1.0");
    let built_in = compute(here, &["analyze", "-p", "w", "-b", "5.1.1"]);
    assert_eq!(
        share[1..3],
        ["CPF Share", &row(&built_in, "5.1.1")[2]],
        "{text}"
    );
    assert_eq!(share[3..5], ["100.00", "pct"]);
    assert!(
        text.contains("My processor") && text.contains(" Mean "),
        "{text}"
    );
    assert_eq!(row(&text, "5.1.1")[4], "Cycles per kernel");
    // What cannot be read has no value, and says why.
    assert_eq!(row(&text, "5.1.2")[2], "N/A");
    assert!(text.contains("its formula cannot be read"), "{text}");
    // 250 at the least.
    assert_eq!(row(&text, "5.2.0")[2], "250.00", "{text}");
    assert!(!text.contains("17.1"), "{text}");
}

/// AMD's newer architectures have panels in AMD's directory alone.
#[test]
fn a_directory_shows_architectures_without_built_in_panels() {
    let temporary = tempfile::tempdir().unwrap();
    let here = temporary.path();
    collector(here, "cp $made $out/pmc_results.db");
    let words = [
        "profile",
        "-d",
        "w",
        "-n",
        "x",
        "-b",
        "5",
        "--attach-pid",
        "7",
    ];
    assert!(run(here, &words).status.success());
    let plain = compute(here, &["analyze", "-p", "w", "-b", "5.1.1"]);
    let system = here.join("w/sysinfo.csv");
    let text = fs::read_to_string(&system).unwrap();
    for name in ["gfx1151", "gfx1201", "gfx1250"] {
        fs::write(&system, text.replace("gfx942", name)).unwrap();
        let output = run(here, &["analyze", "-p", "w"]);
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(40), "{said}");
        assert!(
            said.contains(name) && said.contains("--config-dir"),
            "{said}"
        );
        panels(&here.join("mine").join(name));
        let list = compute(here, &["--list-metrics", name, "--config-dir", "mine"]);
        assert!(list.contains("5.1.0 -> CPF Share"), "{list}");
        let shown = compute(here, &["analyze", "-p", "w", "--config-dir", "mine"]);
        let value = |text: &str, id: &str| {
            let line = text.lines().find(|line| line.contains(id));
            let line = line.unwrap_or_else(|| panic!("{id} is not in {text}"));
            line.split('│').nth(3).unwrap().trim().to_owned()
        };
        assert_eq!(
            value(&shown, " 5.1.0 "),
            value(&plain, " 5.1.1 "),
            "{shown}"
        );
        assert!(shown.contains("Cycles per kernel"), "{shown}");
    }
}

/// Of these, midair has definitions of gfx1201's counters alone, so it is counted with AMD's directory. Of the
/// others it says that it has none.
#[test]
fn counters_of_gfx1201_are_counted_by_a_directory() {
    let temporary = tempfile::tempdir().unwrap();
    let here = temporary.path();
    collector(here, "cp $made $out/pmc_results.db");
    let node = here.join("topology/nodes/0/properties");
    let properties = fs::read_to_string(&node).unwrap();
    let panel = PANEL
        .replace("CPF_CPF_STAT_STALL", "GL2C_MISS")
        .replace("CPF_CPF_STAT_BUSY", "(GL2C_HIT + SQ_NO_SUCH)");
    for (version, name) in [("120001", "gfx1201"), ("110501", "gfx1151")] {
        fs::write(
            &node,
            properties.replace(
                "gfx_target_version 90402",
                &format!("gfx_target_version {version}"),
            ),
        )
        .unwrap();
        let at = here.join("mine").join(name);
        fs::create_dir_all(&at).unwrap();
        fs::write(at.join("0500_mine.yaml"), &panel).unwrap();
        let words = ["profile", "-d", name, "-n", "x", "--attach-pid", "7"];
        let output = run(here, &words);
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(40), "{said}");
        assert!(said.contains("--config-dir"), "{said}");
        let output = run(here, &[&words[..], &["--config-dir", "mine"]].concat());
        let said = errors(&output);
        if name == "gfx1151" {
            assert_eq!(output.status.code(), Some(40), "{said}");
            assert!(
                said.contains("cannot count on gfx1151: its counters are unknown"),
                "{said}"
            );
            continue;
        }
        assert!(output.status.success(), "{said}");
        assert!(said.contains("gfx1201 has no counter SQ_NO_SUCH"), "{said}");
        let group = fs::read_to_string(here.join(name).join("perfmon/pmc_perf_0.yaml")).unwrap();
        for counter in ["GL2C_HIT", "GL2C_MISS", "SQ_WAVES"] {
            assert!(group.contains(counter), "{group}");
        }
        let system = fs::read_to_string(here.join(name).join("sysinfo.csv")).unwrap();
        assert!(system.contains("gfx1201"), "{system}");
    }
}

#[test]
fn panels_are_not_believed() {
    let temporary = tempfile::tempdir().unwrap();
    let here = temporary.path();
    collector(here, "exit 0");
    let file = here.join("mine/0500_mine.yaml");
    panels(&here.join("mine"));
    let refused = |what: &str| {
        let output = run(here, &["--list-metrics", "gfx942", "--config-dir", "mine"]);
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(40), "{what}: {said}");
        assert!(said.contains(what), "{what}: {said}");
    };
    let deep = format!(
        "AVG({}CPF_CPF_STAT_STALL{})",
        "(".repeat(5000),
        ")".repeat(5000)
    );
    let long = format!("AVG({}CPF_CPF_STAT_STALL)", "1 + ".repeat(30_000));
    for (text, what) in [
        (PANEL.replace("Panel Config", "Other"), "no Panel Config"),
        (
            PANEL.replace("id: 501", "id: 601"),
            "table 601 is in panel 5",
        ),
        (PANEL.replace("id: 501", "id: many"), "no number id"),
        (PANEL.replace("id: 500", "id: 4294967299"), "no number id"),
        (PANEL.replace("data source", "data sauce"), "data source"),
        (PANEL.replace("AVG((100 *", &long), "avg is too long"),
        ("[".repeat(10_000), "mine/0500_mine.yaml"),
        ("x".repeat(5 << 20), "more than 4 MiB"),
    ] {
        fs::write(&file, text).unwrap();
        refused(what);
    }
    // A formula that is nested too deep is no formula.
    fs::write(
        &file,
        PANEL.replace("SUM(CPF_CPF_STAT_STALL) / SUM($denom)", &deep),
    )
    .unwrap();
    let output = run(here, &["--list-metrics", "gfx942", "--config-dir", "mine"]);
    assert!(output.status.success());
    assert!(errors(&output).contains("5.1.1 CPF Sum (all): avg cannot be read"));
    fs::write(&file, PANEL).unwrap();
    fs::write(here.join("mine/0501_again.yaml"), PANEL).unwrap();
    refused("has panel 5 twice");
    fs::remove_dir_all(here.join("mine")).unwrap();
    refused("mine");
}
