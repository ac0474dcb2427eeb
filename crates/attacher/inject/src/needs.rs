//! The system calls that entering makes in the target, as data. [`crate::filters`] evaluates a
//! seccomp filter for each.

/// What a refused call means for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Without {
    /// Entering cannot work.
    Nothing,
    /// We can do without it, as long as the call only fails.
    GoesOn,
}

/// A system call that entering makes in the target.
#[derive(Debug, Clone, Copy)]
pub struct Need {
    /// Its name.
    pub name: &'static str,
    /// Its number.
    pub number: i64,
    /// The arguments that a filter may well check. The others are 0.
    pub args: [u64; 6],
    /// What it means if the call is refused.
    pub without: Without,
}

pub(crate) const fn must(name: &'static str, number: i64, args: [u64; 6]) -> Need {
    Need {
        name,
        number,
        args,
        without: Without::Nothing,
    }
}

pub(crate) const fn may(name: &'static str, number: i64, args: [u64; 6]) -> Need {
    Need {
        name,
        number,
        args,
        without: Without::GoesOn,
    }
}
