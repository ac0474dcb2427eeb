//! The parser of `/proc/TID/syscall`, which shows the system call that a thread sleeps in.

use crate::hex;

/// What a thread is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// It runs, or ran at the moment of the question.
    Running,
    /// It is blocked, but in no system call (a page fault, an exception, a stop).
    Blocked {
        /// Stack pointer.
        sp: u64,
        /// Address of the next instruction.
        pc: u64,
    },
    /// It is blocked in a system call.
    Syscall(Blocking),
}

/// A blocking system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocking {
    /// Number of the call.
    pub number: u64,
    /// Its arguments.
    pub args: [u64; 6],
    /// Stack pointer.
    pub sp: u64,
    /// Address after the instruction that made the call.
    pub pc: u64,
}

/// Parses the line.
pub fn parse(text: &[u8]) -> Option<Activity> {
    let text = text.trim_ascii();
    if text == b"running" {
        return Some(Activity::Running);
    }
    let words: Vec<&[u8]> = text
        .split(|&byte| byte == b' ')
        .filter(|word| !word.is_empty())
        .collect();
    match words.as_slice() {
        [b"-1", sp, pc] => Some(Activity::Blocked {
            sp: hex(sp)?,
            pc: hex(pc)?,
        }),
        [number, args @ .., sp, pc] if args.len() == 6 => {
            let mut values = [0; 6];
            for (value, word) in values.iter_mut().zip(args) {
                *value = hex(word)?;
            }
            Some(Activity::Syscall(Blocking {
                number: crate::decimal(number)?,
                args: values,
                sp: hex(sp)?,
                pc: hex(pc)?,
            }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_forms() {
        assert_eq!(parse(b"running\n"), Some(Activity::Running));
        assert_eq!(
            parse(b"-1 0x7ffe 0x40\n"),
            Some(Activity::Blocked {
                sp: 0x7ffe,
                pc: 0x40
            })
        );
        let Some(Activity::Syscall(got)) =
            parse(b"202 0x1 0x2 0x3 0x4 0x5 0xffffffffffffffff 0x7f00 0x7f01\n")
        else {
            panic!("not a system call");
        };
        assert_eq!(
            (got.number, got.args[0], got.args[5], got.sp, got.pc),
            (202, 1, u64::MAX, 0x7f00, 0x7f01)
        );
    }

    #[test]
    fn nonsense() {
        for bad in [
            &b""[..],
            b"202",
            b"-1 0x1",
            b"202 0x1 0x2 0x3 0x4 0x5 0x7f00 0x7f01",
            b"x 0 0 0 0 0 0 0 0",
        ] {
            assert_eq!(parse(bad), None);
        }
    }
}
