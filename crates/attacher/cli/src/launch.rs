//! Starts a program under the profiler: this process becomes the program, with our libraries
//! preloaded. No midair process stays between the program and its caller, so exit code, signals
//! and terminal are the program's own.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use midair_failure::{Failure, Kind};
use midair_session::{Install, check_launch};
use midair_settings::{KOKKOS_TRACE, Settings, inheritable};

use crate::counters;
use crate::report::Report;

/// Exit codes of commands that start programs (POSIX: command not found, found and cannot be run).
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;
/// The ROCTx library that receives a program's own calls, in the library directory.
const ROCTX: &str = "librocprofiler-sdk-roctx.so.1";
/// The library that ends the session where no exit handler runs. It lies next to the tool.
const LAUNCH_LIBRARY: &str = "libmidair-launch.so.1";
/// The library that Kokkos loads, next to the tool, and the variable that names it to Kokkos.
const KOKKOS_LIBRARY: &str = "libmidair-kokkos.so.1";
const KOKKOS_TOOLS: &str = "KOKKOS_TOOLS_LIBS";
/// The variable that tells the tool which process reports that there was nothing to record.
const LAUNCHED: &str = "ROCPROF_LAUNCH_PID";

/// What is started, and how.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    /// The program and its arguments.
    pub words: &'a [OsString],
    /// What to record and where to write it.
    pub settings: &'a Settings,
    /// The libraries to be loaded before all others.
    pub preload: &'a [String],
    /// Whether to preload no ROCTx library, even where markers are traced.
    pub suppress_markers: bool,
    /// Whether the command is printed and nothing is started.
    pub echo: bool,
    /// Which libraries, where they are not the ones next to this program.
    pub libraries: Libraries<'a>,
}

/// What `--rocm-root`, `--sdk-version` and `--sdk-soversion` say.
#[derive(Debug, Clone, Copy, Default)]
pub struct Libraries<'a> {
    /// The installation's directory.
    pub root: Option<&'a str>,
    /// What the libraries' names end in.
    pub ending: Option<&'a str>,
    /// How their paths are resolved.
    pub links: Links,
}

/// What `--readlink` and `--realpath` say: how the paths of libraries that are links are resolved.
#[derive(Debug, Clone, Copy, Default)]
pub struct Links {
    /// Whether a link is replaced by what it leads to.
    pub read: bool,
    /// Whether a path is replaced by the real path.
    pub real: bool,
}

impl Links {
    #[expect(clippy::disallowed_methods, reason = "our own libraries")]
    fn of(self, mut path: PathBuf) -> PathBuf {
        if self.read
            && let Ok(to) = std::fs::read_link(&path)
        {
            path = path.parent().unwrap_or(Path::new("/")).join(to);
        }
        if self.real
            && let Ok(real) = std::fs::canonicalize(&path)
        {
            path = real;
        }
        path
    }
}

impl Libraries<'_> {
    /// Returns the libraries below the directory that was named, if one was.
    fn named(self) -> Result<Option<Install>, Failure> {
        let Some(root) = self.root else {
            return Ok(None);
        };
        let library_directory = std::path::absolute(Path::new(root).join("lib"))
            .map_err(|error| Failure::new(Kind::Usage, format!("--rocm-root {root}: {error}")))?;
        Install::chosen(&library_directory, self.ending.unwrap_or("1")).map(Some)
    }

    /// Returns the libraries to start the program with where no directory was named; `own` are the
    /// ones next to this program.
    fn beside(self, own: Install) -> Result<Install, Failure> {
        match (self.ending, own.sdk.parent()) {
            (Some(ending), Some(directory)) => Install::chosen(directory, ending),
            _ => Ok(own),
        }
    }
}

/// Returns the program's rank if it is not among those that are recorded.
fn other_rank(launch: &Launch<'_>) -> Result<Option<u64>, Failure> {
    let choice = launch.settings.rank_choice(|name| std::env::var(name).ok());
    let choice = choice.map_err(|why| Failure::new(Kind::Usage, why))?;
    let rank = choice.rank.and_then(|rank| rank.rank);
    Ok(rank.filter(|_| !choice.is_recorded))
}

