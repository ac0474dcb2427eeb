//! The process that has a disassembler: reads a question on its standard input, and writes the answer to
//! its standard output (`midair_disassemble::wire`).
//!
//!     midair-disassemble library=FILE ... objdump=PROGRAM ...
//!
//! It uses the first that works and knows the device: AMD's library, or LLVM's program. Neither is ever
//! loaded into an attacher, and neither sees more of a target than the bytes of instructions. Before they
//! see those, this process gives up its rights ([`rights`]).

mod comgr;
mod limits;
mod objdump;
mod rights;

use midair_disassemble::tools::{LIBRARY, OBJDUMP, REMEDY};
use midair_disassemble::wire::{BY, NONE, Question};
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

/// A disassembler.
trait Disassembler {
    /// Returns the text of each instruction in turn; empty where the bytes are none.
    fn texts<'s>(&'s mut self, question: &'s Question) -> Box<dyn Iterator<Item = String> + 's>;
}

fn main() -> io::Result<()> {
    limits::set()?;
    let mut answer = io::LineWriter::new(midair_secure::own_output()?);
    let mut input = io::stdin().lock();
    let Some(device) = Question::read_device(&mut input)? else {
        return Err(not_understood());
    };
    let mut last = String::new();
    for argument in std::env::args_os().skip(1) {
        let (file, opened) = match (after(&argument, LIBRARY), after(&argument, OBJDUMP)) {
            (Some(file), _) => (file, library(file, &device)),
            (None, Some(file)) => (file, program(file, &device)),
            (None, None) => continue,
        };
        match opened {
            Ok(mut disassembler) => {
                let Some(question) = Question::read(device, input)? else {
                    return Err(not_understood());
                };
                writeln!(answer, "{BY}{}", file.display())?;
                for text in disassembler.texts(&question) {
                    writeln!(answer, "{}", text.replace('\n', " ").trim())?;
                }
                return answer.flush();
            }
            // Of a disassembler that is there, but does not know the device, more is known.
            Err(Some(why)) => last = format!(" ({})", why.replace('\n', " ")),
            Err(None) => {}
        }
    }
    writeln!(
        answer,
        "{NONE}no disassembler knows {device}{last}; {REMEDY}"
    )?;
    answer.flush()
}

fn not_understood() -> io::Error {
    io::Error::other("the question is not understood")
}

type Opened = Result<Box<dyn Disassembler>, Option<String>>;

fn library(file: &OsStr, device: &str) -> Opened {
    let opened = comgr::open(file, device)?;
    rights::confine().map_err(|error| Some(format!("cannot give up rights: {error}")))?;
    Ok(opened)
}

/// No library comes behind a program, so rights are given up before the first one.
fn program(file: &OsStr, device: &str) -> Opened {
    match rights::leave() {
        Ok(true) => objdump::open(file, device),
        Ok(false) => Err(Some("cannot become another user than root".to_owned())),
        Err(error) => Err(Some(format!("cannot give up rights: {error}"))),
    }
}

fn after<'a>(argument: &'a OsString, start: &str) -> Option<&'a OsStr> {
    let rest = argument.as_bytes().strip_prefix(start.as_bytes())?;
    Some(OsStr::from_bytes(rest))
}
