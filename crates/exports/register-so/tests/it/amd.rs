//! AMD's own library is the reference: the same program, with the same stand-ins, on AMD's register
//! library and on ours.

use crate::common::{self, Home, root};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

/// A directory in the lab's root with two copies of everything. `ours` and `amd` differ only in the
/// register library.
struct Pair {
    root: PathBuf,
    folder: tempfile::TempDir,
}

impl Pair {
    fn new(root: PathBuf) -> Pair {
        let folder = tempfile::Builder::new()
            .prefix("midair-amd-")
            .tempdir_in(root.join("tmp"))
            .unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let home = Home::new()
            .with("librocprofiler-sdk.so", "sdk.c", &["-DATTACH"])
            .with("librocprofiler-sdk-attach.so", "helper.c", &[])
            .with("libtool.so", "tool.c", &[])
            .with("libtool2.so", "tool.c", &[]);
        let shared = [
            "librocprofiler-sdk.so",
            "librocprofiler-sdk-attach.so",
            "libtool.so",
            "libtool2.so",
            "host",
        ];
        for side in ["ours", "amd"] {
            let to = folder.path().join(side);
            std::fs::create_dir(&to).unwrap();
            for name in shared {
                std::fs::copy(home.path(name), to.join(name)).unwrap();
            }
        }
        let register = "librocprofiler-register.so.0";
        std::fs::copy(common::built(), folder.path().join("ours").join(register)).unwrap();
        let real = root.join("usr/lib/x86_64-linux-gnu").join(register);
        std::fs::copy(
            std::fs::canonicalize(real).unwrap(),
            folder.path().join("amd").join(register),
        )
        .unwrap();
        Pair { root, folder }
    }

    fn run(&self, side: &str, variables: Variables, words: &[&str]) -> (String, ExitStatus) {
        let inside = format!(
            "/{}",
            self.folder
                .path()
                .strip_prefix(&self.root)
                .unwrap()
                .join(side)
                .display()
        );
        let out = Command::new("timeout")
            .args(["-s", "KILL", "60", "bash", root::ENTER])
            .arg(&self.root)
            .args(["/usr/bin/env", "-i", &format!("LD_LIBRARY_PATH={inside}")])
            .args(variables.iter().map(|(n, v)| format!("{n}={v}")))
            .arg(format!("{inside}/host"))
            .args(words)
            .output()
            .unwrap();
        (
            String::from_utf8_lossy(&out.stdout).into_owned(),
            out.status,
        )
    }
}

/// The variables of an environment.
type Variables<'a> = &'a [(&'a str, &'a str)];

#[test]
fn results_equal_amds() {
    let Some(root) = root::find() else { return };
    let pair = Pair::new(root);
    let tool: (&str, &str) = ("ROCP_TOOL_LIBRARIES", "libtool.so");
    let attach: (&str, &str) = ("ROCP_TOOL_ATTACH", "1");
    // HSA comes first where the attach helper is loaded. The release in the lab hands the helper's
    // table over in the order of registration. The newest source and our library always hand it
    // over first.
    let cases: &[(Variables, &str)] = &[
        (
            &[],
            "add:hip_compiler add:hip add:hsa add:roctx*3 add:rccl add:rocdecode add:rocjpeg list:0 list:1",
        ),
        (&[], "add:HSA add: add:nothing add:hip*0"),
        (
            &[],
            "add:hip add:hip add:hip add:hip add:hip add:hip add:hip add:hip add:hip",
        ),
        (
            &[],
            "word:0 word:1 word:2 word:3 word:4 word:5 word:6 word:7 word:8 word:9 word:10 word:4000",
        ),
        (&[], "add:hip all rest"),
        (&[("ROCPROFILER_REGISTER_SECURE", "1")], "add:hip add:hsa"),
        (&[("ROCPROFILER_REGISTER_ENABLED", "off")], "add:hip list:0"),
        (&[tool], "add:hip_compiler add:hip add:hsa rest all"),
        (
            &[tool, ("ROCPROFILER_REGISTER_FORCE_LOAD", "0")],
            "add:hip add:hsa",
        ),
        (&[tool, ("PROBE_REFUSES", "hip")], "add:hip add:hsa rest"),
        (&[tool, ("PROBE_RECURSE", "1")], "add:hip add:hsa"),
        (
            &[attach],
            "add:hsa add:hip listeners:1 list:0 attach-plain:libtool.so detach attach-plain:libtool.so detach add:rccl",
        ),
        (&[attach], "add:hsa add:hip detach"),
        (
            &[],
            "add:hip_compiler add:hip add:hsa load:librocprofiler-sdk.so load:libtool.so all rest add:rccl",
        ),
        (
            &[attach, ("PROBE_REFUSES", "hsa")],
            "add:hsa add:hip attach-plain:libtool.so",
        ),
        (
            &[attach, ("PROBE_ATTACH_FAILS", "1")],
            "add:hsa add:hip attach-plain:libtool.so",
        ),
    ];
    let mut differences = Vec::new();
    for (variables, words) in cases {
        let words: Vec<&str> = words.split(' ').collect();
        let (amd, ours) = (
            pair.run("amd", variables, &words),
            pair.run("ours", variables, &words),
        );
        assert!(
            amd.1.success() && !amd.0.is_empty(),
            "the oracle failed: {variables:?} {words:?}: {}\n{}",
            amd.1,
            amd.0
        );
        if amd != ours {
            differences.push(format!(
                "{variables:?} {words:?}\nAMD:\n{}ours ({}):\n{}",
                amd.0, ours.1, ours.0
            ));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
}

#[test]
fn a_helper_that_fails_costs_no_table() {
    let Some(root) = root::find() else { return };
    let pair = Pair::new(root);
    let failing = [("ROCP_TOOL_ATTACH", "1"), ("PROBE_HELPER_FAILS", "1")];
    let words = ["add:hsa", "list:0"];
    // AMD's library forgets HSA's table, so that nothing can be attached later.
    assert_eq!(
        pair.run("amd", &failing, &words).0,
        "  helper: set hsa 70204 0 1\nadd hsa 6 0\nlist 0\n"
    );
    assert_eq!(
        pair.run("ours", &failing, &words).0,
        "  helper: set hsa 70204 0 1\nadd hsa 1 0\n  info hsa 70204 1\nlist 0\n"
    );
}

#[test]
fn where_amds_library_ends_the_process_ours_returns_a_code() {
    let Some(root) = root::find() else { return };
    let pair = Pair::new(root);
    let cases: &[(Variables, &str, &str)] = &[
        (&[], "add:hip attach:libtool.so", "add hip 1 8\nattach 9\n"),
        (&[], "add:hip detach", "add hip 1 8\ndetach 1\n"),
        (
            &[("ROCPROFILER_REGISTER_ENABLED", "")],
            "add:hip",
            "add hip 1 8\n",
        ),
        (
            &[("ROCPROFILER_REGISTER_LIBRARY", "/nowhere/x.so")],
            "add:hip",
            "add hip 1 8\n",
        ),
        (
            &[("ROCPROFILER_REGISTER_LOG_LEVEL", "loudly")],
            "add:hip",
            "add hip 1 8\n",
        ),
    ];
    for (variables, words, answer) in cases {
        let words: Vec<&str> = words.split(' ').collect();
        let (_, amd) = pair.run("amd", variables, &words);
        assert!(
            !amd.success(),
            "AMD's library lives now: {variables:?} {words:?}"
        );
        let (ours, status) = pair.run("ours", variables, &words);
        assert!(status.success(), "{variables:?} {words:?}: {status}");
        assert_eq!(ours, *answer, "{variables:?} {words:?}");
    }
}
