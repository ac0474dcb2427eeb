//! The machines that products are made for: this one, and those that Debian's cross compilers make.

use std::process::Command;

use crate::run::{Outcome, failed};

/// A machine, by the kernel's name.
#[derive(Debug, PartialEq, Eq)]
pub struct Machine {
    /// As `uname -m` says.
    pub name: &'static str,
    /// As cargo says.
    target: &'static str,
}

const ALL: [Machine; 2] = [
    Machine {
        name: "x86_64",
        target: "x86_64-unknown-linux-gnu",
    },
    Machine {
        name: "aarch64",
        target: "aarch64-unknown-linux-gnu",
    },
];

impl Machine {
    /// The one of this name.
    pub fn named(name: &str) -> Outcome<&'static Machine> {
        match ALL.iter().find(|machine| machine.name == name) {
            Some(machine) => Ok(machine),
            None => failed(format!("'{name}' is no machine: x86_64 or aarch64")),
        }
    }

    /// This one.
    pub fn here() -> &'static Machine {
        let here = ALL
            .iter()
            .find(|machine| machine.name == std::env::consts::ARCH);
        here.unwrap_or(&ALL[0])
    }

    /// cargo's name of it, where it is not this machine.
    pub fn cross(&self) -> Option<&'static str> {
        (self.name != std::env::consts::ARCH).then_some(self.target)
    }

    /// A program of its tool chain, as in `aarch64-linux-gnu-gcc`.
    pub fn tool(&self, tool: &str) -> String {
        match self.cross() {
            Some(_) => format!("{}-linux-gnu-{tool}", self.name),
            None => tool.to_owned(),
        }
    }

    /// Has cargo link by that tool chain.
    pub fn linker(&self, command: &mut Command) {
        let upper = self.target.to_ascii_uppercase().replace('-', "_");
        command.env(format!("CARGO_TARGET_{upper}_LINKER"), self.tool("gcc"));
    }

    /// Where Debian's cross compiler has its libraries (package `libc6-ARCH-cross`); none for this machine.
    pub fn sysroot(&self) -> Option<String> {
        self.cross()
            .map(|_| format!("/usr/{}-linux-gnu", self.name))
    }
}
