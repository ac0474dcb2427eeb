//! What AMD's documents (the seeds) tell their readers to type, on AMD's runtimes. Each command,
//! variable and program is used as it stands there, on a process at work, and the files that come
//! out are checked.

use midair_tests::caller::Caller;
use midair_tests::lab::Lab;
use midair_tests::stage::{command, plain_environment, stage};
use midair_tests::table::Csv;
use midair_tests::target::{Exit, PATIENCE, Target, run};
use midair_tests::{Result, python, python_tool, workspace};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The number of HIP calls in one round of the program, and how many of them launch kernels and
/// copies.
const ROUND: usize = 13;
const KERNELS: usize = 2;
const COPIES: usize = 2;

/// How long the attachers profile that end by themselves. It is long enough for a few rounds.
const DURATION_MS: &str = "2000";

fn rows(file: &Path) -> Result<usize> {
    Ok(Csv::read(file)?.rows.len())
}

/// Returns how many rows of a rocpd file's view have each value of a column, read by Python's own
/// SQLite.
fn database(file: &Path, view: &str, column: &str) -> Result<BTreeMap<String, usize>> {
    const SCRIPT: &str = "import sqlite3, sys\n\
        file, view, column = sys.argv[1:]\n\
        found = sqlite3.connect('file:%s?mode=ro' % file, uri=True)\n\
        for value, count in found.execute('select %s, count(*) from %s group by 1' % (column, view)):\n\
        \x20   print(count, value)\n";
    let mut command = Command::new(python()?);
    command.env_clear().envs(plain_environment());
    command.args(["-c", SCRIPT]).arg(file).args([view, column]);
    run(command, PATIENCE)?
        .success()?
        .stdout
        .iter()
        .map(|line| {
            let (count, value) = line.split_once(' ').ok_or("count and value")?;
            Ok((value.to_owned(), count.parse()?))
        })
        .collect()
}

