//! AMD's method: its own register library in a target that was started with `ROCP_TOOL_ATTACH=1`,
//! as that library demands, and its attacher's protocol (`tests/c/amd_injector.c`).
//!
//! The library is AMD's binary from the lab. The target runs with the lab as its root, because that
//! library needs a newer C library than many machines have. AMD's attacher, attach helper and SDK
//! cannot be had. Small programs of midair's stand in for them, which do no more than the protocol asks
//! for (`torture/c/amd_helper.c`, `tests/c/mixing_sdk.c`, `torture/c/amd_tool.c`). The tool
//! increments the target's mark each time that it is attached.

use super::{Method, is_mapped};
use crate::kit::{Kit, LIBRARY_FLAGS};
use crate::spec::{Program, Spec};
use crate::tally::{Cycle, Entry};
use midair_tests::Result;
use midair_tests::compile::host_program;
use midair_tests::target::Target;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// AMD's register library and protocol, for machines with a ready lab.
#[derive(Debug)]
pub struct Amd {
    injector: PathBuf,
    version: String,
}

/// The least time limit of a cycle, the same as gdb's. AMD's own attacher would wait for half an
/// hour.
const LEAST: Duration = Duration::from_secs(10);
/// Rows whose programs can run in the lab's root.
const ROWS: [u8; 12] = [1, 2, 3, 4, 5, 9, 11, 15, 16, 17, 18, 19];
/// The place of the lab when `MIDAIR_LAB` does not name it.
const DEFAULT_LAB: &str = "/var/tmp/rocm-lab";
/// The path of AMD's register library in the lab.
const REGISTER: &str = "usr/lib/x86_64-linux-gnu/librocprofiler-register.so.0";
/// The directory of what AMD's library loads. It has the name of a library that was brought in,
/// because such libraries may stay.
const PARTS: &str = "amd-probe";

/// Gives a program the lab as its root, in a mount namespace of its own, with a writable layer on
/// top. The scratch directory has the same path as outside. The lab becomes the root of the whole
/// namespace and not only of the process, because gdb looks for the program's libraries in the
/// namespace's root. $0 is the lab, $1 the scratch directory, $2 a name in it, and the rest is the
/// command.
const ENTER: &str = r#"mkdir -p "$2"; mount -t tmpfs tmpfs "$2"; mkdir "$2/up" "$2/work" "$2/root"
mount -t overlay -o "lowerdir=$0,upperdir=$2/up,workdir=$2/work" overlay "$2/root"
mkdir -p "$2/root$1"; mount --bind "$1" "$2/root$1"
for dir in /proc /dev; do mount --rbind "$dir" "$2/root$dir"; done
cd "$2/root"; mkdir .before; pivot_root . .before; umount -l /.before; shift 2; exec "$@""#;

impl Amd {
    /// Looks for the lab and makes what else is needed.
    ///
    /// # Errors
    /// Returns why the method cannot be had.
    pub fn find(kit: &Kit) -> std::result::Result<Amd, String> {
        let file = lab()?.join(REGISTER);
        let file = std::fs::canonicalize(&file).map_err(|error| error.to_string())?;
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        parts(kit).map_err(|error| error.to_string())?;
        Ok(Amd {
            injector: host_program("amd_injector").map_err(|error| error.to_string())?,
            version: format!(
                "AMD's {name} (Debian's package), by torture's client of AMD's protocol"
            ),
        })
    }

    /// Returns the version of the library.
    pub fn version(&self) -> &str {
        &self.version
    }
}

/// Returns the lab's root.
fn lab() -> std::result::Result<PathBuf, String> {
    let root = std::env::var_os("MIDAIR_LAB").unwrap_or_else(|| DEFAULT_LAB.into());
    let root = PathBuf::from(root);
    if std::env::var_os("MIDAIR_SKIP_LAB").is_some_and(|value| value == "1") {
        return Err("MIDAIR_SKIP_LAB=1".to_owned());
    }
    match root.join(".rocm").exists() && root.join(REGISTER).exists() {
        true => Ok(root),
        false => Err(format!("no ready lab in {}", root.display())),
    }
}

