//! An interpreter of classic BPF as seccomp uses it. It runs a filter here to find out how the
//! filter answers a system call.
//!
//! Programs come from another process, so nothing in them is trusted. Jumps lead only forward, so
//! every run ends (source: Documentation/userspace-api/seccomp_filter, net/core/filter.c,
//! kernel/seccomp.c).

/// One instruction (`struct sock_filter`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// The number of instructions to skip where the condition holds.
    pub jump_true: u8,
    /// The number to skip where it does not hold.
    pub jump_false: u8,
    /// Operand.
    pub k: u32,
}

impl Instruction {
    /// Decodes the kernel's eight bytes.
    pub fn parse(bytes: [u8; 8]) -> Instruction {
        let [code_low, code_high, jump_true, jump_false, a, b, c, d] = bytes;
        Instruction {
            code: u16::from_le_bytes([code_low, code_high]),
            jump_true,
            jump_false,
            k: u32::from_le_bytes([a, b, c, d]),
        }
    }
}

/// What a filter sees of a system call (`struct seccomp_data`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Number.
    pub number: u32,
    /// `AUDIT_ARCH_*`.
    pub arch: u32,
    /// Address of the next instruction.
    pub pc: u64,
    /// Arguments.
    pub args: [u64; 6],
}

impl Call {
    /// Returns the 32-bit word at an offset. None if the offset lies outside or is not aligned.
    fn word(&self, offset: u32) -> Option<u32> {
        let half = |value: u64, high: bool| (if high { value >> 32 } else { value }) as u32;
        if !offset.is_multiple_of(4) {
            return None;
        }
        match offset / 4 {
            0 => Some(self.number),
            1 => Some(self.arch),
            at @ 2..=3 => Some(half(self.pc, at == 3)),
            at @ 4..=15 => {
                let arg = self.args.get((at as usize - 4) / 2)?;
                Some(half(*arg, at % 2 == 1))
            }
            _ => None,
        }
    }
}

/// The number of bytes that a filter sees.
const DATA_BYTES: u32 = 64;

/// Returns what the filter returns. None for a program that the kernel would not have accepted.
pub fn run(program: &[Instruction], call: &Call) -> Option<u32> {
    let (mut a, mut x) = (0_u32, 0_u32);
    let mut memory = [0_u32; 16];
    let mut at = 0_usize;
    loop {
        let one = program.get(at)?;
        at = at.checked_add(1)?;
        let class = one.code & 0x07;
        match class {
            // LD, LDX
            0x00 | 0x01 => {
                let value = match one.code & 0xe0 {
                    0x00 => one.k,
                    0x20 if class == 0 => call.word(one.k)?,
                    0x60 => *memory.get(one.k as usize)?,
                    0x80 => DATA_BYTES,
                    _ => return None,
                };
                if class == 0 {
                    a = value;
                } else {
                    x = value;
                }
            }
            // ST, STX
            0x02 => *memory.get_mut(one.k as usize)? = a,
            0x03 => *memory.get_mut(one.k as usize)? = x,
            0x04 => {
                let operand = if one.code & 0x08 == 0 { one.k } else { x };
                a = match one.code & 0xf0 {
                    0x00 => a.wrapping_add(operand),
                    0x10 => a.wrapping_sub(operand),
                    0x20 => a.wrapping_mul(operand),
                    // The kernel ends the program with the result 0 here, which is the action to
                    // kill.
                    0x30 => match a.checked_div(operand) {
                        Some(quotient) => quotient,
                        None => return Some(0),
                    },
                    0x40 => a | operand,
                    0x50 => a & operand,
                    0x60 => a.wrapping_shl(operand),
                    0x70 => a.wrapping_shr(operand),
                    0x80 => a.wrapping_neg(),
                    0xa0 => a ^ operand,
                    _ => return None,
                };
            }
            0x05 => {
                let operand = if one.code & 0x08 == 0 { one.k } else { x };
                let holds = match one.code & 0xf0 {
                    0x00 => {
                        at = at.checked_add(one.k as usize)?;
                        continue;
                    }
                    0x10 => a == operand,
                    0x20 => a > operand,
                    0x30 => a >= operand,
                    0x40 => a & operand != 0,
                    _ => return None,
                };
                let over = if holds { one.jump_true } else { one.jump_false };
                at = at.checked_add(usize::from(over))?;
            }
            0x06 => {
                return match one.code & 0x18 {
                    0x00 => Some(one.k),
                    0x08 => Some(x),
                    0x10 => Some(a),
                    _ => None,
                };
            }
            // MISC: TAX, TXA
            _ => match one.code & 0xf8 {
                0x00 => x = a,
                0x80 => a = x,
                _ => return None,
            },
        }
    }
}

/// What happens to a system call. As the kernel ranks them, the mildest is last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The process is killed.
    KillProcess,
    /// The thread is killed.
    KillThread,
    /// The thread gets SIGSYS.
    Trap,
    /// The call is not made and fails with this errno.
    Errno(u16),
    /// Another process decides.
    Notify,
    /// A tracer decides. Without a tracer the call fails with ENOSYS.
    Trace,
    /// The call is made and logged.
    Log,
    /// The call is made.
    Allow,
}