/// Returns the only file below a directory whose name ends so.
fn the_file(dir: &Path, ending: &str) -> Result<PathBuf> {
    let (mut found, mut todo) = (Vec::new(), vec![dir.to_path_buf()]);
    while let Some(next) = todo.pop() {
        for entry in std::fs::read_dir(next)? {
            let path = entry?.path();
            if path.is_dir() {
                todo.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    match found.len() {
        1 => Ok(found.remove(0)),
        _ => Err(format!("{ending}: {found:?}").into()),
    }
}

/// Prepares a command of the stage in this directory, as a user types it.
fn typed(dir: &Path, name: &str, words: &[&str]) -> Result<Command> {
    let mut command = command(name)?;
    command.args(words).current_dir(dir);
    Ok(command)
}

/// Starts an attacher. When it says that it profiles, the program makes this many rounds. Then
/// `end` ends the attacher.
fn profiled(
    command: Command,
    says: &str,
    caller: &mut Caller,
    rounds: usize,
    end: impl FnOnce(&mut Target) -> Result<()>,
) -> Result<Exit> {
    let mut attacher = Target::spawn(command)?;
    attacher.expect(says)?;
    caller.tell(&format!("calls {rounds}"))?;
    end(&mut attacher)?;
    attacher.wait(PATIENCE)
}

fn by_itself(_: &mut Target) -> Result<()> {
    Ok(())
}

/// Seeds/002, "Basic dynamic process attachment": three ways to write the command, and the two ways
/// to detach.
#[test]
fn rocprofv3_attaches_by_each_spelling_into_rocpd() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut caller = Caller::start(Caller::command(&lab)?)?;
    let pid = caller.pid().to_string();
    for (option, rounds) in [("-p", 1), ("--pid", 2), ("--attach", 3)] {
        let dir = tempfile::tempdir()?;
        let words = [option, &pid, "--hip-trace", "--output-format", "rocpd"];
        let exit = profiled(
            typed(dir.path(), "rocprofv3", &words)?,
            "Press Enter to detach...",
            &mut caller,
            rounds,
            |attacher| match option {
                "-p" => attacher.signal(libc::SIGINT),
                _ => attacher.send(""),
            },
        )?
        .success()?;
        let file = the_file(dir.path(), &format!("/{pid}_results.db"))?;
        assert!(
            exit.stdout
                .iter()
                .any(|line| line.ends_with(&file.display().to_string())),
            "the file is announced: {exit}"
        );
        let regions = database(&file, "regions", "category")?;
        let hip: usize = regions.values().sum();
        assert_eq!(hip, rounds * ROUND, "{option}: {regions:?}");
        assert!(
            regions.keys().all(|category| category.starts_with("HIP_")),
            "{regions:?}"
        );
        let names = database(&file, "regions", "name")?;
        assert_eq!(names["hipModuleLaunchKernel"], rounds * KERNELS);
    }
    caller.quit()
}

/// Seeds/002, "Duration-specific dynamic process attachment".
#[test]
fn rocprofv3_attaches_for_a_duration_and_traces_the_system_into_csv() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut caller = Caller::start(Caller::command(&lab)?)?;
    let pid = caller.pid().to_string();
    let dir = tempfile::tempdir()?;
    let words = [
        "--attach",
        &pid,
        "--attach-duration-msec",
        DURATION_MS,
        "--sys-trace",
        "--output-format",
        "csv",
    ];
    profiled(
        typed(dir.path(), "rocprofv3", &words)?,
        &format!("Attaching for {DURATION_MS} msec..."),
        &mut caller,
        4,
        by_itself,
    )?
    .success()?;
    let file = |name: &str| the_file(dir.path(), &format!("/{pid}_{name}.csv"));
    assert_eq!(rows(&file("hip_api_trace")?)?, 4 * ROUND);
    assert_eq!(rows(&file("kernel_trace")?)?, 4 * KERNELS);
    assert_eq!(rows(&file("memory_copy_trace")?)?, 4 * COPIES);
    // HIP itself allocates memory through HSA, once for each hipMalloc, and releases it.
    let memory = Csv::read(&file("memory_allocation_trace")?)?;
    let operations = |name: &str| {
        memory
            .rows
            .iter()
            .filter(|row| row["Operation"] == name)
            .count()
    };
    assert_eq!(
        (
            operations("MEMORY_ALLOCATION_ALLOCATE"),
            operations("MEMORY_ALLOCATION_FREE")
        ),
        (4, 4),
        "{memory:?}"
    );
    assert!(rows(&file("hsa_api_trace")?)? > 4 * ROUND);
    assert!(rows(&file("agent_info")?)? >= 2);
    caller.quit()
}

/// Seeds/002, "Dynamic process attachment with counter collection" is not built. The command says
/// so before it touches anything.
#[test]
fn streamed_counters_are_refused_by_name() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let caller = Caller::start(Caller::command(&lab)?)?;
    let pid = caller.pid().to_string();
    let dir = tempfile::tempdir()?;
    let words = [
        "--pid",
        &pid,
        "--spm",
        "SQ_WAVES",
        "GRBM_COUNT",
        "--output-format",
        "csv",
    ];
    let exit = run(typed(dir.path(), "rocprofv3", &words)?, PATIENCE)?;
    assert_eq!(exit.status.code(), Some(34), "{exit}");
    assert!(
        exit.stderr.iter().any(|line| line.contains("--spm")),
        "{exit}"
    );
    assert_eq!(std::fs::read_dir(dir.path())?.count(), 0);
    caller.quit()
}

/// The CMake project of the documents, built from scratch against a copy of the stage in another
/// place.
struct Project {
    dir: tempfile::TempDir,
}

