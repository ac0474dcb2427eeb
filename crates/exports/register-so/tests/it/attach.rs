//! Attaching from inside the process, as an injector does it, with SDKs of each generation.

use crate::common::{self, Home};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

fn with_sdk(defines: &[&str]) -> Home {
    Home::new()
        .with("librocprofiler-sdk.so.1", "sdk.c", defines)
        .with("libtool.so", "tool.c", &[])
        .with("libtool2.so", "tool.c", &[])
}

const ENVIRONMENT_IS_BACK: [&str; 3] = [
    "env:ROCPROF_PROBE",
    "env:ROCP_TOOL_LIBRARIES",
    "env:ROCPROFILER_REGISTER_TOOL_ATTACHED",
];

#[test]
fn an_older_sdk_gets_tool_tables_and_settings() {
    let home = with_sdk(&["-DATTACH"]);
    let mut words = vec!["add:hip", "add:hsa", "add:rocattach", "attach:libtool.so"];
    words.extend(ENVIRONMENT_IS_BACK);
    words.extend([
        "detach",
        "attach:libtool.so",
        "detach",
        "add:rccl",
        "env:ROCPROF_PROBE",
    ]);
    let lines = home.run(&[], &words);
    assert_eq!(
        lines[3..],
        [
            "  sdk: tool libtool.so loaded",
            "  tool: configure 10201 1.2.1",
            "  sdk: set rocattach 70204 0 1 size 32",
            "  sdk: set hip 70204 0 1 size 32",
            "  sdk: set hsa 70204 0 1 size 32",
            "  sdk: attach probe=one two attached=1 libraries=libtool.so sdk=-",
            "attach 0",
            "env -",
            "env -",
            "env -",
            "  sdk: detach probe=one two",
            "detach 0",
            "  sdk: attach probe=one two attached=1 libraries=libtool.so sdk=-",
            "attach 0",
            "  sdk: detach probe=one two",
            "detach 0",
            "  sdk: set rccl 70204 0 1 size 32",
            "add rccl 0 32",
            "env -",
        ]
    );
}

#[test]
fn amds_sdk_without_its_helper_is_refused_where_amds_register_crashes() {
    let home = with_sdk(&["-DATTACH"]);
    let lines = home.run(
        &[],
        &[
            "add:hip",
            "attach:libtool.so",
            "add:rocattach",
            "attach:libtool.so",
        ],
    );
    assert_eq!(lines[..2], ["add hip 1 8", "attach 9"]);
    assert_eq!(lines.last().unwrap(), "attach 0");
}

#[test]
fn a_newer_sdk_loads_the_tool_itself_and_gets_each_table_once() {
    for (lazy, how) in [(false, "  sdk: all 0"), (true, "")] {
        let home = with_sdk(&["-DATTACH", "-DLOAD_TOOL"]);
        let variables: &[(&str, &str)] = if lazy { &[("PROBE_LAZY", "1")] } else { &[] };
        let lines = home.run(
            variables,
            &[
                "add:rocattach",
                "add:hip",
                "attach:libtool.so",
                "detach",
                "attach:libtool2.so",
            ],
        );
        assert!(
            lines.contains(&"  sdk: load_attachment_tool attached=1 libraries=-".to_owned()),
            "{lines:?}"
        );
        for set in [
            "  sdk: set rocattach 70204 0 1 size 32",
            "  sdk: set hip 70204 0 1 size 32",
        ] {
            assert_eq!(
                lines.iter().filter(|l| *l == set).count(),
                1,
                "{set}: {lines:?}"
            );
        }
        assert!(how.is_empty() || lines.contains(&how.to_owned()));
        // AMD's SDK does not accept another tool.
        assert_eq!(lines.last().unwrap(), "attach 8");
        assert_eq!(
            lines[lines.len() - 3..lines.len() - 1],
            ["  sdk: detach probe=one two", "detach 0"]
        );
    }
}

