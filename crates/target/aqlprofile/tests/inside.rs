//! The helper in another root: it has the libraries of that root and the rights of its process, and
//! nothing there can do more.

#![allow(clippy::unwrap_used)]

use midair_aqlprofile::{Error, Helper, Inside, Maker, failure, prepare};
use midair_counters::wire::{Gpu, Question, RawEvent};
use midair_counters::{Definitions, Template};
use midair_failure::Kind;
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_midair-aqlprofile");
const LIBRARY: &str = include_str!("library.c");
const LOADER: &str = "lib64/ld-linux-x86-64.so.2";
const LIBRARIES: &str = "lib/x86_64-linux-gnu";

/// Whether there may be other roots here.
fn can_enter() -> bool {
    cfg!(target_arch = "x86_64") && midair_tests::is_root_for("to enter another root").unwrap()
}

fn compile(source: &str, to: &Path, flags: &[&str]) {
    let file = to.with_extension("c");
    std::fs::write(&file, source).unwrap();
    let mut cc = Command::new("cc");
    cc.args(flags).arg("-o").arg(to).arg(&file);
    assert!(cc.status().unwrap().success());
    std::fs::remove_file(file).unwrap();
}

/// A root with the C library of this machine.
struct Root(tempfile::TempDir);

impl Root {
    fn new() -> Root {
        let root = Root(tempfile::tempdir().unwrap());
        for directory in ["", "lib64", "lib", LIBRARIES, "app"] {
            std::fs::create_dir_all(root.at(directory)).unwrap();
            std::fs::set_permissions(root.at(directory), Permissions::from_mode(0o755)).unwrap();
        }
        root.take(LOADER);
        for library in ["libc.so.6", "libgcc_s.so.1"] {
            root.take(&format!("{LIBRARIES}/{library}"));
        }
        root
    }

    fn at(&self, below: &str) -> PathBuf {
        self.0.path().join(below)
    }

    /// Copies a file of this machine.
    fn take(&self, file: &str) {
        std::fs::copy(Path::new("/").join(file), self.at(file)).unwrap();
    }

    /// Compiles the library into the root.
    fn with_library(self, flag: &str) -> Root {
        let to = self.at("app/lib.so");
        compile(LIBRARY, &to, &["-shared", "-fPIC", &format!("-D{flag}")]);
        self
    }

    fn inside(&self, program: &Path) -> Inside {
        Inside {
            root: File::open(self.0.path()).unwrap().into(),
            mounts: File::open("/proc/self/ns/mnt").unwrap().into(),
            program: File::open(program).unwrap().into(),
            user: 12345,
            group: 23456,
            groups: vec![34567],
            search: "/app".into(),
            libraries: vec!["/nowhere/lib.so".into(), "/app/lib.so".into()],
        }
    }

    fn ask(&self) -> Result<Template, Error> {
        ask(&mut helper(&self.inside(Path::new(PROGRAM))))
    }
}

/// A process of the target's user with mounts of its own, in which `/proc` is also in the root.
struct Neighbour(Child);

