//! Names of output files. Keys like `%pid%` in the user's text are replaced with values of the
//! traced process.
//!
//! The keys are rocprofv3's: `%key%` and `{key}`, the short `%h %p %j %r %s`, and
//! environment variables as `%env{NAME}%`, `$env{NAME}` and `%q{NAME}`. Each key is expanded once: what
//! looks like a key in a value is the target's text, and no key (FMT-056). A value of the target's is
//! a part of one component of a path, and never leads elsewhere. `%byte-e9%` is a byte: settings are
//! text, and directories are bytes.
//!
//! Where AMD's tool does not do what its manual says, we follow the manual: `%q{NAME}` works, and
//! `%nid%` is the pid where there is no rank.

use crate::process::Place;
use midair_failure::plain;
use midair_settings::literal;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A text that would have more bytes is not expanded (a path has at most 4096).
const LONGEST: usize = 8192;
/// The most bytes of a key's value. A file name has at most 255 bytes (NAME_MAX), including what
/// follows the value ([`LONGEST_SUFFIX`]). Longer values are cut. The working directory is the
/// user's own, so it is not cut.
const LONGEST_VALUE: usize = 255 - LONGEST_SUFFIX.len();
/// The longest text that may follow a prefix: a suffix, with what makes a name a temporary one.
pub(crate) const LONGEST_SUFFIX: &str = "_memory_allocation_trace.csv.4194304.63.tmp.";

/// The directory when none is asked for, which is the caller's own.
pub const DEFAULT_DIRECTORY: &str = "%cwd%";
/// The file name when none is asked for.
pub const DEFAULT_FILE: &str = "%hostname%/%pid%";

/// Variables that hold an MPI rank. Of those that are set, the last counts (AMD's order).
const RANKS: &[&str] = &[
    "MPI_RANK",
    "MPI_LOCALRANKID",
    "MPI_RANKID",
    "MV2_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "SLURM_PROCID",
    "PBS_NODENUM",
];
/// Variables that hold the number of ranks. Of those that are set, the last counts.
const SIZES: &[&str] = &[
    "MPI_SIZE",
    "MPI_LOCALNRANKS",
    "MPI_NRANKS",
    "MV2_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "SLURM_NTASKS",
    "PBS_O_TASKNUM",
];

/// The variables that name the user's own variables for both (`--mpi-world-rank-variable`).
const OWN_RANK: &str = "ROCPROF_MPI_RANK_VAR";
const OWN_SIZE: &str = "ROCPROF_MPI_SIZE_VAR";

/// Variables that name what all parts of a program have in common. The first one that is set
/// counts.
const RUNS: &[&str] = &[
    "SLURM_JOB_ID",
    "PBS_JOBID",
    "LSB_JOBID",
    "FLUX_JOB_ID",
    "TORCHELASTIC_RUN_ID",
    "PMIX_NAMESPACE",
];

/// The values of the keys. All but `cwd` come from the target.
#[derive(Debug, Clone, Default)]
pub struct Keys {
    /// `%hostname%`.
    pub hostname: String,
    /// `%pid%`.
    pub pid: u32,
    /// `%ppid%`.
    pub ppid: u32,
    /// `%pgid%`.
    pub pgid: u32,
    /// `%psid%`.
    pub psid: u32,
    /// `%psize%`: the number of the parent's children.
    pub siblings: u32,
    /// `%cwd%`: the working directory of the attacher. In AMD's tool it is the target's. But the
    /// files of an attach belong to the user who asked for them, who may not even be able to write
    /// there. None if it is gone.
    pub cwd: Option<PathBuf>,
    /// Command line, for `%argv%`, `%args%`, `%argt%`, `%tag%`, `%arg0%`, …
    pub command: Vec<String>,
    /// Environment as `NAME=value`. Only what a key names is used; none of it is stored.
    pub environment: Vec<String>,
    /// When collecting started, seconds since 1970, for `%launch_date%` and `%launch_time%`.
    pub launched: i64,
    /// How many seconds local time is ahead of UTC.
    pub utc_offset: i64,
}

