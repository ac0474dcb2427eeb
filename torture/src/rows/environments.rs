//! Rows 8, 9, 15, 16 and part of 23: containers, other C libraries, tight limits, odd names, other
//! clocks.

use crate::cell::Cell;
use crate::kit::{Kit, TARGET_SOURCES, installed};
use crate::methods::on_amds_register;
use crate::spec::{Spec, Want};
use midair_tests::memory_group::{self, MemoryGroup};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// The refusals that are right for a target without glibc.
const OTHER_LIBC: Want = Want::InOr(&["LibcKind", "LibcTooOld", "Architecture"]);
/// The refusals that are right for a target without room.
const NO_ROOM: Want = Want::InOr(&["SystemCall", "ThreadRefused", "Boot"]);

/// The directory of Debian's headers for this machine type.
const HEADERS: &str = if cfg!(target_arch = "aarch64") {
    "/usr/include/aarch64-linux-gnu"
} else {
    "/usr/include/x86_64-linux-gnu"
};

/// Returns the cells.
pub fn cells() -> Vec<Cell> {
    let mut cells = containers();
    cells.extend(roots());
    cells.extend(libraries());
    cells.extend(limits());
    cells.extend(names());
    cells.extend(clocks());
    cells
}

fn usual() -> Spec {
    Spec::ours("malloc", &["malloc", "parked"])
}

fn contained(flags: &'static [&'static str]) -> impl Fn(&Kit) -> Result<Spec, String> {
    move |_| {
        let words = [&["unshare"], flags, &["--fork", "--kill-child"]].concat();
        Ok(usual().forked_by(&words))
    }
}

fn containers() -> Vec<Cell> {
    const ALL: &[&str] = &["-m", "-n", "-u", "-i", "-p", "--mount-proc"];
    const USER: &[&str] = &["-U", "-r", "-m", "-p", "--mount-proc"];
    vec![
        Cell::on(8, "another mount namespace", contained(&["-m"])).ours_only(),
        Cell::on(8, "another pid namespace", contained(&["-p"])).ours_only(),
        Cell::on(8, "another network namespace", contained(&["-n"])).ours_only(),
        Cell::on(
            8,
            "another user namespace; attached from outside",
            contained(USER),
        )
        .ours_only(),
        Cell::on(
            8,
            "a container (mount, network, uts, ipc, pid); attached from outside",
            contained(ALL),
        ),
        Cell::under(8, "a container; attached from inside", &[], contained(ALL)).inside(),
    ]
}

/// Returns a target that is started by a shell: it prepares the environment and then becomes the
/// target.
fn prepared(script: &'static str) -> impl Fn(&Kit) -> Result<Spec, String> {
    move |kit| {
        let scratch = kit.scratch().display().to_string();
        let fresh = kit.fresh("mount").display().to_string();
        let words = ["unshare", "-m", "sh", "-ec", script, &scratch, &fresh];
        Ok(usual().under(&words))
    }
}