#[test]
fn our_sdk_needs_no_helper_and_accepts_another_tool() {
    let home = with_sdk(&["-DATTACH", "-DLOAD_TOOL", "-DOURS"]);
    let lines = home.run(
        &[],
        &[
            "add:hip",
            "attach:libtool.so",
            "detach",
            "attach:libtool2.so",
            "detach",
            "reattach",
        ],
    );
    let answers: Vec<&str> = lines
        .iter()
        .filter(|l| !l.starts_with(' '))
        .map(String::as_str)
        .collect();
    assert_eq!(
        answers,
        [
            "add hip 1 8",
            "attach 0",
            "detach 0",
            "attach 0",
            "detach 0",
            "reattach 0"
        ]
    );
    assert!(lines.contains(&"  sdk: tool libtool2.so loaded".to_owned()));
    assert_eq!(
        lines
            .iter()
            .filter(|l| l.starts_with("  sdk: attach "))
            .count(),
        3
    );
    assert_eq!(
        lines
            .iter()
            .filter(|l| l.starts_with("  sdk: set "))
            .count(),
        1 + usize::from(lines.contains(&"  sdk: all 0".to_owned()))
    );
}

/// The SDK keeps the tools that it loaded last, even if the attach failed then.
#[test]
fn after_an_attach_with_another_tool_failed_the_tool_is_loaded_again() {
    let home = with_sdk(&["-DATTACH", "-DLOAD_TOOL", "-DOURS"]);
    let lines = home.run(
        &[],
        &[
            "add:hip",
            "attach:libtool.so",
            "attach:libtool.so",
            "attach:libnone.so",
            "attach:libtool.so",
            "attach:libtool.so",
        ],
    );
    let told: Vec<&str> = lines
        .iter()
        .map(String::as_str)
        .filter(|line| line.starts_with("attach ") || line.starts_with("  sdk: tool "))
        .collect();
    assert_eq!(
        told,
        [
            "  sdk: tool libtool.so loaded",
            "attach 0",
            "attach 0",
            "  sdk: tool libnone.so missing",
            "attach 6",
            "  sdk: tool libtool.so loaded",
            "attach 0",
            "attach 0",
        ]
    );
}

/// There may be two SDKs in one process. What one of them lacks is not taken from the other.
#[test]
fn functions_of_two_sdks_are_not_mixed() {
    let home = Home::new().with("libfirst.so", "sdk.c", &["-DOURS"]).with(
        "libsecond.so",
        "sdk.c",
        &["-DATTACH", "-DOURS"],
    );
    let attach = |first: &str, second: &str| {
        let (first, second) = (format!("load:{first}"), format!("load:{second}"));
        let words = [&first, &second, "add:hip", "attach:libtool.so"];
        home.run(&[], &words).last().unwrap().clone()
    };
    assert_eq!(attach("libfirst.so", "libsecond.so"), "attach 1");
    assert_eq!(attach("libsecond.so", "libfirst.so"), "attach 0");
}

#[test]
fn failures_have_their_codes_and_can_be_retried() {
    let home = with_sdk(&["-DATTACH", "-DOURS"]);
    assert_eq!(
        home.run(&[], &["attach:libtool.so", "detach", "reattach"]),
        ["attach 9", "detach 9", "reattach 9"]
    );
    assert_eq!(home.run(&[], &["add:hip", "detach"])[1], "detach 1");
    assert_eq!(home.run(&[], &["add:hip", "attach-garbage"])[1], "attach 8");
    // These are addresses at which nothing is mapped, or where the mapping ends too early.
    assert_eq!(home.run(&[], &["add:hip", "attach-nowhere"])[1], "attach 8");
    assert_eq!(
        home.run(&[], &["add:hip", "attach-endless", "attach:libtool.so"])[1..3],
        ["attach 8", "attach 8"]
    );

    let lines = home.run(
        &[("PROBE_ATTACH_FAILS", "1")],
        &[
            "add:hip",
            "attach:libtool.so",
            "env:ROCPROF_PROBE",
            "attach:libtool.so",
        ],
    );
    let answers: Vec<&str> = lines
        .iter()
        .filter(|l| !l.starts_with(' '))
        .map(String::as_str)
        .collect();
    assert_eq!(answers, ["add hip 1 8", "attach 6", "env -", "attach 0"]);

    let lines = home.run(
        &[("PROBE_REFUSES", "hip")],
        &["add:hip", "attach:libtool.so"],
    );
    assert_eq!(lines.last().unwrap(), "attach 6");
    let lines = home.run(
        &[("PROBE_DETACH_FAILS", "1")],
        &["add:hip", "attach:libtool.so", "detach"],
    );
    assert_eq!(lines.last().unwrap(), "detach 6");
    let lines = home.run(&[("PROBE_RECURSE", "1")], &["add:hip", "attach:libtool.so"]);
    assert!(
        lines.contains(&"  sdk: attach again 2".to_owned()),
        "{lines:?}"
    );
    assert_eq!(lines.last().unwrap(), "attach 0");
}