/// A directory and the first part of the names of files in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputName {
    /// Absolute, if `cwd` is.
    pub directory: PathBuf,
    /// May start with directories.
    pub prefix: String,
}

/// Why there is no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoName {
    /// The directory is relative, and the current directory no longer exists.
    #[error("the current directory no longer exists")]
    Gone,
    /// The file's name has bytes that are not UTF-8.
    #[error("the name of the output files is not UTF-8")]
    NotText,
}

/// Expands both parts, with defaults for `None`. A relative directory is below `cwd`.
///
/// # Errors
/// [`NoName`].
pub fn output_name(
    directory: Option<&str>,
    file: Option<&str>,
    keys: &Keys,
) -> Result<OutputName, NoName> {
    let (directory, file) = (
        directory.unwrap_or(DEFAULT_DIRECTORY),
        file.unwrap_or(DEFAULT_FILE),
    );
    let prefix = expand(file, keys).into_string();
    let prefix = prefix.map_err(|_| NoName::NotText)?;
    let mut path = PathBuf::from(expand(directory, keys));
    match &keys.cwd {
        Some(cwd) => path = cwd.join(path),
        None if names_cwd(file) => return Err(NoName::Gone),
        // The directory has no effect.
        None if prefix.starts_with('/') => path = PathBuf::from("/"),
        None if names_cwd(directory) || path.is_relative() => return Err(NoName::Gone),
        None => {}
    }
    Ok(OutputName {
        directory: path,
        prefix,
    })
}

fn names_cwd(text: &str) -> bool {
    text.contains("%cwd%") || text.contains("{cwd}")
}

/// Expands every key from left to right, without looking into the values. Unknown keys stay as they
/// are, except `%argN%` past the end, which is removed with the separators behind it.
pub fn expand(text: &str, keys: &Keys) -> OsString {
    let expanded = expanded(text, keys);
    match expanded.len() > LONGEST {
        true => text.into(),
        false => OsString::from_vec(expanded),
    }
}

