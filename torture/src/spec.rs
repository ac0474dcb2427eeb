//! The target of a cell, and the results that an attach to it may have.

use crate::kit::Kit;
use midair_tests::Result;
use midair_tests::memory_group::MemoryGroup;
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;

/// The result that an attach must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// It must enter.
    In,
    /// It must enter, or be refused by one of these names.
    InOr(&'static [&'static str]),
    /// It must be refused by one of these names.
    Refused(&'static [&'static str]),
}

impl Want {
    /// Returns whether a refusal of this name is right.
    pub fn allows(self, name: &str) -> bool {
        match self {
            Want::In => false,
            Want::InOr(names) | Want::Refused(names) => names.contains(&name),
        }
    }
}

/// A program that is not ours, controlled over its standard streams. It answers `ping N` with
/// `pong N ROUNDS`. At the end of its input it ends, with code 0 if its own checks succeeded.
#[derive(Debug, Clone)]
pub struct Foreign {
    /// The program's command line.
    pub words: Vec<String>,
}

/// The program that a target runs.
#[derive(Debug, Clone)]
pub enum Program {
    /// `c/target.c`: what the first thread does, and the other words.
    Ours {
        /// The program's path, if it is not in the usual place (another C library, statically
        /// linked).
        program: Option<PathBuf>,
        /// The arguments of `c/target.c`.
        words: Vec<String>,
    },
    /// A program that is not ours.
    Foreign(Foreign),
}

/// The target of a cell.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The program that it runs.
    pub program: Program,
    /// Its environment.
    pub env: Vec<(String, String)>,
    /// A command that ends by running the target (`prlimit ...`, `unshare ...`).
    pub under: Vec<String>,
    /// Whether that command forks the target, which is then its only child.
    pub forked: bool,
    /// Whether its mappings, descriptors and threads do not change by themselves.
    pub steady: bool,
    /// Whether it gets signals all the time. Calls that end early are then its own doing.
    pub storm: bool,
    /// A function that is applied to it once it runs.
    pub then: Option<fn(i32) -> Result<()>>,
    /// Whether its process is not the one that was started. It then says its own pid, which is
    /// right only in our pid namespace.
    pub says_pid: bool,
    /// Whether it is stopped by job control, and must stay so.
    pub stopped: bool,
    /// Whether all of its threads are in calls that end when their thread is stopped. Some threads
    /// are stopped: one is borrowed for the attach, one for the detach, and others may be asked for
    /// their registers. A cycle tells only the first of them.
    pub noticing: bool,
    /// The memory cgroup in which it runs. It is removed when no target needs it any more.
    pub group: Option<Rc<MemoryGroup>>,
    /// Whether it cannot end by itself (it may not call exit). It is then killed when the cycles
    /// are done.
    pub killed: bool,
}

impl Spec {
    /// Makes a target with our own program. `leader` is what the first thread does.
    pub fn ours(leader: &str, words: &[&str]) -> Spec {
        let words = std::iter::once(leader).chain(words.iter().copied());
        Spec::of(Program::Ours {
            program: None,
            words: words.map(str::to_owned).collect(),
        })
    }

    /// Makes a target with another program.
    pub fn foreign(words: &[&str]) -> Spec {
        Spec::of(Program::Foreign(Foreign {
            words: words.iter().map(|word| (*word).to_owned()).collect(),
        }))
    }

    fn of(program: Program) -> Spec {
        Spec {
            program,
            env: Vec::new(),
            under: Vec::new(),
            forked: false,
            steady: true,
            storm: false,
            then: None,
            says_pid: false,
            stopped: false,
            noticing: false,
            group: None,
            killed: false,
        }
    }

    /// Adds a variable to its environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Spec {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// Runs it under a command that becomes it.
    #[must_use]
    pub fn under(mut self, words: &[&str]) -> Spec {
        self.under = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Adds a command between the one that it is already under and the target. The former starts
    /// this one, which becomes the target.
    #[must_use]
    pub fn then_under(mut self, words: &[&str]) -> Spec {
        self.under
            .extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    /// Runs it under a command that forks it.
    #[must_use]
    pub fn forked_by(mut self, words: &[&str]) -> Spec {
        self.forked = true;
        self.under(words)
    }

    /// Says that its mappings, threads or descriptors come and go by its own doing.
    #[must_use]
    pub fn unsteady(mut self) -> Spec {
        self.steady = false;
        self
    }

    /// Says that it has signals of its own that end calls early.
    #[must_use]
    pub fn storm(mut self) -> Spec {
        self.storm = true;
        self
    }

    /// Sets what is done to it once it runs.
    #[must_use]
    pub fn then(mut self, then: fn(i32) -> Result<()>) -> Spec {
        self.then = Some(then);
        self
    }

    /// Says that it has left the process that was started.
    #[must_use]
    pub fn says_pid(mut self) -> Spec {
        self.says_pid = true;
        self
    }

    /// Says that a signal stops it before any attach, and that it must stay stopped.
    #[must_use]
    pub fn stopped(mut self, then: fn(i32) -> Result<()>) -> Spec {
        self.stopped = true;
        self.then(then)
    }

    /// Says that whatever is done to it, one of its threads notices.
    #[must_use]
    pub fn noticing(mut self) -> Spec {
        self.noticing = true;
        self
    }

    /// Says that it cannot end by itself.
    #[must_use]
    pub fn killed(mut self) -> Spec {
        self.killed = true;
        self
    }

    /// Adds an argument for our own program.
    #[must_use]
    pub fn word(mut self, word: &str) -> Spec {
        if let Program::Ours { words, .. } = &mut self.program {
            words.push(word.to_owned());
        }
        self
    }

    /// Runs it in a memory cgroup of its own.
    #[must_use]
    pub fn grouped(mut self, group: MemoryGroup) -> Spec {
        self.under = group.enter();
        self.group = Some(Rc::new(group));
        self
    }

    /// Uses another build of our own program.
    #[must_use]
    pub fn build(mut self, path: PathBuf) -> Spec {
        if let Program::Ours { program, .. } = &mut self.program {
            *program = Some(path);
        }
        self
    }

    /// Returns the command line that starts it. `state` is its state file.
    pub fn command(&self, kit: &Kit, state: &std::path::Path) -> Command {
        let mut words: Vec<std::ffi::OsString> = self.under.iter().map(Into::into).collect();
        match &self.program {
            Program::Ours {
                program,
                words: own,
            } => {
                let program = program.clone().unwrap_or_else(|| kit.program("target"));
                words.push(program.into());
                words.push(state.into());
                words.extend(own.iter().map(Into::into));
            }
            Program::Foreign(foreign) => words.extend(foreign.words.iter().map(Into::into)),
        }
        let mut command = kit.clean(std::path::Path::new(&words[0]));
        command
            .args(&words[1..])
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }
}
