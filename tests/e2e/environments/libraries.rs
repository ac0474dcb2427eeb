//! Unusual names, deleted files, copies of libraries, and C libraries on which ours do not run.

use crate::environments::kit::{
    Attach, Program, Start, as_user, ballast, open_to_all, refused, words, works,
};
use midair_tests::snapshot::Snapshot;
use midair_tests::stage::{command, plain_environment, run_staged};
use midair_tests::stand_in::Kit;
use midair_tests::table::{Csv, json};
use midair_tests::target::{PATIENCE, Target, run};
use midair_tests::{Result, is_root_for, leave_out};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The file names of the runtimes, as they are in `folder`.
const RUNTIMES: [&str; 2] = ["libamdhip64.so.7", "libhsa-runtime64.so.1"];

/// Copies the program and its runtimes into `folder`, and returns how to start it from there.
fn copy_to(kit: &Kit, folder: &Path, name: OsString) -> Result<Start> {
    std::fs::create_dir_all(folder)?;
    for file in RUNTIMES {
        std::fs::copy(kit.dir().join(file), folder.join(file))?;
    }
    let program = folder.join(name);
    std::fs::copy(kit.program("two_gpus")?, &program)?;
    open_to_all(&program)?;
    for part in folder
        .ancestors()
        .take_while(|part| part.starts_with(kit.scratch()))
    {
        open_to_all(part)?;
    }
    Ok(Start {
        program: Some(program.into_os_string()),
        environment: vec![("LD_LIBRARY_PATH".to_owned(), folder.as_os_str().to_owned())],
        ..Start::default()
    })
}

/// Returns the users to test with. Root opens files through the mappings themselves, other users by
/// their paths.
fn users() -> Result<Vec<Option<u32>>> {
    Ok(match is_root_for("to be another user as well")? {
        true => vec![None, Some(1000)],
        false => vec![None],
    })
}

fn by(user: Option<u32>) -> Vec<String> {
    user.map_or_else(Vec::new, as_user)
}

#[test]
fn names_that_are_no_words() -> Result<()> {
    let kit = Kit::new()?;
    let long = vec![b'x'; 250];
    let names: [&[&[u8]]; 4] = [
        &[b"new\nline) \xff\xfe (deleted)"],
        &[b"a\\012b (deleted)"],
        &[b"sp ace", b"S 1 (R", b") 0 0"],
        // The longest path that is possible.
        &[
            &long, &long, &long, &long, &long, &long, &long, &long, &long, &long, &long, &long,
            &long, &long, &long,
        ],
    ];
    for (number, parts) in names.into_iter().enumerate() {
        for user in users()? {
            let mut folder = kit
                .scratch()
                .join(format!("names-{number}-{}", user.unwrap_or(0)));
            folder.extend(
                parts
                    .iter()
                    .map(|part| PathBuf::from(OsString::from_vec(part.to_vec()))),
            );
            let program = OsString::from_vec(b") S 1\n(\xff (deleted)".to_vec());
            let mut start = copy_to(&kit, &folder, program)?;
            start.before = by(user);
            let mut program = Program::start(&kit, "names", start)?;
            let attach = Attach {
                before: by(user),
                ..Attach::default()
            };
            let what = format!("{number} as {user:?}");
            works(&mut program, &attach, &what)?;
            program.quit()?;
        }
    }
    Ok(())
}

