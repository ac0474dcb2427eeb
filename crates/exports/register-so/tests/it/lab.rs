//! AMD's real HIP and HSA runtimes registering with our library, in the lab.

use crate::common::root;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(90);

/// The modelled GPU's name in the directory of [`install`].
const MODEL: &str = "model.so";

/// A directory inside the root with our library under its real name, and with the modelled GPU. The
/// lab's own small model completes a copy too early now and then, and the program crashes at its
/// end, whatever library it registers with.
fn install(root: &Path) -> tempfile::TempDir {
    let folder = tempfile::Builder::new()
        .prefix("midair-register-")
        .tempdir_in(root.join("tmp"))
        .unwrap();
    std::fs::set_permissions(
        folder.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    for (library, name) in [
        (crate::common::built(), "librocprofiler-register.so.0"),
        (crate::common::gpu_model(), MODEL),
    ] {
        std::fs::copy(library, folder.path().join(name)).unwrap();
    }
    folder
}

/// `vadd` on the modelled GPU, whose runtimes register, with our library first in the search order.
fn vadd(root: &Path, folder: &Path, arguments: &[&str]) -> Command {
    let inside = format!("/{}", folder.strip_prefix(root).unwrap().display());
    let mut command = Command::new("bash");
    command
        .arg(root::ENTER)
        .arg(root)
        .arg("/usr/bin/env")
        .args([
            "HSA_MODEL_TOPOLOGY=/lab/topo",
            &format!("HSA_MODEL_LIB={inside}/{MODEL}"),
            "HSA_TOOLS_LIB=/lab/libregshim.so",
            "LD_PRELOAD=/lab/libregshim.so",
            "SHIM_VERBOSE=1",
            &format!("LD_LIBRARY_PATH={inside}"),
            "/lab/vadd",
        ]);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

#[test]
fn real_runtimes_register_and_their_results_stay_right() {
    let Some(root) = root::find() else { return };
    let folder = install(&root);
    let out = vadd(&root, folder.path(), &["3"]).output().unwrap();
    let (text, errors) = (
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    );
    assert!(out.status.success(), "{}\n{text}\n{errors}", out.status);
    assert_eq!(
        text.lines()
            .filter(|l| l.contains("copyback 1.500000"))
            .count(),
        3,
        "{text}"
    );
    assert_eq!(text.lines().last(), Some("done"));
    for name in ["hip_compiler", "hip", "hsa"] {
        let line = errors
            .lines()
            .find(|l| l.starts_with(&format!("[shim] {name} table")))
            .unwrap_or_else(|| panic!("{name}: {errors}"));
        assert!(
            line.ends_with("register 1 rocprofiler-register found no tools"),
            "{line}"
        );
    }
    assert!(!errors.contains("rocprofiler-register:"), "{errors}");
}

#[test]
fn a_real_process_has_one_parked_listener_that_blocks_signals() {
    let Some(root) = root::find() else { return };
    let folder = install(&root);
    let mut child = vadd(&root, folder.path(), &["1000000", "2000"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = child.stdout.take().unwrap();
    let (tell, told) = channel();
    // The first iteration shows that everything is ready.
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if line.starts_with("iter ") {
                let _ = tell.send(());
                break;
            }
        }
    });
    let up = told.recv_timeout(PATIENCE);
    let found = up.is_ok().then(|| listeners(child.id()));
    // `enter.sh`, `chroot` and `env` replace themselves, so this process is vadd.
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap();
    let found = found.expect("vadd did not come to its first iteration");
    assert_eq!(found.len(), 1, "{found:?}");
    let (call, blocked) = &found[0];
    // This is ppoll(one descriptor, no timeout, no mask): a wait for a connection, which a stop
    // does not interrupt.
    let words: Vec<&str> = call.split(' ').collect();
    assert_eq!(
        (words[0], words[2], words[3], words[4]),
        ("271", "0x1", "0x0", "0x0"),
        "{call}"
    );
    // Every signal that can be blocked, except the two that the C library reserves.
    assert_eq!(blocked, "fffffffe7ffbfeff");
}

/// Returns the system call and the blocked signals of each thread that has the listener's name.
fn listeners(pid: u32) -> Vec<(String, String)> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut found = Vec::new();
        for task in std::fs::read_dir(format!("/proc/{pid}/task"))
            .unwrap()
            .map_while(Result::ok)
        {
            let read =
                |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
            if read("comm").trim_end() == "rocp-bg-attach" {
                let status = read("status");
                let blocked = status
                    .lines()
                    .find_map(|l| l.strip_prefix("SigBlk:\t"))
                    .unwrap_or_default();
                found.push((read("syscall").trim_end().to_owned(), blocked.to_owned()));
            }
        }
        // A thread may have its name already and not be parked yet.
        if Instant::now() > deadline
            || (!found.is_empty() && found.iter().all(|(call, _)| call.starts_with("271 ")))
        {
            return found;
        }
        std::thread::yield_now();
    }
}