fn roots() -> Vec<Cell> {
    // $0 is the scratch directory, $1 a name in it, and the rest is the target's command line.
    const READ_ONLY: &str =
        r#"mount --bind "$0" "$0"; mount -o remount,bind,ro /; shift; exec "$@""#;
    const NO_EXEC: &str = r#"exec 9<"$2"; mount --bind /tmp /tmp; mount -o remount,bind,noexec /tmp; shift 2; exec /proc/self/fd/9 "$@""#;
    // The program may be on another mount, which the overlay does not show.
    const OVERLAY: &str = r#"mkdir -p "$1"; mount -t tmpfs tmpfs "$1"; mkdir "$1/up" "$1/work" "$1/root"
mount -t overlay -o "lowerdir=/,upperdir=$1/up,workdir=$1/work" overlay "$1/root"
for dir in /proc /dev "$0"; do mkdir -p "$1/root$dir"; mount --rbind "$dir" "$1/root$dir"; done
[ -e "$1/root$2" ] || { dir=${2%/*}; mkdir -p "$1/root$dir"; mount --rbind "$dir" "$1/root$dir"; }
root=$1/root; shift; exec chroot "$root" "$@""#;
    vec![
        Cell::on(8, "a root that cannot be written", prepared(READ_ONLY)),
        Cell::on(8, "/tmp without exec", prepared(NO_EXEC)),
        Cell::on(8, "an overlay as its root", prepared(OVERLAY)).ours_only(),
    ]
}

fn libraries() -> Vec<Cell> {
    fn built(
        compiler: &'static str,
        name: &'static str,
        flags: &'static [&'static str],
    ) -> impl Fn(&Kit) -> Result<Spec, String> {
        move |kit| {
            if installed(compiler).is_none() {
                return Err(format!("{compiler} is not installed"));
            }
            let path = kit.compile_by(compiler, TARGET_SOURCES, name, flags);
            let path = path.map_err(|error| crate::cell::short(&error.to_string()))?;
            Ok(usual().build(path))
        }
    }
    const STATIC: &[&str] = &["-pthread", "-static", "-Wno-error"];
    const STATIC_PIE: &[&str] = &["-pthread", "-static-pie", "-Wno-error"];
    const MUSL: &[&str] = &[
        "-pthread",
        "-Wno-error",
        "-idirafter",
        "/usr/include",
        "-idirafter",
        HEADERS,
    ];
    const MUSL_STATIC: &[&str] = &[
        "-pthread",
        "-static",
        "-Wno-error",
        "-idirafter",
        "/usr/include",
        "-idirafter",
        HEADERS,
    ];
    vec![
        Cell::on(
            9,
            "glibc, linked statically",
            built("cc", "target-static", STATIC),
        )
        .want(OTHER_LIBC)
        .ours_only(),
        Cell::on(
            9,
            "glibc, static and position-independent",
            built("cc", "target-static-pie", STATIC_PIE),
        )
        .want(OTHER_LIBC)
        .ours_only(),
        Cell::on(9, "musl", built("musl-gcc", "target-musl", MUSL))
            .want(OTHER_LIBC)
            .ours_only(),
        Cell::on(
            9,
            "musl, linked statically",
            built("musl-gcc", "target-musl-static", MUSL_STATIC),
        )
        .want(OTHER_LIBC)
        .ours_only(),
        Cell::on(9, "AMD's register library and its listener", |kit| {
            on_amds_register(kit, usual(), true)
        }),
        Cell::on(
            9,
            "AMD's register library, started without ROCP_TOOL_ATTACH: no listener",
            |kit| on_amds_register(kit, usual(), false),
        ),
    ]
}

fn limits() -> Vec<Cell> {
    fn limited(option: &'static str) -> impl Fn(&Kit) -> Result<Spec, String> {
        move |_| Ok(Spec::ours("spin", &["registers", "parked", option]))
    }
    vec![
        Cell::on(15, "64 KiB of address space left", limited("+as:64"))
            .want(NO_ROOM)
            .ours_only(),
        Cell::on(15, "4 MiB of address space left", limited("+as:4096"))
            .want(NO_ROOM)
            .ours_only(),
        Cell::on(15, "no descriptor left", limited("+nofile:3"))
            .want(NO_ROOM)
            .ours_only(),
        Cell::on(15, "no thread left to its user", |_| {
            let user = ["setpriv", "--reuid=1235", "--regid=1235", "--clear-groups"];
            Ok(Spec::ours("spin", &["registers", "parked", "+nproc:3"]).under(&user))
        })
        .want(NO_ROOM)
        .ours_only(),
        Cell::on(15, "stacks of 16 KiB", |_| {
            Ok(Spec::ours(
                "spin",
                &["registers", "parked", "+stacks:16384", "+stack:65536"],
            ))
        })
        .want(NO_ROOM),
        Cell::on(15, "all memory locked", |_| {
            Ok(Spec::ours("spin", &["registers", "parked", "+lock"]))
        }),
        Cell::on(15, "1 MiB left to its memory cgroup", |_| {
            let group = MemoryGroup::make("torture")?;
            let spec = Spec::ours("spin", &["registers", "parked"]).grouped(group);
            Ok(spec.then(|pid| memory_group::leave(pid, 1 << 20)))
        }),
    ]
}

fn names() -> Vec<Cell> {
    vec![
        Cell::on(16, "5,000 mappings", |_| {
            Ok(Spec::ours("malloc", &["malloc", "parked", "+maps:5000"]))
        }),
        Cell::on(16, "1,000 libraries", |kit| {
            let dir = thousand(kit).map_err(|error| error.to_string())?;
            Ok(usual().word(&format!("+libs:{}", dir.display())))
        }),
        Cell::on(16, "1.8 MB of environment", |_| {
            let value = "x".repeat(120_000);
            let spec = usual();
            Ok((0..15).fold(spec, |spec, n| {
                spec.env(&format!("LONG_{n}"), value.clone())
            }))
        }),
        Cell::on(
            16,
            "a thread's name with a bracket and a line's end",
            |_| {
                Ok(Spec::ours(
                    "stdin",
                    &["malloc", "parked", "+comm:a) R (\nb"],
                ))
            },
        ),
        Cell::on(16, "a path that is not UTF-8", |kit| {
            named(kit, b"odd \xff\xfe) name\n")
        }),
        Cell::on(16, "a path of 3,000 bytes", |kit| {
            let mut path = kit.fresh("deep");
            for _ in 0..14 {
                path.push("d".repeat(200));
            }
            std::fs::create_dir_all(&path).map_err(|error| error.to_string())?;
            copied(kit, path.join("program"))
        }),
        Cell::on(16, "a program that was deleted", |kit| {
            copied(kit, kit.fresh("deleted")).map(|spec| {
                spec.then(|pid| {
                    Ok(std::fs::remove_file(std::fs::read_link(format!(
                        "/proc/{pid}/exe"
                    ))?)?)
                })
            })
        }),
    ]
}

/// Makes a thousand files once, each of which is a library of its own.
fn thousand(kit: &Kit) -> std::io::Result<PathBuf> {
    let dir = kit.scratch().join("thousand");
    if !dir.exists() {
        std::fs::create_dir(&dir)?;
        for number in 0..1000 {
            std::fs::copy(kit.program("small.so"), dir.join(format!("lib{number}.so")))?;
        }
    }
    Ok(dir)
}

fn named(kit: &Kit, name: &[u8]) -> Result<Spec, String> {
    let dir = kit.fresh("names");
    std::fs::create_dir_all(&dir).map_err(|error| error.to_string())?;
    copied(kit, dir.join(OsString::from_vec(name.to_vec())))
}

fn copied(kit: &Kit, to: PathBuf) -> Result<Spec, String> {
    let done = std::fs::copy(kit.program("target"), &to)
        .and_then(|_| std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o755)));
    done.map_err(|error| format!("{}: {error}", to.display()))?;
    Ok(usual().build(to))
}

fn clocks() -> Vec<Cell> {
    vec![
        Cell::on(
            23,
            "clocks of its own, 100,000 s ahead (a time namespace)",
            |_| {
                if !std::path::Path::new("/proc/self/ns/time").exists() {
                    return Err("this kernel has no time namespaces".to_owned());
                }
                Ok(usual().forked_by(&[
                    "unshare",
                    "--time",
                    "--monotonic",
                    "100000",
                    "--boottime",
                    "100000",
                    "--fork",
                    "--kill-child",
                ]))
            },
        )
        .ours_only(),
        Cell::under(
            23,
            "4 busy threads and the attacher on one processor",
            &["taskset", "-c", "0"],
            |_| Ok(Spec::ours("spin", &["malloc*3", "parked"]).under(&["taskset", "-c", "0"])),
        ),
        Cell::on(23, "a step of the clock", |_| {
            Err(
                "no namespace has a wall clock of its own, and the machine's is not ours to set"
                    .to_owned(),
            )
        })
        .ours_only(),
    ]
}
