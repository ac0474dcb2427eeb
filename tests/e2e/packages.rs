//! CMake packages have every target and function that projects for AMD's packages name.

use midair_tests::stage::{plain_environment, stage};
use midair_tests::target::{Exit, PATIENCE, run};
use midair_tests::{Result, python_tool, workspace};
use std::path::Path;
use std::process::Command;

fn tool(name: &str, words: &[&str]) -> Result<Exit> {
    let mut command = Command::new(python_tool(name)?);
    command.env_clear().envs(plain_environment()).args(words);
    run(command, PATIENCE)
}

/// Writes a machine as the driver describes it: a CPU, and GPUs by their version.
fn machine(dir: &Path, gpus: &[u32]) -> Result<()> {
    for (node, version) in std::iter::once(&0).chain(gpus).enumerate() {
        let node = dir.join(node.to_string());
        std::fs::create_dir_all(&node)?;
        let text = format!("cpu_cores_count 0\ngfx_target_version {version}\nvendor_id 4098\n");
        std::fs::write(node.join("properties"), text)?;
    }
    Ok(())
}

#[test]
fn targets_and_functions_of_the_cmake_packages() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let build = dir.path().join("build").display().to_string();
    let source = workspace().join("tests/clients/packages");
    let machines: [(&str, &[u32], &str, &str); 4] = [
        (
            "mixed",
            &[90402, 90010, 90402],
            "gfx942 + gfx90a",
            "gpus=gfx942;gfx90a FALSE FALSE",
        ),
        ("mi200", &[90010], "gfx90a", "gpus=gfx90a FALSE TRUE"),
        ("navi", &[110000], "gfx1100", "gpus=gfx1100 TRUE TRUE"),
        ("none", &[], "", "gpus= TRUE TRUE"),
    ];
    for (name, gpus, echo, said) in machines {
        let topology = dir.path().join(name);
        machine(&topology, gpus)?;
        let exit = tool(
            "cmake",
            &[
                "-S",
                &source.display().to_string(),
                "-B",
                &build,
                &format!("-DCMAKE_PREFIX_PATH={}", stage()?.display()),
                &format!("-Drocprofiler-sdk_TOPOLOGY_DIR={}", topology.display()),
            ],
        )?
        .success()?;
        let lines = [
            format!("-- [packages] System architectures: {echo}"),
            format!("-- {said}"),
        ];
        for line in lines {
            assert!(
                exit.stdout
                    .iter()
                    .any(|found| found.trim_end() == line.trim_end()),
                "{name}: no \"{line}\" in {exit}"
            );
        }
    }
    tool("cmake", &["--build", &build])?.success()?;
    let exit = tool("ctest", &["--test-dir", &build, "--output-on-failure"])?.success()?;
    assert!(
        exit.stdout
            .iter()
            .any(|line| line.contains("100% tests passed")),
        "{exit}"
    );
    // SQLite accepts the schema that the program was handed, even twice with different guids.
    let script = "import sqlite3, sys\n\
        database = sqlite3.connect(':memory:')\n\
        database.executescript(open(sys.argv[1]).read())\n\
        print(*database.execute(\"select tag, value from rocpd_metadata where tag in ('guid', 'schema_version')\"))\n\
        print(*database.execute('select count(*) from kernels'))\n\
        print(*database.execute('pragma foreign_keys'))\n";
    let mut command = Command::new(midair_tests::python()?);
    command.env_clear().envs(plain_environment());
    command.args(["-c", script, &format!("{build}/schema.sql")]);
    let exit = run(command, PATIENCE)?.success()?;
    assert_eq!(
        exit.stdout,
        [
            "('schema_version', '3.0.3') ('guid', 'a-guid')",
            "(0,)",
            "(1,)"
        ],
        "{exit}"
    );
    // A component that does not exist is reported.
    let other = dir.path().join("other");
    std::fs::create_dir(&other)?;
    std::fs::write(
        other.join("CMakeLists.txt"),
        "cmake_minimum_required(VERSION 3.21)\nproject(other LANGUAGES NONE)\n\
         find_package(rocprofiler-sdk REQUIRED COMPONENTS nothing)\n",
    )?;
    let exit = tool(
        "cmake",
        &[
            "-S",
            &other.display().to_string(),
            "-B",
            &other.join("build").display().to_string(),
            &format!("-DCMAKE_PREFIX_PATH={}", stage()?.display()),
        ],
    )?;
    assert!(!exit.status.success(), "{exit}");
    assert!(exit.to_string().contains("no component nothing"), "{exit}");
    Ok(())
}