impl Project {
    fn build(tool_log: &str) -> Result<Project> {
        let dir = tempfile::tempdir()?;
        // The stage is copied elsewhere, because nothing in the package may know where it was made.
        let prefix = dir.path().join("moved/midair");
        std::fs::create_dir_all(dir.path().join("moved"))?;
        let mut copy = Command::new("cp");
        copy.arg("-a").arg(stage()?).arg(&prefix);
        run(copy, PATIENCE)?.success()?;
        // The step that gives the tools a capability runs where it can. The tests run as root, who
        // needs no sudo, so here `sudo` only runs its arguments.
        let bin = dir.path().join("bin");
        std::fs::create_dir(&bin)?;
        std::os::unix::fs::symlink("/usr/bin/env", bin.join("sudo"))?;
        let path = format!("{}:{}", bin.display(), plain_environment()[0].1);
        let build = dir.path().join("build");
        let cmake = |words: &[&str]| -> Result<Exit> {
            let mut command = Command::new(python_tool("cmake")?);
            command.env_clear().envs(plain_environment());
            command.env("PATH", &path).args(words);
            run(command, PATIENCE)?.success()
        };
        // SAFETY: geteuid takes no arguments and always succeeds.
        let is_root = unsafe { libc::geteuid() } == 0;
        cmake(&[
            "-S",
            &workspace().join("tests/seeds").display().to_string(),
            "-B",
            &build.display().to_string(),
            &format!("-DCMAKE_PREFIX_PATH={}", prefix.display()),
            &format!("-DTOOL_LOG={tool_log}"),
            &format!("-DSET_CAPABILITY={}", if is_root { "ON" } else { "OFF" }),
        ])?;
        cmake(&["--build", &build.display().to_string(), "--parallel", "2"])?;
        Ok(Project { dir })
    }
    fn program(&self, name: &str) -> PathBuf {
        self.dir.path().join("build").join(name)
    }
    /// Prepares one of the project's programs. Nothing in its environment helps it to find a
    /// library.
    fn command(&self, name: &str, words: &[&str], dir: &Path) -> Command {
        let mut command = Command::new(self.program(name));
        command.env_clear().envs(plain_environment());
        command.args(words).current_dir(dir);
        command
    }
}

/// The first two documents that we implement: the CMake project, its tools on processes with and
/// without ROCP_TOOL_ATTACH, and the project's own tool.
#[test]
fn the_cmake_project_builds_and_its_tools_work() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let log = lab.scratch().join("tool.log");
    let project = Project::build(&lab.inside(&log)?)?;
    let exit = run(
        project.command("versions", &[], project.dir.path()),
        PATIENCE,
    )?
    .success()?;
    assert_eq!(
        exit.stdout,
        ["sdk 1.2.1 rocattach 1.2.1 register Success"],
        "{exit}"
    );
    let exit = run(
        project.command("markers", &[], project.dir.path()),
        PATIENCE,
    )?
    .success()?;
    assert_eq!(exit.stdout, ["0 1 1 0 1 1"], "{exit}");
    for (name, ready) in [("my_attach_tool", Some("1")), ("my_second_tool", None)] {
        let mut target = Caller::command(&lab)?.log_name(name);
        if let Some(value) = ready {
            target = target.env("ROCP_TOOL_ATTACH", value);
        }
        let mut caller = Caller::start(target)?;
        let pid = caller.pid().to_string();
        for format in [Some("csv"), None] {
            let dir = tempfile::tempdir()?;
            let mut tool = project.command(name, &[&pid, DURATION_MS], dir.path());
            if let Some(format) = format {
                tool.env("ROCPROF_OUTPUT_FORMAT", format);
            }
            let exit = profiled(tool, "profiling", &mut caller, 3, by_itself)?.success()?;
            assert_eq!(
                exit.stdout.last().map(String::as_str),
                Some("completed"),
                "{exit}"
            );
            let file = |end: &str| {
                dir.path()
                    .join(format!("attachment-output/attached_profile_{end}"))
            };
            if format.is_some() {
                assert_eq!(rows(&file("hip_api_trace.csv"))?, 3 * ROUND, "{exit}");
                assert_eq!(rows(&file("kernel_trace.csv"))?, 3 * KERNELS);
                assert_eq!(rows(&file("memory_copy_trace.csv"))?, 3 * COPIES);
            } else {
                // The documents' programs name no format.
                let file = file("results.db");
                let regions = database(&file, "regions", "category")?;
                assert_eq!(regions.values().sum::<usize>(), 3 * ROUND, "{regions:?}");
                let kernels = database(&file, "kernels", "category")?;
                assert_eq!(kernels.values().sum::<usize>(), 3 * KERNELS);
                let copies = database(&file, "memory_copies", "category")?;
                assert_eq!(copies.values().sum::<usize>(), 3 * COPIES);
            }
        }
        caller.quit()?;
    }

    // Loaders and libraries trust a program with a capability less than others. It must still find
    // its library and do its work.
    // SAFETY: geteuid takes no arguments and always succeeds.
    if unsafe { libc::geteuid() } == 0 {
        let mut caller = Caller::start(Caller::command(&lab)?.log_name("user").user(4321))?;
        let dir = tempfile::tempdir()?;
        // The program loads its libraries only from places that only root can change.
        for (place, mode) in [(project.dir.path(), 0o755), (dir.path(), 0o777)] {
            std::fs::set_permissions(place, std::fs::Permissions::from_mode(mode))?;
        }
        let pid = caller.pid().to_string();
        let mut tool = project.command("my_second_tool", &[&pid, DURATION_MS], dir.path());
        tool.env("ROCPROF_OUTPUT_FORMAT", "csv").uid(4321).gid(4321);
        let exit = profiled(tool, "profiling", &mut caller, 3, by_itself)?.success()?;
        let file = dir
            .path()
            .join("attachment-output/attached_profile_kernel_trace.csv");
        assert!(file.exists(), "{exit}");
        assert_eq!(rows(&file)?, 3 * KERNELS);
        caller.quit()?;
    }

    // The project's own tool, attached by the Python program.
    let mut caller = Caller::start(Caller::command(&lab)?.log_name("own"))?;
    let tool = lab.scratch().join("libmy_sdk_tool.so");
    std::fs::copy(project.program("libmy_sdk_tool.so"), &tool)?;
    let (pid, path) = (caller.pid().to_string(), tool.display().to_string());
    let mut attach = typed(
        lab.scratch(),
        "rocprof-attach.py",
        &["-p", &pid, "-t", &path],
    )?;
    attach.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    profiled(
        attach,
        "Press Enter to detach...",
        &mut caller,
        5,
        |attacher| attacher.send(""),
    )?
    .success()?;
    let line = std::fs::read_to_string(&log)?;
    let wanted = format!("calls={} launches=10 mallocs=5 wrong=0\n", 5 * ROUND);
    assert_eq!(line, wanted);
    caller.quit()
}