#[test]
fn no_sdk_or_one_that_cannot_attach_is_no_tools() {
    let none = Home::new();
    assert_eq!(
        none.run(&[], &["add:hip", "attach:libtool.so"])[1],
        "attach 1"
    );
    let cannot = Home::new().with("librocprofiler-sdk.so.1", "sdk.c", &["-DOURS"]);
    assert_eq!(
        cannot.run(&[], &["add:hip", "attach:libtool.so"])[1],
        "attach 1"
    );
}

#[test]
fn without_a_named_tool_the_one_beside_us_is_used() {
    let home = with_sdk(&["-DATTACH", "-DLOAD_TOOL", "-DOURS"]);
    std::fs::create_dir(home.path("rocprofiler-sdk")).unwrap();
    let home = home.with(
        "rocprofiler-sdk/librocprofiler-sdk-tool.so.1",
        "tool.c",
        &[],
    );
    let (lines, errors) = home.run_with_errors(&[], &["add:hip", "attach-null"]);
    assert!(
        lines.contains(&"  sdk: tool librocprofiler-sdk-tool.so.1 loaded".to_owned()),
        "{lines:?}"
    );
    assert_eq!(lines.last().unwrap(), "attach 0");
    assert!(errors.contains("attached without settings"), "{errors}");
}

#[test]
fn concurrent_attaches_are_serialized() {
    let home = with_sdk(&["-DATTACH", "-DOURS"]);
    let lines = home.run(&[], &["add:hip", "attach-many:8", "env:ROCPROF_PROBE"]);
    assert_eq!(lines[lines.len() - 2..], ["attach-many 0", "env -"]);
    assert_eq!(
        lines
            .iter()
            .filter(|l| l.starts_with("  sdk: attach probe=one two"))
            .count(),
        8
    );
    assert!(!lines.iter().any(|l| l.contains("twice")));
}

#[test]
fn amds_helper_of_each_generation_brings_its_table_and_its_thread() {
    for newer in [false, true] {
        let defines: &[&str] = if newer { &["-DNEWER"] } else { &[] };
        let home =
            with_sdk(&["-DATTACH"]).with("librocprofiler-sdk-attach.so.1", "helper.c", defines);
        let asked = [("ROCP_TOOL_ATTACH", "1")];
        let lines = home.run(
            &asked,
            &[
                "add:hip",
                "add:hsa",
                "add:rccl",
                "listeners:1",
                "attach:libtool.so",
            ],
        );
        let helper: Vec<&str> = lines
            .iter()
            .filter(|l| l.contains("helper"))
            .map(String::as_str)
            .collect();
        if newer {
            assert_eq!(
                helper,
                ["  helper: rocattach 0 56", "  helper: set hsa 70204 0 1"]
            );
            assert_eq!(lines[0], helper[0]);
        } else {
            assert_eq!(
                helper,
                ["  helper: set hsa 70204 0 1", "  helper: rocattach 0 56"]
            );
        }
        let sets: Vec<&str> = lines
            .iter()
            .filter(|l| l.starts_with("  sdk: set "))
            .map(|l| l.split(' ').nth(4).unwrap())
            .collect();
        assert_eq!(sets, ["rocattach", "hip", "hsa", "rccl"]);
        assert_eq!(lines.last().unwrap(), "attach 0");
        assert!(lines.contains(&"listeners 1".to_owned()), "{lines:?}");

        // AMD's libraries find the helper's functions among all visible ones.
        let name = "symbol:rocprofiler_attach_set_api_table";
        let lines = home.run(&asked, &[name, "add:hsa", name]);
        let found: Vec<&String> = lines.iter().filter(|l| l.starts_with("symbol")).collect();
        assert_eq!(found, ["symbol 0", "symbol 1"]);
        // It makes no SDK visible that it is linked to.
        let linked = with_sdk(&["-DATTACH"]);
        let sdk = linked.path("librocprofiler-sdk.so.1");
        let with_it = ["-Wl,--no-as-needed", sdk.to_str().unwrap()];
        let linked = linked.with(
            "librocprofiler-sdk-attach.so.1",
            "helper.c",
            &[defines, &with_it].concat(),
        );
        let lines = linked.run(&asked, &["add:hsa", "symbol:rocprofiler_set_api_table"]);
        assert_eq!(lines.last().unwrap(), "symbol 0", "{lines:?}");

        // If the helper is not asked for, it is not loaded. If it is asked for and fails, our own
        // listener exists.
        assert_eq!(
            home.run(&[], &["add:hsa", "listeners:1"]),
            ["add hsa 1 0", "listeners 1"]
        );
        let failing = [asked[0], ("PROBE_HELPER_FAILS", "1")];
        let lines = home.run(&failing, &["add:hip", "add:hsa", "listeners:1", "list:0"]);
        assert!(lines.contains(&"listeners 1".to_owned()), "{lines:?}");
        assert_eq!(
            lines.iter().filter(|l| l.starts_with("  info")).count(),
            2,
            "the tables are kept: {lines:?}"
        );
    }
}

