//! What a cell's target is, and what may happen to it.

use crate::kit::Kit;
use midair_tests::Result;
use midair_tests::memory_group::MemoryGroup;
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;

/// What is asked of an attach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// It gets in.
    In,
    /// It gets in, or says by one of these names why not.
    InOr(&'static [&'static str]),
    /// It says by one of these names why not.
    Refused(&'static [&'static str]),
}

impl Want {
    /// Whether a refusal of this name is right.
    pub fn allows(self, name: &str) -> bool {
        match self {
            Want::In => false,
            Want::InOr(names) | Want::Refused(names) => names.contains(&name),
        }
    }
}

/// A program that is not ours, told and asked over its standard streams: it answers `ping N` with
/// `pong N ROUNDS`, and ends at the end of its input with code 0 if its own checks held.
#[derive(Debug, Clone)]
pub struct Foreign {
    /// Its command line.
    pub words: Vec<String>,
}

/// What a target runs.
#[derive(Debug, Clone)]
pub enum Program {
    /// `c/target.c`: what the first thread does, and the other words.
    Ours {
        /// Where it is, if not in the usual place (another C library, statically linked).
        program: Option<PathBuf>,
        /// See `c/target.c`.
        words: Vec<String>,
    },
    /// Another one.
    Foreign(Foreign),
}

/// The target of a cell.
#[derive(Debug, Clone)]
pub struct Spec {
    /// What it runs.
    pub program: Program,
    /// Its environment.
    pub env: Vec<(String, String)>,
    /// A command that ends in it (`prlimit ...`, `unshare ...`).
    pub under: Vec<String>,
    /// That command forks it: the target is its only child.
    pub forked: bool,
    /// Its mappings, descriptors and threads do not change by themselves.
    pub steady: bool,
    /// It gets signals all the time: calls that end early are its own doing.
    pub storm: bool,
    /// What is done to it once it runs.
    pub then: Option<fn(i32) -> Result<()>>,
    /// Its process is not the one that was started: it says its own id. Only in our pid namespace.
    pub says_pid: bool,
    /// It is stopped by job control and must stay so.
    pub stopped: bool,
    /// All of its threads are in calls that end when their thread is stopped. Some are: one that is
    /// borrowed for the attach, one for the detach, and those of which registers had to be asked;
    /// only the first is told.
    pub noticing: bool,
    /// The memory cgroup that it runs in, which goes when nobody needs it any more.
    pub group: Option<Rc<MemoryGroup>>,
    /// It cannot end by itself (it may not call exit): it is killed when the cycles are done.
    pub killed: bool,
}

impl Spec {
    /// Our program: `leader` is what the first thread does.
    pub fn ours(leader: &str, words: &[&str]) -> Spec {
        let words = std::iter::once(leader).chain(words.iter().copied());
        Spec::of(Program::Ours {
            program: None,
            words: words.map(str::to_owned).collect(),
        })
    }

    /// Another program.
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

    /// With a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Spec {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// Under a command that becomes it.
    #[must_use]
    pub fn under(mut self, words: &[&str]) -> Spec {
        self.under = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// The command that it is under already starts this one, which becomes it.
    #[must_use]
    pub fn then_under(mut self, words: &[&str]) -> Spec {
        self.under
            .extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    /// Under a command that forks it.
    #[must_use]
    pub fn forked_by(mut self, words: &[&str]) -> Spec {
        self.forked = true;
        self.under(words)
    }

    /// With mappings, threads or descriptors that come and go by its own doing.
    #[must_use]
    pub fn unsteady(mut self) -> Spec {
        self.steady = false;
        self
    }

    /// With signals of its own that end calls early.
    #[must_use]
    pub fn storm(mut self) -> Spec {
        self.storm = true;
        self
    }

    /// Something is done to it once it runs.
    #[must_use]
    pub fn then(mut self, then: fn(i32) -> Result<()>) -> Spec {
        self.then = Some(then);
        self
    }

    /// It has left the process that was started.
    #[must_use]
    pub fn says_pid(mut self) -> Spec {
        self.says_pid = true;
        self
    }

    /// A signal stops it before anybody comes, and it must stay stopped.
    #[must_use]
    pub fn stopped(mut self, then: fn(i32) -> Result<()>) -> Spec {
        self.stopped = true;
        self.then(then)
    }

    /// A thread of it notices whatever is done.
    #[must_use]
    pub fn noticing(mut self) -> Spec {
        self.noticing = true;
        self
    }

    /// It cannot end by itself.
    #[must_use]
    pub fn killed(mut self) -> Spec {
        self.killed = true;
        self
    }

    /// With one word more for our program.
    #[must_use]
    pub fn word(mut self, word: &str) -> Spec {
        if let Program::Ours { words, .. } = &mut self.program {
            words.push(word.to_owned());
        }
        self
    }

    /// In a memory cgroup of its own.
    #[must_use]
    pub fn grouped(mut self, group: MemoryGroup) -> Spec {
        self.under = group.enter();
        self.group = Some(Rc::new(group));
        self
    }

    /// Another build of our program.
    #[must_use]
    pub fn build(mut self, path: PathBuf) -> Spec {
        if let Program::Ours { program, .. } = &mut self.program {
            *program = Some(path);
        }
        self
    }

    /// The command line that starts it; `state` is its state file.
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