/// Versions that the package does not satisfy, a package with a missing part, and the files of
/// pkg-config. No process is needed for this.
#[test]
fn packages_are_found_by_location_and_version() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let prefix = dir.path().join("moved");
    let mut copy = Command::new("cp");
    copy.arg("-a").arg(stage()?).arg(&prefix);
    run(copy, PATIENCE)?.success()?;
    let find = |words: &str| -> Result<Exit> {
        let source = dir.path().join("project");
        std::fs::create_dir_all(&source)?;
        let text = format!(
            "cmake_minimum_required(VERSION 3.16)\nproject(finding LANGUAGES NONE)\nfind_package({words})\n\
             message(STATUS \"found ${{rocprofiler-sdk_VERSION}} in ${{rocprofiler-sdk_INCLUDE_DIR}}\")\n"
        );
        std::fs::write(source.join("CMakeLists.txt"), text)?;
        let mut command = Command::new(python_tool("cmake")?);
        command.env_clear().envs(plain_environment());
        let build = tempfile::tempdir_in(dir.path())?;
        command.arg("-S").arg(&source).arg("-B").arg(build.path());
        command.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()));
        run(command, PATIENCE)
    };
    for (words, works) in [
        ("rocprofiler-sdk REQUIRED", true),
        ("rocprofiler-sdk 1.0 REQUIRED", true),
        ("rocprofiler-sdk 1.2.1 EXACT REQUIRED", true),
        ("rocprofiler-sdk 1.3 REQUIRED", false),
        ("rocprofiler-sdk 2 REQUIRED", false),
        ("rocprofiler-sdk 0.9 REQUIRED", false),
    ] {
        let exit = find(words)?;
        assert_eq!(exit.status.success(), works, "{words}: {exit}");
        let place = format!("found 1.2.1 in {}", prefix.join("include").display());
        let found = exit.stdout.iter().any(|line| line.ends_with(&place));
        assert_eq!(found, works, "{words}: {exit}");
    }

    let pkg_config = |words: &[&str]| -> Result<Vec<String>> {
        let mut command = Command::new("pkg-config");
        command.env_clear().envs(plain_environment());
        command
            .env("PKG_CONFIG_LIBDIR", prefix.join("lib/pkgconfig"))
            .args(words);
        let exit = run(command, PATIENCE)?.success()?;
        let line = exit.stdout.first().cloned().unwrap_or_default();
        Ok(line.split_whitespace().map(str::to_owned).collect())
    };
    for (source, packages, said) in [
        ("markers", &["rocprofiler-sdk-roctx"][..], "0 1 1 0 1 1"),
        (
            "versions",
            &[
                "rocprofiler-sdk",
                "rocprofiler-sdk-rocattach",
                "rocprofiler-register",
            ],
            "sdk 1.2.1 rocattach 1.2.1 register Success",
        ),
    ] {
        let flags = pkg_config(&[&["--cflags", "--libs"], packages].concat())?;
        let out = dir.path().join(source);
        let mut compiler = Command::new("g++");
        compiler.env_clear().envs(plain_environment());
        compiler
            .args(["-std=c++17", "-o"])
            .arg(&out)
            .arg(workspace().join(format!("tests/seeds/{source}.cpp")))
            .args(flags);
        run(compiler, PATIENCE)?.success()?;
        let mut program = Command::new(out);
        program.env("LD_LIBRARY_PATH", prefix.join("lib"));
        assert_eq!(run(program, PATIENCE)?.success()?.stdout, [said]);
    }

    // The attach library can be loaded under each name that the documents use.
    const LOAD: &str = "import ctypes, sys\nfor name in sys.argv[2:]:\n\
        \x20   library = ctypes.CDLL(sys.argv[1] + '/' + name)\n    print(name, library.attach and library.detach and library.rocattach_attach and 1)";
    let names = [
        "librocprofiler-attach.so",
        "librocprofv3-attach.so",
        "librocprofiler-sdk-rocattach.so",
        "librocprofiler-sdk-rocattach.so.1",
    ];
    let mut load = Command::new(python()?);
    load.env_clear().envs(plain_environment());
    load.args(["-c", LOAD]).arg(prefix.join("lib")).args(names);
    let expected = names.map(|name| format!("{name} 1"));
    assert_eq!(run(load, PATIENCE)?.success()?.stdout, expected);

    // When a part is missing, CMake says so. The user does not have to find it out from the linker.
    std::fs::remove_file(prefix.join("lib/librocprofiler-sdk.so.1"))?;
    let exit = find("rocprofiler-sdk REQUIRED")?;
    assert!(!exit.status.success(), "{exit}");
    assert!(
        exit.stderr
            .join(" ")
            .replace("  ", " ")
            .contains("librocprofiler-sdk.so.1"),
        "{exit}"
    );
    Ok(())
}

