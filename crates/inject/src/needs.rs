//! System calls that entering makes in the target, as data: [`crate::filters`] asks a seccomp
//! filter about each.

/// What a refused call means for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Without {
    /// Nothing works.
    Nothing,
    /// We go on without, as long as it only fails.
    GoesOn,
}

/// A system call that our way makes in the target.
#[derive(Debug, Clone, Copy)]
pub struct Need {
    /// Its name.
    pub name: &'static str,
    /// Its number.
    pub number: i64,
    /// Arguments that a filter may well look at; others are 0.
    pub args: [u64; 6],
    /// What if it is refused.
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
