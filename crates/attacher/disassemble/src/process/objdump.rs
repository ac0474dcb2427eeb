//! LLVM's program. It reads a file that is made here, with each instruction in a place of its own, so
//! that it never sees a file of a target's.

use crate::Disassembler;
use midair_disassemble::wire::Question;
use midair_secure::filter::Filter;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// The bytes from one instruction to the next. An instruction and what is behind it takes a half, and
/// `s_nop 0`, which all devices have, fills the rest: the program is in step again at the next.
const STEP: usize = 64;
const NOP: [u8; 4] = 0xbf80_0000_u32.to_le_bytes();
/// Where the code is in the file: behind the header.
const CODE: usize = 64;
/// Sections of the file: none, the code, and names.
const NAMES: &[u8] = b"\0.text\0.shstrtab\0";
/// Source: llvm/BinaryFormat/ELF.h.
const EM_AMDGPU: u16 = 224;

/// The program for a device.
struct Objdump {
    program: OsString,
    device: String,
    running: Option<Child>,
}

/// Tries whether the program knows the device.
///
/// # Errors
/// Why it cannot be used, if it is there.
pub(crate) fn open(program: &OsStr, device: &str) -> Result<Box<dyn Disassembler>, Option<String>> {
    let empty = file(&Question::default()).map_err(|error| Some(error.to_string()))?;
    let tried = command(program, device, &empty)
        .stderr(Stdio::piped())
        .output();
    let tried = tried.map_err(|_| None)?;
    let said = String::from_utf8_lossy(&tried.stderr);
    // A program that does not know a device warns, and goes on with another one.
    if !tried.status.success() || said.contains("not a recognized") {
        return Err(Some(format!("{} does not know it", program.display())));
    }
    Ok(Box::new(Objdump {
        program: program.to_owned(),
        device: device.to_owned(),
        running: None,
    }))
}

impl Objdump {
    /// Starts the program. Returns its output.
    fn start(&mut self, question: &Question) -> io::Result<impl Iterator<Item = String> + use<>> {
        let whole = file(question)?;
        let mut child = command(&self.program, &self.device, &whole)
            .stdout(Stdio::piped())
            .spawn()?;
        let out = child.stdout.take();
        self.running = Some(child);
        let lines = out.map(|out| BufReader::new(out).lines());
        Ok(lines.into_iter().flatten().map_while(Result::ok))
    }
}

fn command(program: &OsStr, device: &str, file: &File) -> Command {
    let mut command = Command::new(program);
    command
        .args(["-dz", "--triple=amdgcn-amd-amdhsa"])
        .arg(format!("--mcpu={device}"))
        .arg(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let filter = Filter::for_program();
    let end = move || {
        // SAFETY: the call takes no pointers, and may be made between fork and exec.
        match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } {
            0 => filter.install(),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: the function makes two system calls.
    unsafe { command.pre_exec(end) };
    command
}

/// Makes a file with the instructions, in memory.
fn file(question: &Question) -> io::Result<File> {
    // The program inherits the descriptor, so it is not closed at its start.
    // SAFETY: the name ends with a zero byte.
    let memory = unsafe { libc::memfd_create(c"midair-code".as_ptr(), 0) };
    if memory < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open, and nothing else owns it.
    let mut file = unsafe { File::from_raw_fd(memory) };
    file.write_all(&image(question))?;
    Ok(file)
}

fn image(question: &Question) -> Vec<u8> {
    let mut image = vec![0; CODE];
    for instruction in &question.instructions {
        let start = image.len();
        image.extend(instruction.iter().take(STEP / 2 / 4 * 4));
        image.truncate(start + (image.len() - start) / 4 * 4);
        while image.len() < start + STEP {
            image.extend(NOP);
        }
    }
    let names_at = image.len();
    image.extend(NAMES);
    image.resize(image.len().next_multiple_of(8), 0);
    let sections_at = image.len();
    // Name, kind, flags, offset, size.
    let code = names_at - CODE;
    for (name, kind, flags, at, size) in [
        (0_u32, 0_u32, 0_u64, 0, 0),
        (1, 1, 6, CODE, code),
        (7, 3, 0, names_at, NAMES.len()),
    ] {
        image.extend(name.to_le_bytes());
        image.extend(kind.to_le_bytes());
        image.extend(flags.to_le_bytes());
        // The address in memory is the offset behind the header.
        for word in [0, at as u64, size as u64, 0, 4, 0] {
            image.extend(u64::to_le_bytes(word));
        }
    }
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(place) = image.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    };
    put(0, b"\x7fELF\x02\x01\x01\x40\x02");
    put(16, &3_u16.to_le_bytes());
    put(18, &EM_AMDGPU.to_le_bytes());
    put(20, &1_u32.to_le_bytes());
    put(40, &(sections_at as u64).to_le_bytes());
    for (at, value) in [(52, 64_u16), (58, 64), (60, 3), (62, 2)] {
        put(at, &value.to_le_bytes());
    }
    image
}

impl Disassembler for Objdump {
    fn texts<'s>(&'s mut self, question: &'s Question) -> Box<dyn Iterator<Item = String> + 's> {
        let mut number = 0;
        let lines = self.start(question).into_iter().flatten();
        let all = lines.filter_map(move |line| {
            let (text, address) = instruction(&line)?;
            if address < number * STEP as u64 {
                return None;
            }
            // Those that are missing are empty.
            let missing = (address / STEP as u64).checked_sub(number)?;
            number += missing + 1;
            let is_first = address.is_multiple_of(STEP as u64);
            let text = if is_first { text } else { String::new() };
            Some(std::iter::repeat_n(String::new(), missing as usize).chain([text]))
        });
        Box::new(all.flatten().take(question.instructions.len()))
    }
}

impl Drop for Objdump {
    fn drop(&mut self) {
        if let Some(child) = &mut self.running {
            // Errors do not matter: it has ended, or is ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Reads a line of the program's: `\ts_waitcnt lgkmcnt(0)   // 000000001E10: BF8CC07F`.
fn instruction(line: &str) -> Option<(String, u64)> {
    let (text, place) = line.split_once("//")?;
    let (address, _) = place.trim_start().split_once(':')?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let text = text.trim();
    let is_none = text.starts_with(".long") || text.starts_with("<unknown>");
    Some((if is_none { "" } else { text }.to_owned(), address))
}