/// Seeds/001, "Python Functions": the functions are imported from the package and from the file,
/// and the file is run. Each time the variables match the document's.
#[test]
fn python_attaches_by_main() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut caller = Caller::start(Caller::command(&lab)?)?;
    let pid = caller.pid().to_string();
    let packages = stage()?.join("lib/python3/site-packages");
    let library = stage()?.join("lib/librocprofiler-sdk-rocattach.so.1");
    let file = stage()?.join("bin/rocprof-attach");
    let by_package = format!("from rocprof_attach import main; main(pid={pid}, duration=1000)");
    // This follows the document: `attach_library` is given its default value explicitly, and all
    // else comes from the environment.
    let by_default = format!(
        "import rocprof_attach; rocprof_attach.main(attach_library={:?})",
        library.display().to_string()
    );
    let by_file = format!(
        "import importlib.machinery as m, importlib.util as u\n\
         loader = m.SourceFileLoader('rocprof_attach_file', {:?})\n\
         module = u.module_from_spec(u.spec_from_loader(loader.name, loader))\n\
         loader.exec_module(module)\n\
         module.main(pid={pid:?}, duration='1000')\n",
        file.display().to_string()
    );
    for (name, words) in [
        ("package", vec!["-c", by_package.as_str()]),
        ("default", vec!["-c", by_default.as_str()]),
        ("file", vec!["-c", by_file.as_str()]),
        (
            "module",
            vec!["-m", "rocprof_attach", "-p", &pid, "-d", "1000"],
        ),
    ] {
        let dir = tempfile::tempdir()?;
        let mut command = Command::new(python()?);
        command.env_clear().envs(plain_environment());
        command
            .arg("-B")
            .args(words)
            .current_dir(dir.path())
            .env("PYTHONPATH", &packages)
            .env("ROCPROF_ATTACH_PID", &pid)
            .env("ROCPROF_ATTACH_DURATION", "1000")
            .env("ROCPROF_HIP_RUNTIME_API_TRACE", "1")
            .env("ROCPROF_OUTPUT_FORMAT", "csv")
            .env("ROCPROF_OUTPUT_PATH", dir.path())
            .env("ROCPROF_OUTPUT_FILE_NAME", "p");
        let exit = profiled(
            command,
            "Attaching for 1000 msec...",
            &mut caller,
            2,
            by_itself,
        )?
        .success()?;
        let last = format!(
            "Detaching from PID {pid} using library {} :: success",
            library.display()
        );
        assert_eq!(
            exit.stdout.last().map(String::as_str),
            Some(last.as_str()),
            "{name}: {exit}"
        );
        assert_eq!(
            rows(&dir.path().join("p_hip_api_trace.csv"))?,
            2 * ROUND,
            "{name}"
        );
    }
    caller.quit()
}

