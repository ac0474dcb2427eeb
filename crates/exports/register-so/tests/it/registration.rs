//! Registering, keeping and handing over tables, as a C program sees it.

use crate::common::{Home, compile, root, source};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

const NAMES: [&str; 10] = [
    "hsa",
    "hip",
    "roctx",
    "hip_compiler",
    "rccl",
    "rocdecode",
    "rocjpeg",
    "rocattach",
    "hipFile",
    "rocshmem",
];

#[test]
fn tables_are_kept_without_a_profiler() {
    let home = Home::new();
    let words: Vec<String> = NAMES.iter().map(|n| format!("add:{n}")).collect();
    let words: Vec<&str> = words
        .iter()
        .map(String::as_str)
        .chain(["list:0", "list:1", "listeners:1"])
        .collect();
    let lines = home.run(&[], &words);
    for (index, name) in NAMES.iter().enumerate() {
        assert_eq!(lines[index], format!("add {name} 1 {}", 8 * index));
    }
    // The attach helper's table comes first, and the others follow in their order. Our SDK gets the
    // tables as well.
    let mut order = vec!["rocattach"];
    order.extend(NAMES.iter().filter(|n| **n != "rocattach"));
    let told: Vec<String> = order
        .iter()
        .map(|n| format!("  info {n} 70204 1"))
        .collect();
    assert_eq!(lines[10..20], told);
    assert_eq!(
        lines[20..],
        [
            "list 0".to_owned(),
            told[0].clone(),
            "list 0".into(),
            "listeners 1".into()
        ]
    );
}

#[test]
fn invalid_registrations_have_their_own_codes() {
    let home = Home::new();
    let lines = home.run(
        &[],
        &["add:HSA", "add:", "add:hsa*0", "add:hsa*65", "list:0"],
    );
    assert_eq!(
        lines,
        [
            "add HSA 4 -1",
            "add  4 -1",
            "add hsa 3 -1",
            "add hsa 3 -1",
            "list 0"
        ]
    );

    let words = vec!["add:hip"; 9];
    let lines = home.run(&[], &words);
    assert_eq!(
        lines[..8],
        (0..8)
            .map(|i| format!("add hip 1 {}", 8 + i))
            .collect::<Vec<_>>()
    );
    assert_eq!(lines[8], "add hip 7 -1");
    assert_eq!(
        home.run(&[], &["add:roctx*3", "list:0"])[1],
        "  info roctx 70204 3"
    );
}

#[test]
fn our_sdk_finds_the_tables_themselves_in_the_iteration() {
    let lines = Home::new().run(
        &[("HOST_SHOWS_TABLES", "1")],
        &["add:hip", "add:roctx*3", "list:0"],
    );
    assert_eq!(
        lines[2..],
        [
            "  info hip 70204 1",
            "  table",
            "  info roctx 70204 3",
            "  table",
            "list 0"
        ]
    );
}

#[test]
fn many_threads_register_concurrently_and_none_is_refused() {
    let home = Home::new();
    // Eight threads with six libraries fill every entry that these have.
    let lines = home.run(&[], &["many:8", "listeners:1", "list:0", "add:hsa"]);
    assert_eq!(lines[..2], ["many 0", "listeners 1"]);
    assert_eq!(lines.iter().filter(|l| l.starts_with("  info")).count(), 48);
    assert_eq!(lines.last().unwrap(), "add hsa 7 -1");
}

/// The listener is ready when a registration returns. Before that was so, a program that installed
/// a filter against mmap as soon as it saw the thread was killed, since the thread was still
/// opening its socket.
#[test]
fn a_registration_returns_when_the_listener_listens() {
    let home = Home::new();
    for _ in 0..20 {
        let lines = home.run(&[], &["add:hip", "listens"]);
        assert_eq!(lines, ["add hip 1 8", "listens 1"]);
    }
}

#[test]
fn switches_turn_attaching_off() {
    let home = Home::new();
    let off = home.run(
        &[("ROCP_TOOL_ATTACH", "0")],
        &["add:hip", "attach:libtool.so", "detach", "listeners:0"],
    );
    assert_eq!(off, ["add hip 1 8", "attach 9", "detach 9", "listeners 0"]);
    let disabled = home.run(
        &[("ROCPROFILER_REGISTER_ENABLED", "off")],
        &["add:hip", "list:0", "attach:libtool.so", "listeners:0"],
    );
    assert_eq!(
        disabled,
        ["add hip 1 -1", "list 0", "attach 9", "listeners 0"]
    );
}

