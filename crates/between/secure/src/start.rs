//! What a midair program does with the rights that its file adds to its user's, at its very start.
//!
//! File capabilities are for one thing: reading and tracing other processes. A command that does
//! not do that drops them for good, before it reads anything, so no code behind can use them, and
//! neither can a program that it starts. In a command that does, none is effective at rest: they
//! can be made effective for one system call, by `midair_ptrace` alone.
//!
//! A program that runs as another user or group than the one who started it (a set-uid or set-gid
//! bit) does nothing at all.
//!
//! Decisions: ENG-055, ENG-056 (`docs/deviations/engine.md`).

use std::fmt;
use std::io;
use std::sync::OnceLock;

/// What a command is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// It reads or enters other processes.
    Attaches,
    /// It does not.
    Other,
}

/// Why a program does not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// Its user or group is not the one who started it.
    SetId,
    /// The kernel did not take the rights away; its error.
    Kept(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::SetId => f.write_str(
                "this program runs as another user or group than the one who started it (set-uid, set-gid)",
            ),
            Refused::Kept(error) => write!(
                f,
                "cannot drop the privileges that this program's file adds: {error}"
            ),
        }
    }
}

impl std::error::Error for Refused {}

impl Refused {
    /// Returns what to do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            Refused::SetId => {
                "remove the bits (chmod ug-s FILE); to allow a group to attach, use setcap cap_sys_ptrace,cap_dac_read_search+ep FILE"
            }
            Refused::Kept(_) => "remove the file capabilities (setcap -r FILE)",
        }
    }
}

/// The capabilities that this program's file adds, 0 to 31 and 32 to 63, while they are held.
static HELD: OnceLock<[u32; 2]> = OnceLock::new();

/// Returns the capabilities that may be made effective for a system call: those that the program's
/// file adds, in a command that attaches. None where there are none to hold: the process then has
/// its user's rights, and they are always effective.
pub fn held() -> Option<[u32; 2]> {
    HELD.get().copied()
}

/// Gives up what starting this program added to its user's rights, or in a command that attaches
/// holds it. Call it first of all, before there is a second thread. Real root has nothing added.
///
/// # Errors
/// When the program must not run. Its user's ids are in force then, and as far as the kernel allows
/// it, no capability.
pub fn begin(command: Command) -> Result<(), Refused> {
    if !crate::has_more_rights() {
        return Ok(());
    }
    let ids = Ids::own();
    if ids.are_mixed() {
        let kept = ids.restore_real().and_then(|()| drop_all());
        return Err(kept.map_or_else(
            |error| Refused::Kept(error.to_string()),
            |()| Refused::SetId,
        ));
    }
    if ids.user[0] == 0 {
        return Ok(());
    }
    let kept = |error: io::Error| Refused::Kept(error.to_string());
    match command {
        Command::Other => drop_all().map_err(kept),
        Command::Attaches => hold().map_err(kept),
    }
}

/// Real, effective and saved ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ids {
    user: [u32; 3],
    group: [u32; 3],
}

impl Ids {
    fn own() -> Ids {
        let mut ids = Ids {
            user: [u32::MAX; 3],
            group: [u32::MAX; 3],
        };
        let [real, effective, saved] = &mut ids.user;
        // SAFETY: three live integers, which the call fills.
        unsafe { libc::getresuid(real, effective, saved) };
        let [real, effective, saved] = &mut ids.group;
        // SAFETY: as above.
        unsafe { libc::getresgid(real, effective, saved) };
        ids
    }

    fn are_mixed(self) -> bool {
        let mixed = |[real, effective, saved]: [u32; 3]| real != effective || real != saved;
        mixed(self.user) || mixed(self.group)
    }

    /// Makes the real ids the only ones. The group comes first, since the user may lose the right
    /// to change it.
    fn restore_real(self) -> io::Result<()> {
        let ([user, ..], [group, ..]) = (self.user, self.group);
        // SAFETY: both take numbers.
        let done = unsafe {
            libc::setresgid(group, group, group) == 0 && libc::setresuid(user, user, user) == 0
        };
        match done && !Ids::own().are_mixed() {
            true => Ok(()),
            false => Err(io::Error::last_os_error()),
        }
    }
}

/// `struct __user_cap_header_struct` (linux/capability.h, version 3).
#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

/// One of the two halves of a thread's capabilities (`struct __user_cap_data_struct`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Half {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

impl Header {
    /// For the calling thread.
    const OWN: Header = Header {
        version: 0x2008_0522,
        pid: 0,
    };
}

fn capabilities() -> io::Result<[Half; 2]> {
    let header = Header::OWN;
    let mut halves = [Half::default(); 2];
    // SAFETY: a live header of version 3, and space for the two halves that this version has.
    match unsafe { libc::syscall(libc::SYS_capget, &raw const header, halves.as_mut_ptr()) } {
        0 => Ok(halves),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets the calling thread's capabilities, and makes sure that they are as wanted.
fn set(wanted: [Half; 2]) -> io::Result<()> {
    let header = Header::OWN;
    // The kernel also takes an ambient capability away that is no longer inheritable.
    // SAFETY: a live header of version 3, and the two halves that this version has.
    match unsafe { libc::syscall(libc::SYS_capset, &raw const header, wanted.as_ptr()) } {
        0 if capabilities()? == wanted => Ok(()),
        0 => Err(io::ErrorKind::PermissionDenied.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Drops every capability of the calling thread for good.
///
/// # Errors
/// The kernel's.
pub fn drop_all() -> io::Result<()> {
    set([Half::default(); 2])
}

/// Makes no capability effective, or inherited by a program that is started.
fn hold() -> io::Result<()> {
    let permitted = capabilities()?.map(|half| half.permitted);
    set(permitted.map(|permitted| Half {
        permitted,
        ..Half::default()
    }))?;
    HELD.get_or_init(|| permitted);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_process_keeps_what_is_its_own() {
        let (ids, before) = (Ids::own(), capabilities().unwrap());
        assert!(!ids.are_mixed());
        for command in [Command::Attaches, Command::Other] {
            begin(command).unwrap();
        }
        assert_eq!(held(), None);
        assert_eq!((Ids::own(), capabilities().unwrap()), (ids, before));
    }

    #[test]
    fn any_second_id_is_one_too_many() {
        let ids = |user, group| Ids { user, group }.are_mixed();
        assert!(!ids([7; 3], [9; 3]));
        for mixed in [[7, 0, 0], [7, 0, 7], [7, 7, 0]] {
            assert!(ids(mixed, [9; 3]) && ids([9; 3], mixed), "{mixed:?}");
        }
    }

    /// In a thread of its own, since capabilities are a thread's.
    #[test]
    fn nothing_is_left_of_what_is_dropped() {
        let left = std::thread::spawn(|| {
            drop_all()?;
            let left = capabilities()?;
            // What is dropped cannot be taken again.
            let again = [Half {
                effective: 1 << 1,
                permitted: 1 << 1,
                inheritable: 0,
            }; 2];
            io::Result::Ok((left, set(again).is_err()))
        });
        let left = left.join().unwrap().unwrap();
        assert_eq!(left, ([Half::default(); 2], true));
    }
}