/// Seeds/000, "Tracing Options": the names of variables that AMD's newer tools do not read.
#[test]
fn variables_of_the_first_document_are_understood() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut caller = Caller::start(Caller::command(&lab)?)?;
    let pid = caller.pid().to_string();
    for (names, files) in [
        (&["ROCPROF_HIP_API_TRACE"][..], &["hip_api_trace"][..]),
        (
            &["ROCPROF_HIP_API_TRACE", "ROCPROF_HSA_API_TRACE"],
            &["hip_api_trace", "hsa_api_trace"],
        ),
        (
            &["ROCPROF_KERNEL_TRACE", "ROCPROF_MEMORY_COPY_TRACE"],
            &["kernel_trace", "memory_copy_trace"],
        ),
    ] {
        let dir = tempfile::tempdir()?;
        let command = with_variables(&pid, names, dir.path())?;
        profiled(
            command,
            "Press Enter to detach...",
            &mut caller,
            2,
            |attacher| attacher.send(""),
        )?
        .success()?;
        let found: BTreeSet<String> = std::fs::read_dir(dir.path())?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<Result<_>>()?;
        let wanted = files
            .iter()
            .chain(&["agent_info"])
            .map(|name| format!("v_{name}.csv"))
            .collect();
        assert_eq!(found, wanted, "{names:?}");
        for (name, count) in [
            ("hip_api_trace", ROUND),
            ("kernel_trace", KERNELS),
            ("memory_copy_trace", COPIES),
        ] {
            let file = dir.path().join(format!("v_{name}.csv"));
            if file.exists() {
                assert_eq!(rows(&file)?, 2 * count, "{names:?}: {name}");
            }
        }
    }
    caller.quit()
}

/// Prepares `rocprof-attach` with these variables set to 1, writing into this directory.
fn with_variables(pid: &str, names: &[&str], dir: &Path) -> Result<Command> {
    let mut command = typed(dir, "rocprof-attach", &["-p", pid])?;
    command
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("ROCP_TOOL_ATTACH", "1")
        .env("ROCPROF_LOGGING_LEVEL", "info")
        .env("ROCPROF_OUTPUT_FORMAT", "csv")
        .env("ROCPROF_OUTPUT_PATH", dir)
        .env("ROCPROF_OUTPUT_FILE_NAME", "v")
        .envs(names.iter().map(|name| (*name, "1")));
    Ok(command)
}

/// The same for the marks and ranges of a program.
#[test]
fn the_first_documents_variable_for_markers_is_understood() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let library = lab.install(&stage()?.join("lib/librocprofiler-sdk-roctx.so.1"))?;
    let (program, kernels) = (lab.program("markers")?, lab.kernels()?);
    let mut target = lab.run(&program).arg(library).arg(kernels).spawn()?;
    target.expect("ready")?;
    let dir = tempfile::tempdir()?;
    let command = with_variables(
        &target.pid().to_string(),
        &["ROCPROF_MARKER_TRACE"],
        dir.path(),
    )?;
    let mut attacher = Target::spawn(command)?;
    attacher.expect("Press Enter to detach...")?;
    target.send("nest 2")?;
    target.expect("nest")?;
    attacher.send("")?;
    attacher.wait(PATIENCE)?.success()?;
    let csv = Csv::read(&dir.path().join("v_marker_api_trace.csv"))?;
    let found: Vec<&str> = csv
        .rows
        .iter()
        .map(|row| row["Function"].as_str())
        .collect();
    for wanted in [
        "outer 0", "outer 1", "mark 0", "mark 1", "apart 0", "apart 1",
    ] {
        let count = found.iter().filter(|name| **name == wanted).count();
        assert_eq!(count, 1, "{wanted}: {found:?}");
    }
    target.send("quit")?;
    target.expect("done")?;
    Ok(())
}