#[test]
fn values_that_end_amds_library_do_not_end_ours() {
    let home = Home::new();
    let strange = [
        ("ROCPROFILER_REGISTER_ENABLED", ""),
        ("ROCPROFILER_REGISTER_SECURE", ""),
        ("ROCP_TOOL_ATTACH", ""),
        ("ROCP_TOOL_LIBRARIES", ""),
        ("ROCPROFILER_REGISTER_LOG_LEVEL", "loudly"),
    ];
    assert_eq!(
        home.run(&strange, &["add:hip", "listeners:1"]),
        ["add hip 1 8", "listeners 1"]
    );
    // A tool is asked for, but there is no SDK.
    let (lines, errors) = home.run_with_errors(
        &[("ROCP_TOOL_LIBRARIES", "/nowhere/libtool.so")],
        &["add:hip", "all", "list:0"],
    );
    assert_eq!(
        lines,
        ["add hip 1 8", "all 0", "  info hip 70204 1", "list 0"]
    );
    assert!(
        errors.contains("rocprofiler-register: warning: cannot load librocprofiler-sdk for the requested profiling tool"),
        "{errors}"
    );
}

#[test]
fn what_is_printed_depends_on_the_level() {
    let home = Home::new().with("libmysdk.so", "sdk.c", &["-DATTACH", "-DOURS"]);
    // The library is not where the loader searches, and is found next to ours.
    let said = |level: &str| {
        let variables = [
            ("LD_LIBRARY_PATH", "/nowhere"),
            ("ROCPROFILER_REGISTER_LIBRARY", "libmysdk.so"),
            ("ROCPROFILER_REGISTER_LOG_LEVEL", level),
        ];
        let (_, errors) = home.run_with_errors(&variables, &["add:hip", "attach-null"]);
        let told = [
            "rocprofiler-register: trace: not loaded: ",
            "rocprofiler-register: info: SDK: ",
            "rocprofiler-register: warning: attached without settings\n",
        ];
        told.map(|text| errors.contains(text))
    };
    for (levels, wanted) in [
        (&["trace", "Trace", "-1"][..], [true, true, true]),
        (&["info", "0"], [false, true, true]),
        (&["warning", "1", "", "loudly", "5"], [false, false, true]),
        (&["error", "2"], [false; 3]),
        (&["fatal", "3", "4", "none", "OFF"], [false; 3]),
    ] {
        for level in levels {
            assert_eq!(said(level), wanted, "{level}");
        }
    }
}

/// AMD's tools look for the SDK's functions in the global scope.
#[test]
fn an_sdk_that_is_loaded_is_visible_to_all() {
    let home = Home::new().with("librocprofiler-sdk.so.1", "sdk.c", &[]);
    let symbol = "symbol:rocprofiler_set_api_table";
    let lines = home.run(
        &[("ROCPROFILER_REGISTER_FORCE_LOAD", "1")],
        &[symbol, "add:hip", symbol],
    );
    assert_eq!(lines[0], "symbol 0");
    assert_eq!(lines[2..], ["add hip 0 8", "symbol 1"]);
}

/// Libraries of one release lie next to each other. Only where none of it is next to ours, the
/// loader searches.
#[test]
fn libraries_are_taken_from_one_release() {
    let with = |home: Home, file: &str| {
        let from = match file.contains("attach") {
            true => "helper.c",
            false => "sdk.c",
        };
        std::fs::create_dir_all(home.path(file).parent().unwrap()).unwrap();
        home.with(file, from, &["-DNEWER"])
    };
    const SDK: &str = "librocprofiler-sdk.so.1";
    const HELPER: &str = "librocprofiler-sdk-attach.so.1";
    for (beside, elsewhere, sdk, helper) in [
        (&[SDK][..], &[][..], true, false),
        (&[HELPER], &[], false, true),
        (&[SDK, HELPER], &[], true, true),
        (&[], &[SDK, HELPER], true, true),
        (&[SDK], &[HELPER], true, false),
        (&[HELPER], &[SDK], true, true),
        (&[], &[], false, false),
    ] {
        let home = beside
            .iter()
            .fold(Home::new(), |home, file| with(home, file));
        let home = elsewhere
            .iter()
            .fold(home, |home, file| with(home, &format!("elsewhere/{file}")));
        let path = home.path("elsewhere");
        let run = |variable: &str| {
            let path = ("LD_LIBRARY_PATH", path.to_str().unwrap());
            let (lines, _) = home.run_in(Path::new("/"), &[path, (variable, "1")], &["add:hip"]);
            lines
        };
        let came = run("ROCPROFILER_REGISTER_FORCE_LOAD");
        let wanted = if sdk { "add hip 0 8" } else { "add hip 1 8" };
        assert_eq!(came.last().unwrap(), wanted, "{beside:?} {elsewhere:?}");
        let came = run("ROCP_TOOL_ATTACH");
        let is_helpers = came[0].starts_with("  helper: ");
        assert_eq!(is_helpers, helper, "{beside:?} {elsewhere:?}");
    }
}