impl Action {
    /// Decodes a filter's result (`SECCOMP_RET_*`). An unknown action kills the process.
    pub fn of(result: u32) -> Action {
        match result & 0xffff_0000 {
            0x0000_0000 => Action::KillThread,
            0x0003_0000 => Action::Trap,
            // Values above MAX_ERRNO are cut off.
            0x0005_0000 => Action::Errno((result as u16).min(4095)),
            0x7fc0_0000 => Action::Notify,
            0x7ff0_0000 => Action::Trace,
            0x7ffc_0000 => Action::Log,
            0x7fff_0000 => Action::Allow,
            _ => Action::KillProcess,
        }
    }

    fn rank(self) -> u8 {
        match self {
            Action::KillProcess => 0,
            Action::KillThread => 1,
            Action::Trap => 2,
            Action::Errno(_) => 3,
            Action::Notify => 4,
            Action::Trace => 5,
            Action::Log => 6,
            Action::Allow => 7,
        }
    }

    /// Whether the call is made.
    pub fn lets_pass(self) -> bool {
        matches!(self, Action::Log | Action::Allow)
    }
}

/// Returns what all filters of a thread together do with a call. The strictest action counts, and
/// among equal ones the action of the filter that was installed last. `filters` starts with the one
/// installed last, as the kernel lists them. A program that makes no sense kills the process.
pub fn decide(filters: &[Vec<Instruction>], call: &Call) -> Action {
    let mut strictest = Action::Allow;
    for filter in filters {
        let action = run(filter, call).map_or(Action::KillProcess, Action::of);
        if action.rank() < strictest.rank() {
            strictest = action;
        }
    }
    strictest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(code: u16, jump_true: u8, jump_false: u8, k: u32) -> Instruction {
        Instruction {
            code,
            jump_true,
            jump_false,
            k,
        }
    }

    fn call(number: u32, args: [u64; 6]) -> Call {
        Call {
            number,
            arch: 0xc000_003e,
            pc: 0x7f00_0000_1000,
            args,
        }
    }

    /// ld [0]; jeq NUMBER, 0, 1; ret ACTION; ret ALLOW
    fn on(number: u32, action: u32) -> Vec<Instruction> {
        vec![
            one(0x20, 0, 0, 0),
            one(0x15, 0, 1, number),
            one(0x06, 0, 0, action),
            one(0x06, 0, 0, 0x7fff_0000),
        ]
    }

    #[test]
    fn one_call_is_refused() {
        let filters = [on(319, 0x0005_0001)];
        assert_eq!(decide(&filters, &call(319, [0; 6])), Action::Errno(1));
        assert_eq!(decide(&filters, &call(9, [0; 6])), Action::Allow);
    }

    #[test]
    fn the_strictest_counts() {
        let filters = [on(9, 0x7ffc_0000), on(9, 0x8000_0000), on(9, 0x0005_0001)];
        assert_eq!(decide(&filters, &call(9, [0; 6])), Action::KillProcess);
        let filters = [on(9, 0x0005_0002), on(9, 0x0005_0001)];
        assert_eq!(decide(&filters, &call(9, [0; 6])), Action::Errno(2));
    }

    #[test]
    fn arguments_and_arithmetic() {
        // mprotect with PROT_EXEC: ld args[2]; jset 4, 0, 1; ret KILL; ret ALLOW
        let filter = vec![
            one(0x20, 0, 0, 32),
            one(0x45, 0, 1, 4),
            one(0x06, 0, 0, 0),
            one(0x06, 0, 0, 0x7fff_0000),
        ];
        let with = |protection| {
            decide(
                std::slice::from_ref(&filter),
                &call(10, [0, 0, protection, 0, 0, 0]),
            )
        };
        assert_eq!(with(5), Action::KillThread);
        assert_eq!(with(3), Action::Allow);
        // The program passes the high half of an argument through memory, X and every operation,
        // and returns ((high + 2) * 3 - 1) ^ 0xff.
        let filter = [
            one(0x20, 0, 0, 20),
            one(0x02, 0, 0, 3),
            one(0x60, 0, 0, 3),
            one(0x04, 0, 0, 2),
            one(0x24, 0, 0, 3),
            one(0x07, 0, 0, 0),
            one(0x00, 0, 0, 1),
            one(0x02, 0, 0, 0),
            one(0x87, 0, 0, 0),
            one(0x14, 0, 0, 1),
            one(0xa4, 0, 0, 0xff),
            one(0x16, 0, 0, 0),
        ];
        assert_eq!(
            run(&filter, &call(0, [5 << 32, 0, 0, 0, 0, 0])),
            Some(20 ^ 0xff)
        );
    }

    #[test]
    fn nonsense_ends() {
        let data = call(0, [0; 6]);
        // Invalid programs: no end, a jump too far, bad offsets, bad memory, bad operations,
        // division by zero.
        for program in [
            vec![],
            vec![one(0x00, 0, 0, 1)],
            vec![one(0x05, 0, 0, u32::MAX)],
            vec![one(0x20, 0, 0, 64)],
            vec![one(0x20, 0, 0, 2)],
            vec![one(0x60, 0, 0, 16)],
            vec![one(0x40, 0, 0, 0)],
            vec![one(0xf4, 0, 0, 0)],
        ] {
            assert_eq!(run(&program, &data), None, "{program:?}");
            assert_eq!(decide(&[program], &data), Action::KillProcess);
        }
        assert_eq!(run(&[one(0x3c, 0, 0, 0)], &data), Some(0));
    }
}