/// Becomes the program, without the profiler. Returns only when that fails, with the exit code.
fn run_other_rank(program: &OsStr, arguments: &[OsString], rank: u64, report: &Report) -> u8 {
    report.info(&format!(
        "MPI rank {rank} is not selected: the program runs without the profiler"
    ));
    let error = Command::new(program).args(arguments).exec();
    not_started(program, &error, report)
}

/// Becomes the program. Returns only when that fails, with the exit code.
///
/// # Errors
/// [`Kind::Usage`] without a program, and for counters that do not exist or do not fit;
/// [`Kind::NoCounters`] where they cannot be counted; [`Kind::Installation`] when our libraries are
/// not there.
pub fn run(launch: &Launch<'_>, report: &Report) -> Result<u8, Failure> {
    let Some((program, arguments)) = launch.words.split_first() else {
        return Err(no_program());
    };
    if let Some(rank) = other_rank(launch)? {
        return Ok(run_other_rank(program, arguments, rank, report));
    }
    let named = launch.libraries.named()?;
    let own = Install::find()?.on_disk()?;
    check_launch(launch.settings, &counters::agents(), &own)?;
    let install = match named {
        Some(named) => named,
        None => launch.libraries.beside(own)?,
    };
    warn(program, launch, &install, report);
    let mut command = command(program, arguments, launch, &install);
    if launch.echo {
        shown(launch, &command, report);
        return Ok(0);
    }
    let error = command.exec();
    Ok(not_started(program, &error, report))
}

/// Runs the program once for each of these settings, one after another, until a run fails. Returns
/// the exit code of the last run. Where it ended by a signal, the code is the one that a shell
/// would report.
///
/// # Errors
/// As [`run`]; everything is checked before the program runs for the first time.
pub fn run_passes(
    launch: &Launch<'_>,
    passes: &[Settings],
    report: &Report,
) -> Result<u8, Failure> {
    let Some((program, arguments)) = launch.words.split_first() else {
        return Err(no_program());
    };
    if let Some(rank) = other_rank(launch)? {
        return Ok(run_other_rank(program, arguments, rank, report));
    }
    let named = launch.libraries.named()?;
    let own = Install::find()?.on_disk()?;
    let agents = counters::agents();
    for settings in passes {
        check_launch(settings, &agents, &own)?;
    }
    let install = match named {
        Some(named) => named,
        None => launch.libraries.beside(own)?,
    };
    warn(program, launch, &install, report);
    for settings in passes {
        let pass = Launch {
            settings,
            ..*launch
        };
        let mut command = command(program, arguments, &pass, &install);
        // The process that reports an empty result is not this one.
        command.env_remove(LAUNCHED);
        if launch.echo {
            shown(launch, &command, report);
            continue;
        }
        let status = match command.status() {
            Ok(status) => status,
            Err(error) => return Ok(not_started(program, &error, report)),
        };
        if !status.success() {
            let signal = status.signal().map(|signal| 128 + signal);
            let code = status.code().or(signal).unwrap_or(1);
            return Ok(u8::try_from(code).unwrap_or(1));
        }
    }
    Ok(0)
}

/// Tells what of the request will not be done.
fn warn(program: &OsStr, launch: &Launch<'_>, install: &Install, report: &Report) {
    if let Some(why) = unprofilable(program) {
        report.warning(&why);
    }
    if !launch.settings.is_on(KOKKOS_TRACE) {
        return;
    }
    if let Some(tool) = inherited(KOKKOS_TOOLS) {
        report.warning(&format!(
            "{KOKKOS_TOOLS} already names a tool ({}), and Kokkos loads only one: its regions are not recorded",
            tool.to_string_lossy()
        ));
    } else if kokkos_library(install).is_none() {
        report.warning(&format!(
            "cannot find {KOKKOS_LIBRARY} next to {}: Kokkos regions are not recorded",
            install.tool.display()
        ));
    }
}

#[expect(clippy::disallowed_methods, reason = "our own library")]
fn kokkos_library(install: &Install) -> Option<PathBuf> {
    let path = install.tool.with_file_name(KOKKOS_LIBRARY);
    path.is_file().then_some(path)
}

fn no_program() -> Failure {
    Failure::new(Kind::Usage, "no program to start").hint("give it after --, with its arguments")
}