fn expanded(text: &str, keys: &Keys) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['%', '{', '$']) {
        let (before, from) = rest.split_at(at);
        out.extend_from_slice(before.as_bytes());
        if let Some((used, value)) = key(from, keys) {
            out.extend_from_slice(&value);
            rest = from.get(used..).unwrap_or_default();
            if value.is_empty() && is_argument(from) {
                rest = rest.trim_start_matches(['-', '/', '_']);
            }
        } else {
            // The first byte is one of three, which are all ASCII.
            let (sign, after) = from.split_at(1);
            out.extend_from_slice(sign.as_bytes());
            rest = after;
        }
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

fn is_argument(text: &str) -> bool {
    text.trim_start_matches(['%', '{']).starts_with("arg")
}

/// Finds the key at the front of the text. Returns how many bytes it takes, and its value.
fn key(text: &str, keys: &Keys) -> Option<(usize, Vec<u8>)> {
    if let Some((used, value)) = variable(text, keys) {
        return Some((used, value.into_bytes()));
    }
    for (open, close) in [('%', '%'), ('{', '}')] {
        let Some(inner) = text.strip_prefix(open) else {
            continue;
        };
        let Some(end) = inner.find(close) else {
            continue;
        };
        let name = inner.get(..end)?;
        if let Some(value) = bytes(name, keys) {
            return Some((end + 2, value));
        }
    }
    let short = match text.get(..2)? {
        "%h" => "hostname",
        "%p" => "pid",
        "%j" => "job",
        "%r" => "rank",
        "%s" => "size",
        _ => return None,
    };
    Some((2, named(short, keys)?.into_bytes()))
}

/// Finds `%env{NAME}%`, `$env{NAME}` or `%q{NAME}`, also with `ENV`. A variable that is not set is
/// empty.
fn variable(text: &str, keys: &Keys) -> Option<(usize, String)> {
    let forms = [
        ("%env{", "}%"),
        ("%ENV{", "}%"),
        ("$env{", "}"),
        ("$ENV{", "}"),
        ("%q{", "}"),
    ];
    let (open, close) = forms.into_iter().find(|(open, _)| text.starts_with(open))?;
    let inner = text.get(open.len()..)?;
    let end = inner.find('}')?;
    let name = inner.get(..end)?;
    let proper = !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    if !proper || !inner.get(end..)?.starts_with(close) {
        return None;
    }
    let value = keys.variable(name).unwrap_or_default();
    Some((
        open.len() + end + close.len(),
        harmless(value.trim_start_matches(['\t', ' ', '/'])),
    ))
}

/// Makes a value of the target fit for a file name: it has no directories, nothing that a terminal
/// interprets or that leads upwards, and is not longer than [`LONGEST_VALUE`].
fn harmless(value: &str) -> String {
    let value = value.get(..value.floor_char_boundary(LONGEST_VALUE));
    let value: String = value
        .unwrap_or_default()
        .chars()
        .map(|c| {
            if plain::is_obeyed(c) || matches!(c, ' ' | '/') {
                '_'
            } else {
                c
            }
        })
        .collect();
    match value.as_str() {
        "." | ".." => "_".to_owned(),
        _ => value,
    }
}

/// Returns the value of a key. A directory's name may have any bytes.
fn bytes(name: &str, keys: &Keys) -> Option<Vec<u8>> {
    if name == "cwd" {
        let cwd = keys.cwd.as_deref().unwrap_or(Path::new("."));
        return Some(cwd.as_os_str().as_bytes().to_vec());
    }
    match literal::byte(name) {
        Some(byte) => Some(vec![byte]),
        None => named(name, keys).map(String::into_bytes),
    }
}

fn named(name: &str, keys: &Keys) -> Option<String> {
    Some(match name {
        "hostname" => harmless(&keys.hostname),
        "pid" => keys.pid.to_string(),
        "ppid" => keys.ppid.to_string(),
        "pgid" => keys.pgid.to_string(),
        "psid" => keys.psid.to_string(),
        "psize" => keys.siblings.to_string(),
        "job" => harmless(keys.variable("SLURM_JOB_ID").unwrap_or("0")),
        "rank" => keys.rank().unwrap_or_else(|| "0".to_owned()),
        "size" => keys
            .size()
            .filter(|size| *size > 0)
            .unwrap_or(1)
            .to_string(),
        "nid" => keys.rank().unwrap_or_else(|| keys.pid.to_string()),
        "launch_date" => keys.launch(keys.variable("ROCPROF_DATE_FORMAT").unwrap_or("%F")),
        "launch_time" => keys.launch(keys.variable("ROCPROF_TIME_FORMAT").unwrap_or("%F_%H.%M")),
        "tag" => keys.tag(),
        "argv" => keys.joined(String::new(), 0),
        "args" => keys.joined(String::new(), 1),
        "argt" => keys.joined(keys.tag(), 1),
        _ => {
            let index: usize = name
                .strip_prefix("arg")
                .filter(|n| n.bytes().all(|b| b.is_ascii_digit()))?
                .parse()
                .ok()?;
            keys.arguments(0).nth(index).unwrap_or_default()
        }
    })
}

impl Keys {
    fn variable(&self, name: &str) -> Option<&str> {
        self.environment
            .iter()
            .find_map(|entry| entry.strip_prefix(name)?.strip_prefix('='))
    }

    /// Returns the number in the last of the variables that is set to one.
    fn number(&self, names: &[&str]) -> Option<u64> {
        names
            .iter()
            .rev()
            .find_map(|name| self.variable(name)?.trim().parse().ok())
    }

    /// Returns the part of the process in a larger program. PyTorch's launcher uses variables that
    /// AMD's keys do not know. Where they are set, they count.
    pub fn place(&self) -> Place {
        let run = RUNS.iter().find_map(|name| self.variable(name));
        let run = run.map(harmless).filter(|run| !run.is_empty());
        let torch = |name: &str| self.variable(name)?.trim().parse().ok();
        Place {
            run,
            rank: torch("RANK").or_else(|| self.rank()?.parse().ok()),
            ranks: torch("WORLD_SIZE").or_else(|| self.size()),
        }
    }

    /// Returns the number of ranks.
    fn size(&self) -> Option<u64> {
        match self.variable(OWN_SIZE) {
            Some(own) => self.number(&[own]),
            None => self.number(SIZES),
        }
    }

    fn rank(&self) -> Option<String> {
        if let Some(own) = self.variable(OWN_RANK) {
            return self.number(&[own]).map(|rank| rank.to_string());
        }
        let slurm = self
            .variable("SLURM_PROCID")
            .and_then(|rank| rank.trim().parse::<u64>().ok());
        slurm
            .or_else(|| self.number(RANKS))
            .map(|rank| rank.to_string())
    }

    /// Returns the base name of the program.
    fn tag(&self) -> String {
        let program = self.command.first().map_or("", String::as_str);
        harmless(program.rsplit('/').next().unwrap_or_default())
    }

    /// Returns the arguments from `first` on, each made fit for a file name. A `--` behind the
    /// program is left out.
    fn arguments(&self, first: usize) -> impl Iterator<Item = String> {
        let dashes = self.command.get(1).is_some_and(|argument| argument == "--");
        let kept = self
            .command
            .iter()
            .enumerate()
            .filter(move |(at, _)| !(dashes && *at == 1));
        kept.map(|(_, argument)| {
            harmless(argument.trim())
                .trim_start_matches('.')
                .trim_start_matches('_')
                .to_owned()
        })
        .skip(first)
    }

    /// Appends the arguments from `first` on to `text`, as many as fit.
    fn joined(&self, text: String, first: usize) -> String {
        let mut out = text;
        for (at, argument) in self.arguments(first).enumerate() {
            if out.len() > LONGEST_VALUE {
                break;
            }
            if at > 0 {
                out.push('_');
            }
            out.push_str(&argument);
        }
        out.truncate(out.floor_char_boundary(LONGEST_VALUE));
        out
    }

    /// Returns when collecting started, in a form for people.
    pub fn began(&self) -> String {
        match self.launched {
            0 => String::new(),
            // The text for people needs spaces, which a format for file names would replace.
            _ => format!("{} {} UTC", self.launch("%F"), self.launch("%T")),
        }
    }

    /// Returns the time of the launch in the given format, with the parts of strftime(3) that make
    /// sense in a file name.
    fn launch(&self, format: &str) -> String {
        let local = self.launched.saturating_add(self.utc_offset);
        let (days, seconds) = (local.div_euclid(86_400), local.rem_euclid(86_400));
        let (year, month, day) = date(days);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let mut out = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next().filter(|_| out.len() <= LONGEST_VALUE) {
            if c != '%' {
                out.push(c);
                continue;
            }
            match chars.next() {
                Some('F') => out += &format!("{year:04}-{month:02}-{day:02}"),
                Some('T') => out += &format!("{hour:02}:{minute:02}:{second:02}"),
                Some('R') => out += &format!("{hour:02}:{minute:02}"),
                Some('Y') => out += &format!("{year:04}"),
                Some('y') => out += &format!("{:02}", year.rem_euclid(100)),
                Some('m') => out += &format!("{month:02}"),
                Some('d') => out += &format!("{day:02}"),
                Some('H') => out += &format!("{hour:02}"),
                Some('M') => out += &format!("{minute:02}"),
                Some('S') => out += &format!("{second:02}"),
                Some('s') => out += &self.launched.to_string(),
                Some('%') | None => out.push('%'),
                Some(other) => out.extend(['%', other]),
            }
        }
        harmless(&out)
    }
}

/// Returns year, month and day for a number of days since 1970-01-01 (Gregorian). It counts from
/// 0000-03-01, so that the leap day is the last of a year. 146097 days are 400 years.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days.saturating_add(719_468);
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_based = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_based + 2) / 5 + 1;
    let month = if march_based < 10 {
        march_based + 3
    } else {
        march_based - 9
    };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(text: &str, keys: &Keys) -> String {
        super::expand(text, keys).into_string().unwrap()
    }

    fn keys() -> Keys {
        Keys {
            hostname: "node7".into(),
            pid: 2371,
            ppid: 12,
            pgid: 2370,
            psid: 2369,
            siblings: 3,
            cwd: Some("/home/me".into()),
            command: ["/opt/app/vadd", "--", "./in/x.bin", "3"]
                .map(String::from)
                .to_vec(),
            environment: [
                "USER=me",
                "OUT= /a b/c",
                "PAGE=%pid%",
                "WAY=..%cwd%..%env{UP}%",
                "UP=..",
                "EMPTY=",
            ]
            .map(String::from)
            .to_vec(),
            launched: 1_732_097_130,
            utc_offset: 0,
        }
    }

    #[test]
    fn every_form_of_key_is_expanded() {
        let keys = keys();
        for (text, wanted) in [
            ("%hostname%/%pid%", "node7/2371"),
            ("{hostname}-{pid}", "node7-2371"),
            ("%h.%p.%j.%r.%s", "node7.2371.0.0.1"),
            ("%ppid%.%pgid%.%psid%.%psize%", "12.2370.2369.3"),
            ("%tag%", "vadd"),
            ("%argv%", "opt_app_vadd_in_x.bin_3"),
            ("%args%", "in_x.bin_3"),
            ("%argt%", "vaddin_x.bin_3"),
            ("%arg0%|%arg2%", "opt_app_vadd|3"),
            ("%arg7%-out", "out"),
            ("%env{USER}% $ENV{USER} %q{USER} $env{USER}", "me me me me"),
            ("%env{OUT}%", "a_b_c"),
            ("%env{PAGE}%", "%pid%"),
            ("%env{WAY}%/x", "..%cwd%..%env{UP}%/x"),
            ("%env{UP}%/%env{EMPTY}%x%env{NONE}%", "_/x"),
            ("%launch_date%", "2024-11-20"),
            ("%launch_time%", "2024-11-20_10.05"),
            (
                "100%% {nothing} %nothing% $x",
                "100%% {nothing} %nothing% $x",
            ),
            ("%", "%"),
            ("%env{lower}%", "%env{lower}%"),
            ("plain", "plain"),
        ] {
            assert_eq!(expand(text, &keys), wanted, "{text}");
        }
    }

    /// Whatever a target calls itself, no component of a path is led elsewhere by it.
    #[test]
    fn a_value_is_within_one_component() {
        let words = [
            "..",
            ".",
            "/",
            "../..",
            "..%cwd%..",
            "%cwd%",
            "{cwd}",
            "$ENV{UP}",
            "%q{UP}",
            "..%arg1%",
            "%tag%",
        ];
        let all = [
            "%tag%",
            "%argv%",
            "%arg0%%arg1%",
            "%arg1%%arg0%",
            "%env{UP}%%env{UP}%",
            "%hostname%",
            "%job%",
        ];
        for word in words {
            let mut keys = keys();
            keys.cwd = Some("/".into());
            keys.hostname = word.to_owned();
            keys.command = vec![word.to_owned(); 3];
            keys.environment = vec![format!("UP={word}"), format!("SLURM_JOB_ID={word}")];
            for key in all {
                let value = expand(key, &keys);
                assert!(!value.contains('/'), "{key}, {word}: {value}");
                assert!(value != "." && value != "..", "{key}, {word}: {value}");
            }
        }
    }

    /// A target's command line and environment may be of any size.
    #[test]
    fn values_fit_a_file_name() {
        let mut keys = keys();
        keys.command = vec!["/bin/".to_owned() + &"ä".repeat(5_000_000); 3];
        keys.environment = vec![
            "LONG=".to_owned() + &"%argv%".repeat(1_000_000),
            "ROCPROF_DATE_FORMAT=".to_owned() + &"%F".repeat(1_000_000),
            "TURNED=a\u{202e}b\u{2028}c".to_owned(),
        ];
        for key in [
            "%tag%",
            "%argv%",
            "%args%",
            "%argt%",
            "%arg2%",
            "%launch_date%",
        ] {
            let value = expand(key, &keys);
            assert!(
                value.len() + LONGEST_SUFFIX.len() <= 255,
                "{key}: {}",
                value.len()
            );
            assert!(value.len() > 200, "{key}: {value}");
        }
        // The whole text has a limit, too.
        assert!(expand(&"%env{LONG}%".repeat(1000), &keys).len() <= 1000 * "%env{LONG}%".len());
        assert_eq!(expand("%env{TURNED}%", &keys), "a_b_c");
    }

    #[test]
    fn ranks_come_from_the_variables_of_the_launcher() {
        let rank = |environment: &[&str]| {
            let environment = environment
                .iter()
                .map(|entry| (*entry).to_owned())
                .collect();
            let keys = Keys {
                environment,
                ..keys()
            };
            expand("%rank%/%size%/%nid%", &keys)
        };
        assert_eq!(rank(&[]), "0/1/2371");
        assert_eq!(
            rank(&["OMPI_COMM_WORLD_RANK=5", "OMPI_COMM_WORLD_SIZE=8"]),
            "5/8/5"
        );
        assert_eq!(
            rank(&["SLURM_PROCID=2", "PBS_NODENUM=9", "MPI_RANK=1"]),
            "2/1/2"
        );
        assert_eq!(rank(&["SLURM_PROCID=../../x"]), "0/1/2371");
        // The variables that the user named count alone.
        let own = ["ROCPROF_MPI_RANK_VAR=MINE", "ROCPROF_MPI_SIZE_VAR=OURS"];
        assert_eq!(
            rank(&[own[0], own[1], "MINE=7", "OURS=9", "SLURM_PROCID=2"]),
            "7/9/7"
        );
        assert_eq!(rank(&[own[0], "SLURM_PROCID=2", "MPI_SIZE=4"]), "0/4/2371");
    }

    #[test]
    fn defaults_and_relative_directories_are_the_callers() {
        let keys = keys();
        let name = output_name(None, None, &keys).unwrap();
        assert_eq!(
            (name.directory, name.prefix.as_str()),
            ("/home/me".into(), "node7/2371")
        );
        let name = output_name(Some("out/%pid%"), Some("r"), &keys).unwrap();
        assert_eq!(
            (name.directory, name.prefix.as_str()),
            ("/home/me/out/2371".into(), "r")
        );
        assert_eq!(
            output_name(Some("/abs"), None, &keys).unwrap().directory,
            PathBuf::from("/abs")
        );
    }

    #[test]
    fn a_directory_has_any_bytes_and_is_not_looked_into() {
        let mut keys = keys();
        let cwd = Path::new(std::ffi::OsStr::from_bytes(b"/50%pid%/caf\xe9/{pid}"));
        let below = format!("{}/%pid%", literal::literal(cwd));
        let name = |directory: &str, keys: &Keys| {
            output_name(Some(directory), Some("r"), keys).map(|name| name.directory)
        };
        assert_eq!(name(&below, &keys), Ok(cwd.join("2371")));
        keys.cwd = Some(cwd.to_owned());
        assert_eq!(name("%cwd%/x", &keys), Ok(cwd.join("x")));
        assert_eq!(name("x", &keys), Ok(cwd.join("x")));
        let text = output_name(None, Some("caf%byte-e9%"), &keys);
        assert_eq!(text, Err(NoName::NotText));
    }

    #[test]
    fn a_directory_that_is_gone_is_asked_for_by_what_is_relative() {
        let keys = Keys {
            cwd: None,
            ..keys()
        };
        let name = |directory, file| output_name(directory, file, &keys).map(|name| name.directory);
        for (directory, file) in [
            (None, None),
            (Some("x"), None),
            (Some("%cwd%/x"), Some("r")),
            (Some("/x/{cwd}"), None),
            (Some("/x"), Some("%cwd%/r")),
        ] {
            assert_eq!(
                name(directory, file),
                Err(NoName::Gone),
                "{directory:?} {file:?}"
            );
        }
        assert_eq!(name(Some("/x"), None), Ok("/x".into()));
        assert!(name(None, Some("/abs/r")).is_ok());
    }

    #[test]
    fn dates_are_right_around_leap_days() {
        for (days, wanted) in [
            (0, (1970, 1, 1)),
            (-1, (1969, 12, 31)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (20_047, (2024, 11, 20)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(date(days), wanted, "{days}");
        }
    }

    #[test]
    fn a_text_may_grow_to_its_limit_and_no_further() {
        // The pid is a byte shorter than its key.
        let text = |length: usize| "x".repeat(length - "2371".len()) + "%pid%";
        let expanded = expand(&text(LONGEST), &keys());
        assert!(expanded.len() == LONGEST && expanded.ends_with("x2371"));
        for length in [LONGEST + 1, LONGEST + 2] {
            assert_eq!(expand(&text(length), &keys()), text(length));
        }
    }

    #[test]
    fn only_arguments_that_are_missing_take_the_separators_behind_them() {
        for (text, wanted) in [
            ("%arg7%-_/out", "out"),
            ("{arg7}_out", "out"),
            ("%arg2%-out", "3-out"),
            ("%env{EMPTY}%-out", "-out"),
            ("%env{NONE}%_out", "_out"),
        ] {
            assert_eq!(expand(text, &keys()), wanted, "{text}");
        }
    }

    #[test]
    fn there_is_at_least_one_rank() {
        let size = |size: &str| {
            let environment = vec![format!("MPI_SIZE={size}")];
            let keys = Keys {
                environment,
                ..keys()
            };
            expand("%size%", &keys)
        };
        assert_eq!(["0", "1", "2"].map(size), ["1", "1", "2"]);
    }

    #[test]
    fn the_place_is_that_of_the_first_launcher_that_tells_it() {
        let place = |environment: &[&str]| {
            let environment = environment.iter().map(|entry| (*entry).to_owned());
            let keys = Keys {
                environment: environment.collect(),
                ..keys()
            };
            let Place { run, rank, ranks } = keys.place();
            (run.unwrap_or_default(), rank, ranks)
        };
        let run = |run: &str, rank, ranks| (run.to_owned(), rank, ranks);
        assert_eq!(place(&[]), run("", None, None));
        let slurm = ["SLURM_JOB_ID=a/b", "SLURM_PROCID=3", "SLURM_NTASKS=8"];
        assert_eq!(place(&slurm), run("a_b", Some(3), Some(8)));
        // PyTorch's variables come first, and an empty name is none.
        let torch = ["RANK=5", "WORLD_SIZE=9", "SLURM_PROCID=3", "SLURM_JOB_ID="];
        assert_eq!(place(&torch), run("", Some(5), Some(9)));
        let keys = Keys {
            environment: vec!["SLURM_JOB_ID=".to_owned()],
            ..keys()
        };
        assert_eq!(keys.place(), Place::default());
    }

    #[test]
    fn times_are_written_in_parts() {
        let keys = keys();
        assert_eq!(keys.began(), "2024-11-20 10:05:30 UTC");
        assert_eq!(keys.launch("%Y%m%d %H.%M.%S"), "20241120_10.05.30");
        assert_eq!(
            keys.launch("%y %R %s %% %x %"),
            "24_10:05_1732097130_%_%x_%"
        );
        // A minute before the next day, which has started where local time is ahead.
        let late = Keys {
            launched: 1_732_097_130 - 10 * 3600 - 5 * 60 - 30 + 23 * 3600 + 59 * 60 + 1,
            utc_offset: 60,
            ..keys
        };
        assert_eq!(late.launch("%F %T"), "2024-11-21_00:00:01");
        // It is not known.
        let unknown = Keys {
            launched: 0,
            ..late
        };
        assert_eq!(unknown.began(), "");
    }
}