/// Whoever starts a set-uid program does not choose what is loaded into it.
#[test]
fn a_program_with_more_rights_than_its_user_gets_no_helper() {
    const USER: u32 = 12_345;
    if !root::is_root_for("a set-uid program") {
        return;
    }
    let home = Home::new().with("librocprofiler-sdk-attach.so.1", "helper.c", &["-DNEWER"]);
    let program = home.path("raised");
    // The loader ignores paths that are relative to such a program.
    let (to, rpath) = (program.to_str().unwrap(), home.path(""));
    let rpath = format!("-Wl,-rpath,{}", rpath.display());
    let register = home.path("librocprofiler-register.so.0");
    let register = register.to_str().unwrap();
    compile(&["-o", to, &source("host.c"), register, &rpath, "-ldl"]);
    let mode = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    mode(&home.path(""), 0o755);
    for (permissions, wanted) in [
        (0o755, &["  helper: rocattach 0 56", "add hip 1 8"][..]),
        (0o4755, &["add hip 1 8"]),
    ] {
        mode(&program, permissions);
        let out = Command::new(&program)
            .args(["add:hip", "listeners:1"])
            .env_clear()
            .env("ROCP_TOOL_ATTACH", "1")
            .uid(USER)
            .gid(USER)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines, [wanted, &["listeners 1"]].concat(), "{out:?}");
    }
}

#[test]
fn secure_mode_requires_the_right_file() {
    let home = Home::new()
        .with("libamdhip64.so.7.2.4", "runtime.c", &[])
        .with("libother.so", "runtime.c", &[]);
    let secure = [("ROCPROFILER_REGISTER_SECURE", "1")];
    assert_eq!(home.run(&secure, &["add:hip"]), ["add hip 5 -1"]);
    assert_eq!(
        home.run(&secure, &["load:libamdhip64.so.7.2.4"]),
        ["  runtime: hip 1", "load ok"]
    );
    assert_eq!(
        home.run(&secure, &["load:libother.so"]),
        ["  runtime: hip 5", "load ok"]
    );
    assert_eq!(
        home.run(&[], &["load:libother.so"]),
        ["  runtime: hip 1", "load ok"]
    );
}

#[test]
fn secure_mode_refuses_the_major_versions_that_amd_refuses() {
    let hsa = ["-DNAME=hsa"];
    let home = Home::new()
        .with("libhsa-runtime64.so.2.1.0", "runtime.c", &hsa)
        .with("libhsa-runtime64.so.1.2.3", "runtime.c", &hsa);
    let secure = [("ROCPROFILER_REGISTER_SECURE", "1")];
    for (file, code) in [
        ("libhsa-runtime64.so.2.1.0", 1),
        ("libhsa-runtime64.so.1.2.3", 5),
    ] {
        assert_eq!(
            home.run(&secure, &[&format!("load:{file}")]),
            [format!("  runtime: hsa {code}"), "load ok".to_owned()]
        );
    }
}

/// As in AMD's library: the directories of LD_LIBRARY_PATH precede the one of the register library
/// where a program is profiled from its start.
#[test]
fn the_sdk_of_the_search_path_precedes_the_one_in_our_directory() {
    let home = Home::new()
        .with("librocprofiler-sdk.so.1", "sdk.c", &["-DATTACH"])
        .with("libtool.so", "tool.c", &[]);
    let other = home.path("other");
    std::fs::create_dir(&other).unwrap();
    // Its table function refuses, which tells it from the one in our directory.
    let refusing = source("runtime.c");
    let file = other.join("librocprofiler-sdk.so");
    compile(&[
        "-shared",
        "-fPIC",
        "-DSDK_THAT_REFUSES",
        "-o",
        file.to_str().unwrap(),
        &refusing,
    ]);
    let list = format!(":{}/absent:{}", home.path("").display(), other.display());
    let tool = ("ROCP_TOOL_LIBRARIES", "libtool.so");
    // Without the file in the search path, ours is used.
    let lines = home.run(&[tool], &["add:hip"]);
    assert_eq!(lines.last().unwrap(), "add hip 0 8", "{lines:?}");
    let lines = home.run(&[tool, ("LD_LIBRARY_PATH", &list)], &["add:hip"]);
    assert_eq!(lines.last().unwrap(), "add hip 6 8", "{lines:?}");
}