/// Returns the command for the program, with its environment.
fn command(
    program: &OsStr,
    arguments: &[OsString],
    launch: &Launch<'_>,
    install: &Install,
) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    for (name, value) in variables(launch, install) {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// Prints what would be started: AMD's line, and the command as a shell takes it.
fn shown(launch: &Launch<'_>, command: &Command, report: &Report) {
    report.line(&as_python_prints_it(launch.words));
    report.line(&as_a_shell_takes_it(command));
}

/// Returns AMD's line for a command: the words as Python shows a list of them.
pub(crate) fn as_python_prints_it(words: &[OsString]) -> String {
    let shown = |word: &OsString| {
        let word = word.to_string_lossy();
        let quote = match word.contains('\'') && !word.contains('"') {
            true => '"',
            false => '\'',
        };
        let mut text = String::from(quote);
        for letter in word.chars() {
            match letter {
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                letter if letter == quote => text.extend(['\\', quote]),
                letter if letter.is_control() => {
                    text.push_str(&format!("\\x{:02x}", u32::from(letter)));
                }
                letter => text.push(letter),
            }
        }
        text.push(quote);
        text
    };
    let words: Vec<String> = words.iter().map(shown).collect();
    format!("command: [{}]", words.join(", "))
}

/// Returns a command as a line for a shell: the changes to the environment, the program and its arguments.
fn as_a_shell_takes_it(command: &Command) -> String {
    let quoted = |word: &OsStr| {
        let word = word.to_string_lossy();
        let is_plain =
            |letter: char| letter.is_ascii_alphanumeric() || "_-./:=,%+@".contains(letter);
        match !word.is_empty() && word.chars().all(is_plain) {
            true => word.into_owned(),
            false => format!("'{}'", word.replace('\'', "'\\''")),
        }
    };
    let mut words = vec!["env".to_owned()];
    // env takes variables to remove before those to set.
    for (name, _) in command.get_envs().filter(|(_, value)| value.is_none()) {
        words.extend(["-u".to_owned(), quoted(name)]);
    }
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            words.push(format!("{}={}", quoted(name), quoted(value)));
        }
    }
    words.push(quoted(command.get_program()));
    words.extend(command.get_args().map(quoted));
    words.join(" ")
}

/// Reports that the program cannot be started. Returns the exit code.
fn not_started(program: &OsStr, error: &std::io::Error, report: &Report) -> u8 {
    let name = program.to_string_lossy();
    let (code, what) = match error.kind() {
        // The interpreter that runs AMD's script prints the same text.
        ErrorKind::NotFound => (
            NOT_FOUND,
            format!("[Errno 2] No such file or directory: '{name}'"),
        ),
        ErrorKind::PermissionDenied => (NOT_RUN, format!("[Errno 13] Permission denied: '{name}'")),
        _ => (NOT_RUN, format!("cannot start '{name}': {error}")),
    };
    report.error(&what);
    code
}

/// Returns the changes to the program's environment. `None` removes a variable.
#[expect(clippy::disallowed_methods, reason = "our own libraries")]
fn variables(launch: &Launch<'_>, install: &Install) -> Vec<(OsString, Option<OsString>)> {
    let mut variables: Vec<(OsString, Option<OsString>)> = Vec::new();
    // An option that is off removes an inherited variable.
    for (name, _) in std::env::vars_os() {
        let gone = name
            .to_str()
            .is_some_and(|name| inheritable(name) && launch.settings.get(name).is_none());
        if gone {
            variables.push((name, None));
        }
    }
    for (name, value) in launch.settings.iter() {
        variables.push((name.into(), Some(value.into())));
    }
    let lib = install.sdk.parent().unwrap_or(Path::new("/"));
    let links = launch.libraries.links;
    let roctx = lib.join(ROCTX);
    let wants_markers = launch.settings.is_on("ROCPROF_MARKER_API_TRACE")
        && !launch.suppress_markers
        && roctx.is_file();
    let mut preload: Vec<OsString> = launch.preload.iter().map(OsString::from).collect();
    preload.extend(inherited("LD_PRELOAD"));
    preload.extend(wants_markers.then(|| links.of(roctx).into_os_string()));
    // This library is the first of ours, since it must precede the C library's functions of the
    // same names.
    let ends = install.tool.with_file_name(LAUNCH_LIBRARY);
    preload.extend(ends.is_file().then(|| links.of(ends).into_os_string()));
    let tool = links.of(install.tool.clone());
    preload.extend([
        tool.clone().into_os_string(),
        links.of(install.sdk.clone()).into_os_string(),
    ]);
    if launch.settings.is_on(KOKKOS_TRACE)
        && inherited(KOKKOS_TOOLS).is_none()
        && let Some(kokkos) = kokkos_library(install)
    {
        let kokkos = links.of(kokkos).into_os_string();
        variables.push((KOKKOS_TOOLS.into(), Some(kokkos)));
    }
    let list = |before: Option<OsString>, after: &Path| {
        let parts: Vec<OsString> = before
            .into_iter()
            .chain([after.as_os_str().to_owned()])
            .collect();
        Some(parts.join(OsStr::new(":")))
    };
    variables.extend([
        ("LD_PRELOAD".into(), Some(preload.join(OsStr::new(":")))),
        (
            "ROCP_TOOL_LIBRARIES".into(),
            list(inherited("ROCP_TOOL_LIBRARIES"), &tool),
        ),
        (
            "LD_LIBRARY_PATH".into(),
            list(inherited("LD_LIBRARY_PATH"), lib),
        ),
        ("ROCPROFILER_LIBRARY_CTOR".into(), Some("1".into())),
        (LAUNCHED.into(), Some(std::process::id().to_string().into())),
    ]);
    variables
}