#[test]
fn a_large_environment_and_a_thousand_libraries() -> Result<()> {
    let kit = Kit::new()?;
    let mut start = Start::default();
    // The kernel takes at most 128 KiB in one variable.
    for number in 0..16 {
        let text = "x".repeat(127 << 10);
        start
            .environment
            .push((format!("LARGE_{number}"), text.into()));
    }
    let mut program = Program::start(&kit, "environment", start)?;
    works(&mut program, &Attach::default(), "2 MiB of environment")?;
    program.quit()?;

    let folder = kit.scratch().join("thousand");
    std::fs::create_dir(&folder)?;
    let first = folder.join("lib0.so");
    let mut cc = Command::new("cc");
    cc.args([
        "-shared",
        "-fPIC",
        "-nostdlib",
        "-Wl,-z,noseparate-code",
        "-x",
        "c",
        "/dev/null",
        "-o",
    ])
    .arg(&first)
    .env_clear()
    .envs(plain_environment());
    run(cc, PATIENCE)?.success()?;
    for number in 1..1000 {
        std::fs::copy(&first, folder.join(format!("lib{number}.so")))?;
    }
    let start = Start {
        environment: vec![
            ballast(&kit)?,
            ("BALLAST_ALL".to_owned(), folder.into_os_string()),
        ],
        ..Start::default()
    };
    let mut program = Program::start(&kit, "thousand", start)?;
    works(&mut program, &Attach::default(), "1000 libraries")?;
    program.quit()
}

/// Files were deleted, or replaced on the disk by the same or by another version.
#[test]
fn deleted_and_replaced_files() -> Result<()> {
    let kit = Kit::new()?;
    for user in users()? {
        let attach = Attach {
            before: by(user),
            ..Attach::default()
        };
        let begin = |name: &str| -> Result<(Program, PathBuf)> {
            let folder = kit.scratch().join(format!("{name}-{}", user.unwrap_or(0)));
            let mut start = copy_to(&kit, &folder, "program".into())?;
            start.before = by(user);
            std::fs::copy("/lib/x86_64-linux-gnu/libc.so.6", folder.join("libc.so.6"))?;
            Ok((Program::start(&kit, name, start)?, folder))
        };
        // The program and its runtimes are deleted, which does no harm: these files are not read
        // for an entry.
        let (mut program, folder) = begin("deleted")?;
        for file in ["program", RUNTIMES[0], RUNTIMES[1]] {
            std::fs::remove_file(folder.join(file))?;
        }
        works(&mut program, &attach, "program and runtimes deleted")?;
        program.quit()?;

        // Another file with the same C library is there, as after an upgrade to the same version.
        let (mut program, folder) = begin("same")?;
        std::fs::copy(folder.join("libc.so.6"), folder.join("new"))?;
        std::fs::rename(folder.join("new"), folder.join("libc.so.6"))?;
        works(&mut program, &attach, "C library replaced by the same")?;
        program.quit()?;

        // A different C library is there. Root reads what is mapped, and others cannot.
        let (mut program, folder) = begin("other")?;
        std::fs::copy("/lib/x86_64-linux-gnu/libm.so.6", folder.join("new"))?;
        std::fs::rename(folder.join("new"), folder.join("libc.so.6"))?;
        if user.is_none() {
            works(&mut program, &attach, "C library replaced by another")?;
        } else {
            let said = "the file at its path differs from the mapped file";
            refused(&program, &attach, 21, said)?;
        }
        program.quit()?;
    }
    Ok(())
}

#[test]
fn a_c_library_in_another_namespace_of_the_loader() -> Result<()> {
    let kit = Kit::new()?;
    let copy = kit.scratch().join("libc.so.6");
    std::fs::copy("/lib/x86_64-linux-gnu/libc.so.6", &copy)?;
    // The second copy comes from the same file, and then from a file of its own.
    for second in [PathBuf::from("/lib/x86_64-linux-gnu/libm.so.6"), copy] {
        let start = Start {
            environment: vec![
                ballast(&kit)?,
                ("BALLAST_SPACE".to_owned(), second.clone().into_os_string()),
            ],
            ..Start::default()
        };
        let mut program = Program::start(&kit, "space", start)?;
        let maps = Snapshot::take(program.pid)?.maps;
        let count = maps
            .iter()
            .filter(|map| map.path.ends_with("/libc.so.6") && map.perms.starts_with("r-x"))
            .count();
        assert_eq!(count, 2, "{}", second.display());
        works(&mut program, &Attach::default(), "two C libraries")?;
        program.quit()?;
    }
    Ok(())
}