#[test]
fn runtimes_of_newer_releases_load_and_are_called_when_a_tool_is_active() {
    let home = Home::new()
        .with("libnewer.so", "newer.c", &[])
        .with("librocprofiler-sdk.so.1", "sdk.c", &["-DATTACH"])
        .with("libtool.so", "tool.c", &[]);
    let loaded = [
        "  newer: 0 0 0 8",
        "  newer: fresh 1 kept 1",
        "  newer: fresh 1 kept 1",
        "load ok",
    ];
    let active = |lines: &[String]| -> Vec<String> {
        let about = lines.iter().filter(|line| line.contains(" active "));
        about.cloned().collect()
    };
    assert_eq!(home.run(&[], &["load:libnewer.so", "add:hip"])[..4], loaded);
    let tool = [("ROCP_TOOL_LIBRARIES", "libtool.so")];
    let lines = home.run(&tool, &["load:libnewer.so", "add:hip", "add:hsa"]);
    assert_eq!(lines[..4], loaded);
    let both = ["  newer: one active 1", "  newer: two active 1"];
    assert_eq!(active(&lines), both);
    // A runtime that comes later is called at once.
    let lines = home.run(&tool, &["add:hip", "load:libnewer.so", "add:hsa"]);
    assert_eq!(active(&lines), both);
    assert!(active(&home.run(&[], &["load:libnewer.so", "add:hip"])).is_empty());
    let home = Home::new()
        .with("libnewer.so", "newer.c", &[])
        .with("librocprofiler-sdk.so", "sdk.c", &["-DATTACH", "-DOURS"])
        .with("libtool.so", "tool.c", &[]);
    let words = [
        "load:libnewer.so",
        "add:hip",
        "attach-plain:libtool.so",
        "attach-plain:libtool.so",
    ];
    let lines = home.run(&[], &words);
    assert_eq!(
        active(&lines),
        both.map(|line| line.replace('1', "2")),
        "{lines:?}"
    );
    // They can prepare for the first dispatch that the tool records.
    let place = |start: &str| lines.iter().position(|line| line.starts_with(start));
    assert!(
        place("  newer: two active 2") < place("  sdk: attach "),
        "{lines:?}"
    );
    // An attach that the SDK refuses has notified them, and the next one does not again.
    let words = [
        "load:libnewer.so",
        "add:hip",
        "attach-plain:libtool.so",
        "attach-plain:libtool.so",
    ];
    let lines = home.run(&[("PROBE_ATTACH_FAILS", "1")], &words);
    assert_eq!(active(&lines).len(), 2, "{lines:?}");
    assert_eq!(lines.last().unwrap(), "attach 0", "{lines:?}");
}

#[test]
fn a_tool_named_at_the_start_gets_each_table_as_it_comes() {
    let home = Home::new()
        .with("librocprofiler-sdk.so.1", "sdk.c", &["-DATTACH"])
        .with("libtool.so", "tool.c", &[]);
    let tool = [("ROCP_TOOL_LIBRARIES", "libtool.so")];
    assert_eq!(
        home.run(&tool, &["add:hip_compiler", "add:hip", "add:roctx*3"]),
        [
            "  sdk: tool libtool.so loaded",
            "  tool: configure 10201 1.2.1",
            "  sdk: set hip_compiler 70204 0 1 size 32",
            "add hip_compiler 0 24",
            "  sdk: set hip 70204 0 1 size 32",
            "add hip 0 8",
            "  sdk: set roctx 70204 0 3 size 32",
            "add roctx 0 16",
        ]
    );
    // The explicit switch has priority. A refusal has its code, and the rest continues.
    let forced_off = [tool[0], ("ROCPROFILER_REGISTER_FORCE_LOAD", "0")];
    assert_eq!(home.run(&forced_off, &["add:hip"]), ["add hip 1 8"]);
    let refuses = [
        ("ROCPROFILER_REGISTER_FORCE_LOAD", "1"),
        ("PROBE_REFUSES", "hip"),
    ];
    let lines = home.run(&refuses, &["add:hip", "add:hsa", "rest"]);
    assert_eq!(lines[1], "add hip 6 8");
    assert_eq!(lines[3], "add hsa 0 0");
    assert_eq!(lines[4..], ["  sdk: set hip 70204 0 1 size 32", "rest 6"]);
    // A library registers from inside a registration.
    let recursing = [tool[0], ("PROBE_RECURSE", "1")];
    let lines = home.run(&recursing, &["add:hsa", "add:hip"]);
    assert_eq!(
        lines
            .iter()
            .filter(|l| *l == "  sdk: register again 2")
            .count(),
        2
    );
    assert!(lines.contains(&"add hip 0 8".to_owned()), "{lines:?}");
}

