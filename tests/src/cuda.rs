//! Programs on the stand-in for NVIDIA's libraries (`sim/cuda`), and the log of what its devices did.

use crate::stage::plain_environment;
use crate::target::{Target, until};
use crate::{Error, Result, compile, fingerprint, workspace};
use midair_sim_cuda::{StandIn, Toolkit};
use std::collections::HashMap;
use std::io::{Read, Seek, SeekFrom};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The libraries as a program finds them, and a scratch directory that goes with this value.
pub struct Kit {
    /// The libraries.
    pub stand_in: StandIn,
    scratch: tempfile::TempDir,
}

impl Kit {
    /// Lays them out.
    ///
    /// # Errors
    /// When they cannot be compiled.
    pub fn new() -> Result<Kit> {
        let dir = workspace().join("target/test-programs/cuda");
        Ok(Kit {
            stand_in: StandIn::lay_out(&dir)?,
            scratch: tempfile::tempdir()?,
        })
    }

    /// A directory that is removed with this value.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Compiles `tests/c/NAME.c` against a toolkit.
    ///
    /// # Errors
    /// What the compiler said.
    pub fn program(&self, name: &str, toolkit: Toolkit) -> Result<PathBuf> {
        let program = self.stand_in.dir().join(match toolkit {
            Toolkit::Major(major) => format!("{name}-{major}"),
            Toolkit::Bare => format!("{name}-bare"),
        });
        let mut flags = self.stand_in.link_arguments(toolkit);
        // What else it is made of: a change of these headers makes it anew.
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
    /// What the compiler said, or why it cannot be started.
    pub fn start(
        &self,
        name: &str,
        toolkit: Toolkit,
        variables: &[(&str, &str)],
    ) -> Result<CudaTarget> {
        self.start_command(Command::new(self.program(name, toolkit)?), variables)
    }

    /// Starts a command that leads to such programs.
    ///
    /// # Errors
    /// Why it cannot be started.
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

/// A running program, and its devices' log.
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
    /// Sends a command and waits for the answer, which begins with its first word.
    ///
    /// # Errors
    /// When it ends instead.
    pub fn ask(&mut self, command: &str) -> Result<String> {
        self.target.send(command)?;
        let word = command.split(' ').next().unwrap_or_default();
        self.target.expect(word)
    }

    /// What its devices did so far.
    ///
    /// # Errors
    /// When the log cannot be read, or has a line that is none.
    pub fn model_log(&self) -> Result<CudaLog> {
        CudaLog::read(&self.log)
    }

    /// How long the log is now: a place for [`CudaTarget::log_from`].
    ///
    /// # Errors
    /// When the log cannot be looked at.
    pub fn log_length(&self) -> Result<u64> {
        Ok(std::fs::metadata(&self.log)?.len())
    }

    /// What its devices did since the log had this length.
    ///
    /// # Errors
    /// As [`CudaTarget::model_log`].
    pub fn log_from(&self, length: u64) -> Result<CudaLog> {
        CudaLog::read_from(&self.log, length)
    }

    /// Waits until so many kernels more have run. A log that grows is read once, and not parsed.
    ///
    /// # Errors
    /// When they do not come.
    pub fn await_kernels(&self, more: usize) -> Result<()> {
        let mut file = std::fs::File::open(&self.log)?;
        file.seek(SeekFrom::End(0))?;
        let (mut count, mut piece) = (0, vec![0; 1 << 16]);
        // Lines of kernels, also those whose beginning is at the end of a piece.
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

/// One line of the log: what it is of, and its words by name (`sim/cuda/c` writes them).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// `kernel`, `copy`, `peer`, `set`, `call`, `wait`, `memory`, or `finalize` (CUPTI was finalized).
    pub what: String,
    words: HashMap<String, String>,
}

impl Line {
    /// A word; empty where there is none.
    pub fn text(&self, name: &str) -> &str {
        self.words.get(name).map_or("", String::as_str)
    }

    /// A word as a number.
    ///
    /// # Errors
    /// When there is none.
    pub fn number(&self, name: &str) -> Result<u64> {
        let text = self.text(name);
        let wrong = |_| -> Error { format!("{} has {name}={text}", self.what).into() };
        text.parse().map_err(wrong)
    }

    /// Three numbers with commas between them.
    ///
    /// # Errors
    /// When there are not three.
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
    /// Reads it. A last line without an end is of a process that was killed while it wrote, and left out.
    ///
    /// # Errors
    /// When it cannot be read or has a line that is none.
    pub fn read(path: &Path) -> Result<CudaLog> {
        CudaLog::read_from(path, 0)
    }

    /// Reads it from this byte on. Each line is written at once, so it is the beginning of one.
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

    /// What came after `before`, an earlier state of the same log.
    #[must_use]
    pub fn since(&self, before: &CudaLog) -> CudaLog {
        CudaLog {
            lines: self.lines[before.lines.len()..].to_vec(),
        }
    }

    /// Lines of one sort.
    pub fn of(&self, what: &str) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(move |line| line.what == what)
    }
}
