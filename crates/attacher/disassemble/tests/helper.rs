//! The helper as a process: LLVM's program behind it is real where there is one, and otherwise scripts that
//! misbehave.

use midair_disassemble::wire::{self, Question};
use midair_disassemble::{Answer, Error, ask, tools};
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(2);

fn question(device: &str) -> Question {
    Question {
        device: device.into(),
        // s_waitcnt lgkmcnt(0); s_load_dword s3, s[0:1], 0x2c with something behind it; no instruction.
        instructions: vec![
            0xbf8c_c07f_u32.to_le_bytes().to_vec(),
            [0xc002_00c0_u32, 0x2c, 0xbf8c_c07f]
                .map(u32::to_le_bytes)
                .concat(),
            vec![0xff; 12],
            0xbf81_0000_u32.to_le_bytes().to_vec(),
        ],
    }
}

fn asked(arguments: &[OsString], device: &str) -> Result<Answer, Error> {
    let program = Path::new(env!("CARGO_BIN_EXE_midair-disassemble"));
    ask(program, arguments, question(device), LIMIT)
}

fn script(dir: &Path, text: &str) -> std::io::Result<Vec<OsString>> {
    // The helper of root is another user.
    std::fs::set_permissions(dir, PermissionsExt::from_mode(0o755))?;
    let program = dir.join("objdump");
    std::fs::write(&program, format!("#!/bin/sh\n{text}\n"))?;
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755))?;
    let mut argument = OsString::from(tools::OBJDUMP);
    argument.push(&program);
    Ok(vec![argument])
}

#[test]
fn llvm_disassembles_single_instructions() {
    let all = tools::arguments(&[]);
    match asked(&all, "gfx90a") {
        Ok(answer) => assert_eq!(
            answer.texts,
            [
                "s_waitcnt lgkmcnt(0)",
                "s_load_dword s3, s[0:1], 0x2c",
                "",
                "s_endpgm"
            ],
            "{answer:?}"
        ),
        // A machine without a disassembler: what to install is said.
        Err(error) => assert!(error.to_string().ends_with(tools::REMEDY), "{error}"),
    }
}

#[test]
fn what_knows_no_device_is_passed_by() {
    let dir = tempfile::tempdir().unwrap();
    let unknown = script(
        dir.path(),
        "echo \"'gfx942' is not a recognized processor\" >&2",
    )
    .unwrap();
    let why = asked(&unknown, "gfx942").unwrap_err().to_string();
    assert!(why.starts_with("no disassembler knows gfx942 ("), "{why}");
    assert!(why.ends_with(tools::REMEDY), "{why}");
    let nowhere = [
        OsString::from("library=/nowhere.so"),
        "objdump=/nowhere".into(),
    ];
    let why = asked(&nowhere, "gfx942").unwrap_err().to_string();
    assert_eq!(
        why,
        format!("no disassembler knows gfx942; {}", tools::REMEDY)
    );
    // A question that is none is not given to any program.
    assert!(asked(&unknown, "gfx9 --version").is_err());
}

#[test]
fn a_program_that_misbehaves_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    // The first start only asks whether the device is known, and its standard error is read.
    let only_then = "test /proc/self/fd/2 -ef /dev/null || exit 0";
    let run = |text: &str| {
        let arguments = script(dir.path(), &format!("{only_then}\n{text}")).unwrap();
        let started = Instant::now();
        let answer = asked(&arguments, "gfx942").unwrap();
        (answer, started.elapsed())
    };
    let (gaps, _) =
        run("echo ' s_nop 1 // 000000000040: BF800001'; echo ' x // 80: 0'; echo ' y // 0: 0'");
    assert_eq!(gaps.texts, ["", "s_nop 1", "x"]);
    let (none, _) = run("echo garbage; echo '// : //'; echo ' a // ffffffffffffffff: 0'");
    assert_eq!(none.texts, [""; 4]);
    let (endless, took) = run("exec sleep 100");
    assert!(
        endless.texts.is_empty() && endless.cut.is_some(),
        "{endless:?}"
    );
    assert!(took < Duration::from_secs(10), "{took:?}");
    let (flood, took) = run("exec yes");
    assert!(flood.texts.is_empty() && flood.cut.is_some(), "{flood:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
}

/// The rows of `/proc/PID/status` about rights, as a helper has them.
fn rights() -> Option<String> {
    // SAFETY: takes nothing.
    let is_root = unsafe { libc::geteuid() } == 0;
    let own = std::fs::read_to_string("/proc/self/status").ok()?;
    let row = |name: &str| {
        let row = own.lines().find(|row| row.starts_with(name))?;
        Some(row.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let none = "0".repeat(16);
    let capabilities = |bounding: &str| {
        format!("CapInh: {none} CapPrm: {none} CapEff: {none} {bounding} CapAmb: {none}")
    };
    let all = match is_root {
        true => format!(
            "Uid: 65534 65534 65534 65534 Gid: 65534 65534 65534 65534 Groups: {}",
            capabilities(&format!("CapBnd: {none}"))
        ),
        false => {
            let capabilities = capabilities(&row("CapBnd")?);
            format!(
                "{} {} {} {capabilities}",
                row("Uid")?,
                row("Gid")?,
                row("Groups")?
            )
        }
    };
    Some(all.chars().take(wire::LONGEST_TEXT).collect())
}

#[test]
fn a_library_has_no_rights_when_it_sees_an_instruction() {
    let dir = tempfile::tempdir().unwrap();
    let library = dir.path().join("libconfined.so");
    let built = std::process::Command::new("cc")
        .args(["-D_GNU_SOURCE", "-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/confined.c"))
        .status();
    assert!(built.unwrap().success());
    let mut argument = OsString::from(tools::LIBRARY);
    argument.push(&library);
    let answer = asked(&[argument], "gfx942").unwrap();
    let shown = rights().unwrap();
    assert_eq!(answer.texts, [&shown, "ENOSYS", "ENOSYS", "ENOSYS"]);
}

#[test]
fn a_program_has_no_rights_either() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
    let arguments = script(
        dir.path(),
        "while read -r row; do case $row in Uid*|Gid*|Groups*|Cap*) all=\"$all $row\"; esac
        done < /proc/self/status
        echo \"$all // 0: 0\"
        read -r text < \"${0%/*}/secret\" || text=refused
        echo \" $text // 40: 0\"
        echo x > \"${0%/*}/new\" || echo ' refused // 80: 0'
        echo \" $LD_LIBRARY_PATH$HOME // c0: 0\"",
    );
    let answer = asked(&arguments.unwrap(), "gfx942").unwrap();
    let shown = rights().unwrap();
    assert_eq!(answer.texts[0], shown);
    assert_eq!(answer.texts[2], "refused");
    // SAFETY: takes nothing.
    if unsafe { libc::geteuid() } == 0 {
        assert_eq!(
            (answer.texts[1].as_str(), answer.texts[3].as_str()),
            ("refused", "")
        );
    }
}