/// A helper that fails is asked once, and what it does not do is done by us.
#[test]
fn a_helper_that_fails_or_is_not_there_leaves_the_listener_to_us() {
    let asked = ("ROCP_TOOL_ATTACH", "1");
    let words = [
        "add:hip",
        "listeners:1",
        "add:rccl",
        "add:hip",
        "listeners:1",
    ];
    let wanted = [
        "add hip 1 8",
        "listeners 1",
        "add rccl 1 32",
        "add hip 1 9",
        "listeners 1",
    ];
    assert_eq!(Home::new().run(&[asked], &words), wanted);
    let newer = with_sdk(&[]).with("librocprofiler-sdk-attach.so.1", "helper.c", &["-DNEWER"]);
    let failing = [asked, ("PROBE_HELPER_FAILS", "1")];
    let (lines, errors) = newer.run_with_errors(&failing, &words);
    assert_eq!(lines, wanted);
    let told = errors.matches("rocprofiler_attach_initialize returned 1");
    assert_eq!(told.count(), 1, "{errors}");
}

#[test]
fn amds_injection_works_on_our_listener() {
    let home = with_sdk(&["-DATTACH", "-DOURS"]);
    let inject = home.path("inject");
    crate::common::compile(&["-o", inject.to_str().unwrap(), &common::source("inject.c")]);
    let mut host = Command::new(home.path("host"))
        .args([
            "add:hip",
            "listeners:1",
            "where",
            "listeners:1",
            "env:ROCPROF_PROBE",
        ])
        .env_clear()
        .env("LD_LIBRARY_PATH", home.path(""))
        .current_dir(home.path(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(host.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let place = output.by_ref().find(|l| l.starts_with("where ")).unwrap();
    let place: Vec<&str> = place.split(' ').collect();
    let (pid, attach, detach, settings, tool) = (place[1], place[2], place[3], place[4], place[5]);
    // There are two cycles. Each call is made on the thread while it is parked.
    for (function, first, second) in [
        (attach, settings, tool),
        (detach, "0", "0"),
        (attach, settings, tool),
        (detach, "0", "0"),
    ] {
        let out = Command::new("timeout")
            .args(["-s", "KILL", "60"])
            .arg(&inject)
            .args([pid, function, first, second])
            .output()
            .unwrap();
        assert!(
            out.status.success(),
            "{}: {}",
            out.status,
            String::from_utf8_lossy(&out.stderr)
        );
        assert_eq!(String::from_utf8_lossy(&out.stdout), "0\n");
    }
    drop(host.stdin.take());
    let lines: Vec<String> = output.collect();
    assert!(host.wait().unwrap().success());
    assert_eq!(
        lines,
        [
            "  sdk: tool libtool.so loaded",
            "  tool: configure 10201 1.2.1",
            "  sdk: set hip 70204 0 1 size 32",
            "  sdk: attach probe=one two attached=1 libraries=libtool.so sdk=-",
            "  sdk: detach probe=one two",
            "  sdk: attach probe=one two attached=1 libraries=libtool.so sdk=-",
            "  sdk: detach probe=one two",
            "listeners 1",
            "env -",
        ]
    );
}
