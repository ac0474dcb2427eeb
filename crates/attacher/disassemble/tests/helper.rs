//! The helper as a process: LLVM's program behind it is real where there is one, and otherwise scripts that
//! misbehave.

use midair_disassemble::wire::Question;
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
    // The first start only asks whether the device is known.
    let only_then = "test -e \"$0.tried\" || { touch \"$0.tried\"; exit 0; }";
    let run = |text: &str| {
        let _ = std::fs::remove_file(dir.path().join("objdump.tried"));
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