#[test]
fn a_named_sdk_is_the_only_one() {
    let home = Home::new()
        .with("librocprofiler-sdk.so.1", "sdk.c", &[])
        .with("libmysdk.so", "sdk.c", &["-DATTACH"]);
    let named = home.path("libmysdk.so");
    let named = [
        ("ROCPROFILER_REGISTER_LIBRARY", named.to_str().unwrap()),
        ("ROCPROFILER_REGISTER_LOG_LEVEL", "info"),
    ];
    let (lines, errors) = home.run_with_errors(&named, &["add:hip"]);
    assert_eq!(lines, ["  sdk: set hip 70204 0 1 size 32", "add hip 0 8"]);
    assert!(errors.contains("libmysdk.so"), "{errors}");
    let missing = [("ROCPROFILER_REGISTER_LIBRARY", "/nowhere/libmysdk.so")];
    assert_eq!(home.run(&missing, &["add:hip"]), ["add hip 1 8"]);
}

#[test]
fn a_late_sdk_requests_the_kept_tables() {
    let home = Home::new().with("librocprofiler-sdk.so.1", "sdk.c", &["-DATTACH"]);
    let lines = home.run(
        &[],
        &[
            "add:hip",
            "add:hsa",
            "all",
            "load:librocprofiler-sdk.so.1",
            "rest",
            "rest",
            "all",
        ],
    );
    let both = [
        "  sdk: set hip 70204 0 1 size 32".to_owned(),
        "  sdk: set hsa 70204 0 1 size 32".to_owned(),
    ];
    assert_eq!(
        lines[..4],
        ["add hip 1 8", "add hsa 1 0", "all 0", "load ok"]
    );
    assert_eq!(lines[4..6], both);
    assert_eq!(lines[6..8], ["rest 0", "rest 0"]);
    assert_eq!(lines[8..10], both);
    assert_eq!(lines[10..], ["all 0"]);
}

#[test]
fn a_forked_child_has_the_tables_and_gets_its_own_listener() {
    let home = Home::new();
    let lines = home.run(
        &[],
        &[
            "add:hip",
            "listeners:1",
            "fork",
            // This is from the fork on: the child has a listener before anything is registered
            // there.
            "listeners:1",
            "list:0",
            "add:hsa",
            "listeners:1",
        ],
    );
    assert_eq!(
        lines,
        [
            "add hip 1 8",
            "listeners 1",
            "listeners 1",
            "  info hip 70204 1",
            "list 0",
            "add hsa 1 0",
            "listeners 1",
            "child 0"
        ]
    );
}

/// Making a thread allocates. In a child of a program with many threads only the C library's own
/// allocator is known to be usable at once.
#[test]
fn a_forked_child_with_another_allocator_is_left_as_it_is() {
    let home = Home::new().with("liballoc.so", "alloc.c", &["-fno-builtin"]);
    let tasks = |variables: &[(&str, &str)]| {
        let lines = home.run(variables, &["add:hip", "listeners:1", "fork", "tasks"]);
        assert_eq!(lines[..2], ["add hip 1 8", "listeners 1"]);
        assert_eq!(lines[3], "child 0");
        lines[2].clone()
    };
    assert_eq!(tasks(&[]), "tasks 2");
    assert_eq!(tasks(&[("LD_PRELOAD", "liballoc.so")]), "tasks 1");
}

#[test]
fn every_code_has_a_text() {
    let words: Vec<String> = (0..=10).map(|n| format!("word:{n}")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let lines = Home::new().run(&[], &words);
    assert_eq!(lines[0], "word Success");
    assert_eq!(lines[1], "word rocprofiler-register found no tools");
    assert_eq!(lines[10], "word rocprofiler_register_unknown_error");
}