fn inherited(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns why the program itself cannot be profiled, if that is so. Programs that it starts may
/// still be profiled.
#[expect(
    clippy::disallowed_methods,
    reason = "the program that the caller starts"
)]
fn unprofilable(program: &OsStr) -> Option<String> {
    let path = resolve(program)?;
    let mode = std::fs::metadata(&path).ok()?.permissions().mode();
    let name = path.display();
    if mode & 0o6000 != 0 {
        return Some(format!(
            "cannot profile {name}: it runs with more privileges than its caller, so the loader ignores LD_PRELOAD"
        ));
    }
    is_static(&path).then(|| {
        format!(
            "cannot profile {name}: it is statically linked, so no library can be loaded into it"
        )
    })
}

/// Returns the file that `exec` will find.
#[expect(
    clippy::disallowed_methods,
    reason = "the program that the caller starts"
)]
fn resolve(program: &OsStr) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let search = std::env::var_os("PATH")?;
    std::env::split_paths(&search)
        .map(|directory| directory.join(program))
        .find(|file| {
            std::fs::metadata(file)
                .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        })
}

/// Whether this is an ELF program without a loader.
#[expect(
    clippy::disallowed_methods,
    reason = "the program that the caller starts"
)]
fn is_static(path: &Path) -> bool {
    const PT_INTERP: u32 = 3;
    let mut head = vec![0; 64 * 1024];
    let Ok(read) = std::fs::File::open(path).and_then(|mut file| {
        // One read contains the headers of any program that a linker made.
        std::io::Read::read(&mut file, &mut head)
    }) else {
        return false;
    };
    head.truncate(read);
    let number = |at: usize, bytes: usize| -> Option<u64> {
        let part = head.get(at..at.checked_add(bytes)?)?;
        Some(
            part.iter()
                .rev()
                .fold(0, |number, byte| number << 8 | u64::from(*byte)),
        )
    };
    // 64-bit and little-endian, as our libraries are.
    if head.get(..6) != Some(b"\x7fELF\x02\x01") {
        return false;
    }
    let (Some(table), Some(size), Some(count)) = (number(32, 8), number(54, 2), number(56, 2))
    else {
        return false;
    };
    let kinds = (0..count)
        .map(|index| number(usize::try_from(table + index * size).ok()?, 4))
        .collect::<Option<Vec<_>>>();
    kinds.is_some_and(|kinds| !kinds.contains(&u64::from(PT_INTERP)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_with_a_loader_are_told_from_those_without() {
        assert!(!is_static(Path::new("/proc/self/exe")));
        assert!(!is_static(Path::new("/dev/null")));
        let own = resolve(OsStr::new("sh")).expect("a shell");
        assert!(!is_static(&own));
        // The dynamic loader itself names no loader.
        let loader = std::fs::read("/proc/self/maps").expect("own maps");
        let loader = String::from_utf8_lossy(&loader)
            .lines()
            .find_map(|line| {
                line.split(' ')
                    .next_back()
                    .filter(|path| path.contains("ld-linux"))
            })
            .map(PathBuf::from);
        if let Some(loader) = loader {
            assert!(is_static(&loader));
        }
    }

    #[test]
    fn what_the_program_gets() {
        let settings = Settings::from_iter([("ROCPROF_KERNEL_TRACE", "1")]);
        let install = Install::at(
            "/opt/x/lib/librocprofiler-sdk.so.1",
            "/opt/x/lib/rocprofiler-sdk/librocprofiler-sdk-tool.so.1",
        );
        let launch = Launch {
            echo: false,
            words: &[],
            settings: &settings,
            preload: &["libfirst.so".to_owned()],
            suppress_markers: false,
            libraries: Libraries::default(),
        };
        let variables = variables(&launch, &install);
        let get = |name: &str| {
            let found = variables.iter().find(|(key, _)| key == name);
            let value = found.and_then(|(_, value)| value.clone());
            value.map(|value| value.to_string_lossy().into_owned())
        };
        let preload = get("LD_PRELOAD").expect("set");
        assert!(preload.starts_with("libfirst.so:"), "{preload}");
        assert!(
            preload.ends_with("librocprofiler-sdk-tool.so.1:/opt/x/lib/librocprofiler-sdk.so.1")
        );
        assert_eq!(get("ROCPROF_KERNEL_TRACE").as_deref(), Some("1"));
        assert_eq!(get("ROCPROFILER_LIBRARY_CTOR").as_deref(), Some("1"));
        assert!(get("LD_LIBRARY_PATH").is_some_and(|path| path.ends_with("/opt/x/lib")));
        assert!(
            get("ROCP_TOOL_LIBRARIES")
                .is_some_and(|list| list.ends_with("librocprofiler-sdk-tool.so.1"))
        );
    }

    /// AMD's hidden options resolve the paths of libraries, never the program's.
    #[test]
    fn libraries_that_are_links_are_resolved_on_demand() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["sdk", "tool"] {
            std::fs::write(at(&format!("{name}.real")), "").unwrap();
            let inner = format!("{name}.1");
            std::os::unix::fs::symlink(format!("{name}.real"), at(&inner)).unwrap();
            std::os::unix::fs::symlink(&inner, at(name)).unwrap();
        }
        let settings = Settings::new();
        let install = Install::at(at("sdk"), at("tool"));
        let found = |read: bool, real: bool| {
            let launch = Launch {
                echo: false,
                words: &["./link".into()],
                settings: &settings,
                preload: &[],
                suppress_markers: false,
                libraries: Libraries {
                    links: Links { read, real },
                    ..Libraries::default()
                },
            };
            let all = variables(&launch, &install);
            let get = |name: &str| {
                let value = all.iter().find(|(key, _)| key == name).unwrap().1.clone();
                value.unwrap().to_string_lossy().into_owned()
            };
            (get("LD_PRELOAD"), get("ROCP_TOOL_LIBRARIES"))
        };
        let real = dir.path().canonicalize().unwrap();
        for (read, is_real, ending, directory) in [
            (false, false, "", dir.path()),
            (true, false, ".1", dir.path()),
            (false, true, ".real", &real),
            (true, true, ".real", &real),
        ] {
            let path = |name: &str| format!("{}/{name}{ending}", directory.display());
            let (preload, tools) = found(read, is_real);
            let wanted = format!("{}:{}", path("tool"), path("sdk"));
            assert!(preload.ends_with(&wanted), "{preload} {wanted}");
            assert!(tools.ends_with(&path("tool")), "{tools}");
        }
    }

    #[test]
    fn a_command_is_shown_as_python_prints_a_list() {
        let words = ["./a b", "it's", "\"it's\"", "x\\y\n", "\u{1}", "é"].map(OsString::from);
        // By Python 3: print(f"command: {words}").
        let wanted = r#"command: ['./a b', "it's", '"it\'s"', 'x\\y\n', '\x01', 'é']"#;
        assert_eq!(as_python_prints_it(&words), wanted);
        assert_eq!(as_python_prints_it(&[]), "command: []");
    }

    #[test]
    fn a_command_is_shown_as_a_shell_takes_it() {
        let mut command = Command::new("./a b");
        command
            .args(["-x", "it's", ""])
            .env("B", "1 2")
            .env("A", "p:q");
        command.env_remove("C");
        assert_eq!(
            as_a_shell_takes_it(&command),
            r"env -u C A=p:q B='1 2' './a b' -x 'it'\''s' ''"
        );
    }
}