#[test]
fn two_copies_of_a_runtime() -> Result<()> {
    let kit = Kit::new()?;
    for file in RUNTIMES {
        let copy = kit.scratch().join(file);
        std::fs::copy(kit.dir().join(file), &copy)?;
        let start = Start {
            environment: vec![
                ballast(&kit)?,
                ("BALLAST_OPEN".to_owned(), copy.clone().into_os_string()),
                // The copy needs the first one's libraries.
                (
                    "LD_LIBRARY_PATH".to_owned(),
                    kit.dir().as_os_str().to_owned(),
                ),
            ],
            ..Start::default()
        };
        let program = Program::start(&kit, file, start)?;
        let said = format!(
            "has two copies of {}",
            file.split('.').next().unwrap_or_default()
        );
        refused(&program, &Attach::default(), 25, &said)?;
        refused(
            &program,
            &Attach::default(),
            25,
            &copy.display().to_string(),
        )?;
        let exit = run_staged("midair", &["doctor", &program.pid.to_string()], PATIENCE)?;
        assert_eq!(exit.status.code(), Some(25), "{exit}");
        program.quit()?;
    }
    Ok(())
}

#[test]
fn a_runtime_in_another_namespace_of_the_loader() -> Result<()> {
    let kit = Kit::new()?;
    let (preload, ballast) = ballast(&kit)?;
    let mut program = Command::new("sh");
    program.args(["-c", "echo ready && read line"]);
    program.env(preload, ballast);
    program.env("BALLAST_SPACE", kit.dir().join(RUNTIMES[0]));
    program.env("LD_LIBRARY_PATH", kit.dir());
    let mut program = Target::spawn(program)?;
    program.expect("ready")?;
    let pid = program.pid().to_string();
    for words in [
        &["attach", &pid, "--duration", "100ms"][..],
        &["doctor", &pid],
    ] {
        let exit = run_staged("midair", words, PATIENCE)?;
        assert_eq!(exit.status.code(), Some(25), "{exit}");
        let said = [exit.stderr.join("\n"), exit.stdout.join("\n")].concat();
        assert!(
            said.contains("in another linker namespace (dlmopen)"),
            "{exit}"
        );
    }
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    assert!(!maps.contains("memfd:midair"), "{maps}");
    Ok(())
}

/// A program that is launched under the profiler cannot be examined before. Its second copy of HIP
/// is noticed from inside, and neither copy is recorded. What goes through HSA is.
#[test]
fn two_copies_in_a_program_that_is_started() -> Result<()> {
    let kit = Kit::new()?;
    let copy = kit.scratch().join(RUNTIMES[0]);
    std::fs::copy(kit.dir().join(RUNTIMES[0]), &copy)?;
    let (preload, ballast) = ballast(&kit)?;
    let out = kit.scratch().join("out");
    let mut command = command("rocprofv3")?;
    command
        .args([
            "--hip-trace",
            "--kernel-trace",
            "--output-format",
            "csv",
            "json",
        ])
        .args(["-o", "o", "-d"])
        .arg(&out)
        .arg("--")
        .arg(kit.program("two_gpus")?)
        .env(preload, ballast)
        .env("BALLAST_OPEN", &copy)
        .env("LD_LIBRARY_PATH", kit.dir())
        .env("HSA_MODEL_TOPOLOGY", kit.dir().join("topology"));
    let mut target = Target::spawn(command)?;
    target.expect("ready")?;
    target.send("work 3")?;
    target.expect("work")?;
    target.send("quit")?;
    target.wait(PATIENCE)?.success()?;
    let whole = json(&out.join("o_results.json"))?;
    let notes = whole["rocprofiler-sdk-tool"][0]["metadata"]["midair"]["notes"].to_string();
    assert!(
        notes.contains("two copies of HipDispatchTable exist"),
        "{notes}"
    );
    assert!(!out.join("o_hip_api_trace.csv").exists());
    assert_eq!(
        Csv::read(&out.join("o_kernel_trace.csv"))?.rows.len(),
        3 * 2 * 2
    );
    Ok(())
}

