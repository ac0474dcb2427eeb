//! Programs on the stand-in for NVIDIA's libraries (`sim/cuda`), and the log of what its devices
//! did.

use crate::stage::plain_environment;
use crate::target::{Target, until};
use crate::{Error, Result, compile, fingerprint, workspace};
use midair_sim_cuda::{StandIn, Toolkit};
use std::collections::HashMap;
use std::io::{Read, Seek, SeekFrom};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The libraries as a program finds them, and a scratch directory that is removed with this value.
pub struct Kit {
    /// The libraries.
    pub stand_in: StandIn,
    scratch: tempfile::TempDir,
}

impl Kit {
    /// Puts the libraries into a directory.
    ///
    /// # Errors
    /// Fails when the libraries cannot be compiled.
    pub fn new() -> Result<Kit> {
        let dir = workspace().join("target/test-programs/cuda");
        Ok(Kit {
            stand_in: StandIn::lay_out(&dir)?,
            scratch: tempfile::tempdir()?,
        })
    }

    /// Returns a directory that is removed with this value.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Compiles `tests/c/NAME.c` against a toolkit.
    ///
    /// # Errors
    /// Returns what the compiler said.
    pub fn program(&self, name: &str, toolkit: Toolkit) -> Result<PathBuf> {
        let program = self.stand_in.dir().join(match toolkit {
            Toolkit::Major(major) => format!("{name}-{major}"),
            Toolkit::Bare => format!("{name}-bare"),
        });
        let mut flags = self.stand_in.link_arguments(toolkit);
        // The program is also made from these headers, so a change of them must compile it again.
        let mut headers = Vec::new();
        for name in ["cuda.h", "nvtx.h"] {
            headers.push(std::fs::read(midair_sim_cuda::sources().join(name))?);
        }
        let parts: Vec<&[u8]> = headers.iter().map(Vec::as_slice).collect();
        flags.push(format!("-DMADE_OF_{}", fingerprint(&parts)));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let source = compile::sources().join(format!("{name}.c"));
        compile::build(&["gcc"], &source, &program, &flags, |path| {
            Ok(path.to_str().ok_or("a path is text")?.to_owned())
        })?;
        Ok(program)
    }

    /// Compiles `tests/c/NAME.c` and starts it with `variables` in its environment.
    ///
    /// # Errors
    /// Returns what the compiler said, or why the program cannot be started.
    pub fn start(
        &self,
        name: &str,
        toolkit: Toolkit,
        variables: &[(&str, &str)],
    ) -> Result<CudaTarget> {
        self.start_command(Command::new(self.program(name, toolkit)?), variables)
    }

    /// Starts a command that starts such programs.
    ///
    /// # Errors
    /// Returns why the command cannot be started.
    pub fn start_command(
        &self,
        mut command: Command,
        variables: &[(&str, &str)],
    ) -> Result<CudaTarget> {
        let log = tempfile::Builder::new()
            .prefix("log")
            .tempfile_in(self.scratch())?;
        let (_, log) = log.keep().map_err(|error| error.error)?;
        command
            .env_clear()
            .envs(plain_environment())
            .env("CUDA_MODEL_LOG", &log)
            .envs(variables.iter().copied());
        Ok(CudaTarget {
            target: Target::spawn(command)?,
            log,
        })
    }
}

/// A running program, with the log of its devices.
pub struct CudaTarget {
    /// The process.
    pub target: Target,
    /// The log.
    pub log: PathBuf,
}

impl Deref for CudaTarget {
    type Target = Target;
    fn deref(&self) -> &Target {
        &self.target
    }
}

impl DerefMut for CudaTarget {
    fn deref_mut(&mut self) -> &mut Target {
        &mut self.target
    }
}

impl CudaTarget {
    /// Sends a command and waits for the answer, which starts with the command's first word.
    ///
    /// # Errors
    /// Fails when the program ends instead.
    pub fn ask(&mut self, command: &str) -> Result<String> {
        self.target.send(command)?;
        let word = command.split(' ').next().unwrap_or_default();
        self.target.expect(word)
    }

    /// Returns what the program's devices have done so far.
    ///
    /// # Errors
    /// Fails when the log cannot be read, or when a line of it is malformed.
    pub fn model_log(&self) -> Result<CudaLog> {
        CudaLog::read(&self.log)
    }

    /// Returns the current length of the log, for [`CudaTarget::log_from`].
    ///
    /// # Errors
    /// Fails when the log's length cannot be read.
    pub fn log_length(&self) -> Result<u64> {
        Ok(std::fs::metadata(&self.log)?.len())
    }