/// Makes once what AMD's library loads, and the target with what it loads itself, at a path that is
/// the same for both sides.
fn parts(kit: &Kit) -> Result<PathBuf> {
    let dir = kit.scratch().join(PARTS);
    if dir.exists() {
        return Ok(dir);
    }
    std::fs::create_dir(&dir)?;
    for (source, library) in [
        ("amd_helper.c", "librocprofiler-sdk-attach.so"),
        ("../../tests/c/mixing_sdk.c", "librocprofiler-sdk.so"),
        ("amd_tool.c", "tool.so"),
    ] {
        let built = kit.compile(&[source], library, LIBRARY_FLAGS)?;
        std::fs::copy(built, dir.join(library))?;
    }
    for name in ["target", "small.so"] {
        std::fs::copy(kit.program(name), dir.join(name))?;
    }
    Ok(dir)
}

/// Returns a target with a midair program in the lab's root, where a runtime registers with AMD's
/// register library. It has AMD's listener, or none, as most programs are started.
///
/// # Errors
/// Returns why this target cannot be had in this way.
pub fn on_amds_register(
    kit: &Kit,
    spec: Spec,
    listener: bool,
) -> std::result::Result<Spec, String> {
    let lab = lab()?.to_string_lossy().into_owned();
    let parts = parts(kit).map_err(|error| error.to_string())?;
    let Program::Ours { program, words } = &spec.program else {
        return Err("only programs of ours are made for the lab's root".to_owned());
    };
    if words.iter().any(|word| word == "+amd") {
        return Ok(spec);
    }
    if spec.forked {
        return Err("namespaces beside the lab's root".to_owned());
    }
    let (scratch, fresh) = (kit.scratch(), kit.fresh("root"));
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let program = program.clone().unwrap_or_else(|| parts.join("target"));
    let mut spec = spec
        .word("+amd")
        .build(program)
        .env("LD_LIBRARY_PATH", text(&parts))
        .env("SMALL", text(&parts.join("small.so")))
        .then_under(&[
            "unshare",
            "-m",
            "sh",
            "-ec",
            ENTER,
            &lab,
            &text(scratch),
            &text(&fresh),
        ]);
    // The lab has no allocator besides its C library's, so ours are copied there.
    for (_, library) in spec.env.iter_mut().filter(|(name, _)| name == "LD_PRELOAD") {
        let from = PathBuf::from(&library);
        let to = scratch.join(from.file_name().unwrap_or_default());
        if !to.exists() {
            std::fs::copy(&from, &to).map_err(|error| error.to_string())?;
        }
        *library = text(&to);
    }
    Ok(match listener {
        true => spec.env("ROCP_TOOL_ATTACH", "1"),
        false => spec,
    })
}

impl Method for Amd {
    fn name(&self) -> &'static str {
        "amd"
    }

    fn takes(&self, row: u8) -> bool {
        ROWS.contains(&row)
    }

    fn dress(&self, kit: &Kit, spec: Spec) -> std::result::Result<Spec, String> {
        on_amds_register(kit, spec, true)
    }

    fn cycle(&mut self, kit: &Kit, pid: i32, limit: Duration) -> Result<Cycle> {
        let limit = limit.max(LEAST);
        let tool = kit.scratch().join(PARTS).join("tool.so");
        let mut command = kit.clean(&self.injector);
        command.arg(pid.to_string()).arg(&tool);
        command.args(["ROCPROF_TORTURE=1", "ROCPROF_OUTPUT_PATH=/tmp"]);
        let began = Instant::now();
        let exit = match Target::spawn(command)?.wait(limit) {
            Ok(exit) => exit,
            Err(_) => return Ok(Cycle::Hung(format!("no end after {limit:?}"))),
        };
        let whole = began.elapsed();
        let said = |start: &str| {
            let line = exit.stdout.iter().find_map(|line| line.strip_prefix(start));
            line.and_then(|word| word.parse::<u64>().ok())
        };
        let words = exit.stderr.join(" ");
        Ok(match (said("attach "), said("detach "), said("took ")) {
            (Some(0), Some(0), Some(ns)) if is_mapped(pid, &tool) => {
                let attach = Duration::from_nanos(ns);
                Cycle::Entered(Entry {
                    attach,
                    out: whole.saturating_sub(attach),
                    tier: "listener".to_owned(),
                    ..Entry::default()
                })
            }
            (None, ..) if words.contains("no thread rocp-bg-attach") => {
                Cycle::Refused("NoListener".to_owned(), words)
            }
            (attach, detach, _) => {
                Cycle::Failed(format!("attach {attach:?}, detach {detach:?}: {words}"))
            }
        })
    }
}