/// A program that waits for a line, and ends when its input ends.
const WAIT: &str = "#include <stdio.h>\n#include <unistd.h>\n\
    int main(void) { char c; puts(\"ready\"); fflush(stdout); while (read(0, &c, 1) > 0) {} return 7; }\n";

/// A program without a C library, with threads and system calls of its own, like a Go program.
const BARE: &str = "static long call(long n, long a, long b, long c) { long r;\n\
      __asm__ volatile(\"syscall\" : \"=a\"(r) : \"a\"(n), \"D\"(a), \"S\"(b), \"d\"(c) : \"rcx\", \"r11\", \"memory\"); return r; }\n\
    static char stack[65536] __attribute__((aligned(16)));\n\
    static int other(void) { for (;;) call(34, 0, 0, 0); }\n\
    __attribute__((used, noreturn)) static void begin(void) { char c;\n\
      void **top = (void **)(stack + sizeof stack) - 2; top[0] = (void *)other;\n\
      long r; __asm__ volatile(\"syscall\\n test %%rax, %%rax\\n jnz 1f\\n ret\\n1:\" : \"=a\"(r)\n\
        : \"a\"(56), \"D\"(0x50f00), \"S\"(top), \"d\"(0) : \"rcx\", \"r11\", \"memory\");\n\
      call(1, 1, (long)\"ready\\n\", 6); while (call(0, 0, (long)&c, 1) > 0) {} for (;;) call(231, 7, 0, 0); }\n\
    __asm__(\".globl _start\\n_start: and $-16, %rsp\\n call begin\\n\");\n";

#[test]
fn c_libraries_that_ours_do_not_run_on() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let musl = Command::new("musl-gcc").arg("--version").output().is_ok();
    if !musl {
        leave_out("musl-gcc (package musl-tools) is not there: no programs on musl")?;
    }
    let on_musl = "it runs on musl";
    let alone = "it is linked statically";
    let mut cases = vec![
        ("glibc-static", "cc", WAIT, words(&["-static"]), alone),
        (
            "glibc-static-pie",
            "cc",
            WAIT,
            words(&["-static-pie"]),
            alone,
        ),
        (
            "bare",
            "cc",
            BARE,
            words(&["-nostdlib", "-static", "-fno-stack-protector", "-O1"]),
            alone,
        ),
    ];
    if musl {
        cases.push(("musl", "musl-gcc", WAIT, Vec::new(), on_musl));
        cases.push(("musl-static", "musl-gcc", WAIT, words(&["-static"]), alone));
        cases.push((
            "musl-static-pie",
            "musl-gcc",
            WAIT,
            words(&["-static", "-pie", "-fPIE"]),
            alone,
        ));
    }
    for (name, compiler, text, flags, said) in cases {
        let (source, path) = (dir.path().join(format!("{name}.c")), dir.path().join(name));
        std::fs::write(&source, text)?;
        let mut cc = Command::new(compiler);
        cc.arg("-o")
            .arg(&path)
            .arg(&source)
            .args(&flags)
            .env_clear()
            .envs(plain_environment());
        run(cc, PATIENCE)?.success()?;
        let mut program = Command::new(&path);
        program.env_clear().envs(plain_environment());
        let mut target = Target::spawn(program)?;
        target.expect("ready")?;
        let before = Snapshot::take(target.pid())?;
        if name == "bare" {
            assert_eq!(before.threads.len(), 2, "a thread of its own making");
        }
        for _ in 0..2 {
            let exit = run_staged("midair", &["attach", &target.pid().to_string()], PATIENCE)?;
            assert_eq!(exit.status.code(), Some(16), "{name}: {exit}");
            let text = exit.stderr.join("\n");
            assert!(
                text.contains(said) && text.contains("midair's libraries need glibc 2.34"),
                "{name}: {exit}"
            );
        }
        let diff = before.diff(&Snapshot::take(target.pid())?);
        assert!(diff.is_empty(), "{name}:\n{diff}");
        target.close_stdin();
        let exit = target.wait(PATIENCE)?;
        assert_eq!(exit.status.code(), Some(7), "{name}: {exit}");
    }
    Ok(())
}