    /// Returns what the program's devices did after the log had this length.
    ///
    /// # Errors
    /// Fails as [`CudaTarget::model_log`] does.
    pub fn log_from(&self, length: u64) -> Result<CudaLog> {
        CudaLog::read_from(&self.log, length)
    }

    /// Waits until this many more kernels have run. It reads each byte of the growing log once, and
    /// does not parse it.
    ///
    /// # Errors
    /// Fails when the kernels do not come.
    pub fn await_kernels(&self, more: usize) -> Result<()> {
        let mut file = std::fs::File::open(&self.log)?;
        file.seek(SeekFrom::End(0))?;
        let (mut count, mut piece) = (0, vec![0; 1 << 16]);
        // Counts the lines of kernels, also those whose start is split between two pieces.
        let (word, mut matched) = (b"\nkernel ", 0);
        until("kernels", || {
            loop {
                let read = file.read(&mut piece)?;
                for byte in &piece[..read] {
                    matched = match *byte == word[matched] {
                        true => matched + 1,
                        false => usize::from(*byte == word[0]),
                    };
                    if matched == word.len() {
                        (count, matched) = (count + 1, 0);
                    }
                }
                if read == 0 || count >= more {
                    return Ok(count >= more);
                }
            }
        })
    }
}

/// One line of the log: its sort, and its words by name (`sim/cuda/c` writes them).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// `kernel`, `copy`, `peer`, `set`, `call`, `wait`, `memory`, `recording` (CUPTI was asked to
    /// record kernels, or no longer to), or `finalize` (CUPTI was finalized).
    pub what: String,
    words: HashMap<String, String>,
}

impl Line {
    /// Returns a word, or an empty text where there is none.
    pub fn text(&self, name: &str) -> &str {
        self.words.get(name).map_or("", String::as_str)
    }

    /// Returns a word as a number.
    ///
    /// # Errors
    /// Fails when there is no such word, or when it is not a number.
    pub fn number(&self, name: &str) -> Result<u64> {
        let text = self.text(name);
        let wrong = |_| -> Error { format!("{} has {name}={text}", self.what).into() };
        text.parse().map_err(wrong)
    }

    /// Returns three numbers that are separated by commas.
    ///
    /// # Errors
    /// Fails when there are not three numbers.
    pub fn three(&self, name: &str) -> Result<[u64; 3]> {
        let numbers: Vec<u64> = self
            .text(name)
            .split(',')
            .map(|number| Ok(number.parse()?))
            .collect::<Result<_>>()?;
        numbers
            .try_into()
            .map_err(|_| format!("{} has {name}={}", self.what, self.text(name)).into())
    }
}

/// The log of a process's devices, in the order in which it was written.
#[derive(Debug, Clone, Default)]
pub struct CudaLog {
    /// Its lines.
    pub lines: Vec<Line>,
}

impl CudaLog {
    /// Reads the log. If its last line has no end, the process was killed while it wrote, and the
    /// line is left out.
    ///
    /// # Errors
    /// Fails when the log cannot be read or has a malformed line.
    pub fn read(path: &Path) -> Result<CudaLog> {
        CudaLog::read_from(path, 0)
    }

    /// Reads the log from this byte on. Since each line is written at once, this byte is the
    /// start of one.
    fn read_from(path: &Path, from: u64) -> Result<CudaLog> {
        let failed = |error| format!("{}: {error}", path.display());
        let mut file = std::fs::File::open(path).map_err(failed)?;
        let mut text = String::new();
        file.seek(SeekFrom::Start(from)).map_err(failed)?;
        file.read_to_string(&mut text).map_err(failed)?;
        let mut lines = Vec::new();
        for line in text.split_inclusive('\n') {
            let Some(line) = line.strip_suffix('\n') else {
                break;
            };
            let (what, rest) = line
                .split_once(' ')
                .ok_or_else(|| format!("\"{line}\" is no line of the log"))?;
            let words = rest
                .split(' ')
                .map(|word| {
                    let (name, value) = word
                        .split_once('=')
                        .ok_or_else(|| format!("\"{word}\" in \"{line}\""))?;
                    Ok((name.to_owned(), value.to_owned()))
                })
                .collect::<Result<_>>()?;
            lines.push(Line {
                what: what.to_owned(),
                words,
            });
        }
        Ok(CudaLog { lines })
    }

    /// Returns the lines after `before`, an earlier state of the same log.
    #[must_use]
    pub fn since(&self, before: &CudaLog) -> CudaLog {
        CudaLog {
            lines: self.lines[before.lines.len()..].to_vec(),
        }
    }

    /// Returns the lines of one sort.
    pub fn of(&self, what: &str) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(move |line| line.what == what)
    }
}