impl Neighbour {
    fn start(root: &Root) -> Neighbour {
        let script = "mount --bind /proc \"$0/proc\" && exec setpriv --reuid 12345 --regid 23456 --groups 34567 sleep 60 < /dev/null";
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script]).arg(root.0.path());
        let started = Neighbour(command.spawn().unwrap());
        let file = format!("/proc/{}/comm", started.0.id());
        while std::fs::read_to_string(&file).unwrap() != "sleep\n" {
            std::thread::sleep(Duration::from_millis(1));
        }
        started
    }

    fn file(&self, name: &str) -> File {
        File::open(format!("/proc/{}/{name}", self.0.id())).unwrap()
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn helper(inside: &Inside) -> Helper {
    Helper::start_inside(Path::new(PROGRAM), inside).unwrap()
}

fn gpu() -> Gpu {
    Gpu {
        name: "gfx942".into(),
        xccs: 1,
        engines: 8,
        units: 104,
        arrays: 1,
        ..Gpu::default()
    }
}

fn ask(helper: &mut Helper) -> Result<Template, Error> {
    let events = vec![RawEvent {
        block: "SQ".into(),
        event: 4,
        flags: 0,
    }];
    helper.template(&Question { gpu: gpu(), events })
}

/// Returns the names of a user's processes that descend from this one.
fn names_of(user: u32) -> Vec<String> {
    let children = format!("/proc/self/task/{}/children", std::process::id());
    let own = std::fs::read_to_string(children).unwrap_or_default();
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let all = threads.map(|thread| std::fs::read_to_string(thread.path().join("children")));
    let all: String = all.flatten().chain([own]).collect();
    let mut names = Vec::new();
    for pid in all.split_ascii_whitespace() {
        let of = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}"));
        let is_theirs = of("status").is_ok_and(|text| text.contains(&format!("Uid:\t{user}\t")));
        let name = of("comm").unwrap_or_default();
        if is_theirs && !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

#[test]
fn the_library_of_another_root_makes_packets() {
    if !can_enter() {
        return;
    }
    let root = Root::new().with_library("GOOD");
    let mut helper = helper(&root.inside(Path::new(PROGRAM)));
    for _ in 0..3 {
        let none = Definitions::default();
        let template = prepare(&mut helper, &gpu(), &none, &["SQ_WAVES"]).unwrap();
        assert_eq!(template.template.start, [0x11, 0x22]);
    }
}

/// The library reports a bit for each thing that it could do.
#[test]
fn code_of_another_root_can_only_read_what_its_process_may_read() {
    if !can_enter() {
        return;
    }
    let root = Root::new().with_library("PROBE");
    let file = |name: &str, text: &str, mode: u32, [user, group]: [u32; 2]| {
        std::fs::write(root.at(name), text).unwrap();
        std::fs::set_permissions(root.at(name), Permissions::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(root.at(name), Some(user), Some(group)).unwrap();
    };
    file("secret", "root's", 0o600, [0, 0]);
    file("listed", "a file\n", 0o644, [0, 0]);
    file("own", "of the user", 0o400, [12345, 0]);
    file("group", "of the group", 0o040, [0, 23456]);
    file("other", "of a supplementary group", 0o640, [0, 34567]);
    root.take("lib/x86_64-linux-gnu/libc.so.6");
    std::fs::copy(PROGRAM, root.at("app/midair")).unwrap();
    let device = Command::new("mknod")
        .args(["-m", "666"])
        .arg(root.at("device"))
        .args(["c", "1", "3"])
        .status();
    assert!(device.unwrap().success());
    std::fs::create_dir(root.at("proc")).unwrap();
    let neighbour = Neighbour::start(&root);
    file("neighbour", &neighbour.0.id().to_string(), 0o644, [0, 0]);
    std::fs::set_permissions(root.0.path(), Permissions::from_mode(0o777)).unwrap();
    std::fs::set_permissions(root.at("app"), Permissions::from_mode(0o777)).unwrap();
    let mut inside = root.inside(Path::new(PROGRAM));
    let seen = neighbour.file(&format!("root{}", root.0.path().display()));
    (inside.root, inside.mounts) = (seen.into(), neighbour.file("ns/mnt").into());
    match ask(&mut helper(&inside)) {
        Ok(_) => {}
        Err(Error::Refused { code, .. }) => panic!("{code:#b}"),
        Err(other) => panic!("{other}"),
    }
    assert!(!root.at("written").exists());
}

#[test]
fn a_root_whose_loader_cannot_start_the_helper_is_said_with_the_remedy() {
    if !can_enter() {
        return;
    }
    let root = Root::new();
    std::fs::remove_file(root.at(LIBRARIES).join("libgcc_s.so.1")).unwrap();
    let mut first = helper(&root.inside(Path::new(PROGRAM)));
    for _ in 0..2 {
        let none = ask(&mut first).unwrap_err();
        assert!(matches!(&none, Error::Loader(_)), "{none:?}");
        let failure = failure(&none);
        assert_eq!(failure.kind, Kind::NoCounters);
        assert!(
            failure.what.contains("libgcc_s.so.1: cannot open"),
            "{failure}"
        );
        assert!(failure.hint.contains("glibc"), "{}", failure.hint);
    }
    // A C library without the versions that the helper needs.
    let root = Root::new();
    let libc = root.at(LIBRARIES).join("libc.so.6");
    std::fs::remove_file(&libc).unwrap();
    let flags = ["-shared", "-nostdlib", "-Wl,-soname,libc.so.6"];
    compile("int nothing;", &libc, &flags);
    let old = root.ask().unwrap_err();
    assert!(
        matches!(&old, Error::Loader(why) if why.contains("version `GLIBC_") || why.contains("no version information")),
        "{old:?}"
    );
    // No loader at all, as with musl.
    let root = Root::new();
    std::fs::remove_file(root.at(LOADER)).unwrap();
    let none = root.ask().unwrap_err();
    assert!(
        matches!(&none, Error::Outside(why) if why.contains("execute")),
        "{none:?}"
    );
}

#[test]
fn a_library_that_is_missing_there_or_dies_there_is_said() {
    if !can_enter() {
        return;
    }
    let missing = Root::new().ask().unwrap_err();
    assert!(
        matches!(&missing, Error::Missing(why) if why.contains("/app/lib.so: cannot open")),
        "{missing:?}"
    );
    let died = Root::new().with_library("CRASH").ask().unwrap_err();
    assert!(
        matches!(&died, Error::Died(how) if how.contains("signal")),
        "{died:?}"
    );
    let root = Root::new().with_library("HANG");
    let helper = helper(&root.inside(Path::new(PROGRAM)));
    let mut helper = helper.limit(Duration::from_secs(1));
    // A group is asked for again, without the counters that midair adds.
    let asked = std::thread::spawn(move || [ask(&mut helper), ask(&mut helper)]);
    // Whoever lists the processes sees its name meanwhile.
    let mut last = Vec::new();
    while !asked.is_finished() {
        let names = names_of(12345);
        last = if names.is_empty() { last } else { names };
    }
    assert_eq!(last, ["midair-aqlprofi\n"]);
    for silent in asked.join().unwrap() {
        assert!(matches!(&silent, Err(Error::Silent(_))), "{silent:?}");
    }
    assert!(names_of(12345).is_empty(), "it was killed");
}

#[test]
fn who_may_not_enter_is_said() {
    if !can_enter() {
        return;
    }
    let root = Root::new().with_library("GOOD");
    let mut inside = root.inside(Path::new(PROGRAM));
    inside.mounts = File::open("/dev/null").unwrap().into();
    let mut helper = helper(&inside);
    for _ in 0..2 {
        let outside = ask(&mut helper).unwrap_err();
        assert!(
            matches!(&outside, Error::Outside(why) if why.contains("setns")),
            "{outside:?}"
        );
        let failure = failure(&outside);
        assert_eq!(failure.kind, Kind::NoCounters);
        assert!(failure.hint.contains("as root"), "{}", failure.hint);
    }
}

/// The program that runs there may be anything, as far as this side knows.
#[test]
fn answers_without_end_are_refused() {
    if !can_enter() {
        return;
    }
    let root = Root::new();
    let floods = [
        // A line without end, lines without end, and a reader that reads nothing.
        "for (;;) write(1, \"read 1 1 1 1\", 12);",
        "for (;;) write(1, \"read 1\\n\", 7);",
        "for (;;) write(1, \"read 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\\n\", 65);",
        "write(1, \"\\033[2J\\n\", 5); for (;;) read(0, (char[1]){0}, 1);",
    ];
    for flood in floods {
        let program = root.at("flood");
        let source = format!("#include <unistd.h>\nint main(void) {{ {flood} return 0; }}");
        compile(&source, &program, &["-w", "-static"]);
        let began = Instant::now();
        let error = ask(&mut helper(&root.inside(&program))).unwrap_err();
        assert!(
            matches!(&error, Error::Odd(_) | Error::Died(_)),
            "{flood}: {error:?}"
        );
        assert!(!error.to_string().contains('\x1b'), "{error}");
        assert!(began.elapsed() < Duration::from_secs(15), "{flood}");
    }
}
