//! Enters the root of a target, and executes this program again there.
//!
//! Nothing in that root is believed: its loader and its libraries run with less than the target's own
//! rights.
//!
//! * The process sees a copy of the target's mounts in which no file can be written, no device
//!   opened, and no set-user-id bit counts. (The target's cgroup may refuse it devices, and this
//!   process is not in that cgroup.)
//! * It has the real user and groups of the target, no capability, and gains none by executing a
//!   program.
//! * It has a user namespace of its own, so it may trace no other process. Else `/proc/PID/root` of any
//!   process of that user would lead out of the copy, to mounts with devices.
//! * It can make few system calls ([`midair_secure::filter`]), so neither signals, other processes, sockets nor
//!   networks can be reached, and it does not matter in which namespaces it is otherwise.
//! * It has three descriptors: the questions, the answers, and a pipe for messages.
//! * Its memory and time are limited, the kernel ends it first if memory runs out, and it ends with the
//!   attacher.

use midair_aqlprofile::{NAME, descriptors};
use midair_secure::filter::Filter;
use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

/// The number of the program's descriptor when it is executed.
const PROGRAM: RawFd = 3;
/// The limits on address space in bytes, processor time in seconds, descriptors, and dumps. The kernel
/// starts no program for the dump of a process whose limit is 1; with 0 it does
/// (linux, fs/coredump.c).
const LIMITS: [(libc::__rlimit_resource_t, u64); 4] = [
    (libc::RLIMIT_AS, 1 << 30),
    (libc::RLIMIT_CPU, 60),
    (libc::RLIMIT_NOFILE, 64),
    (libc::RLIMIT_CORE, 1),
];

/// Arguments of `open_tree` and `mount_setattr` (linux/mount.h, linux/fcntl.h).
const OPEN_TREE_CLONE: libc::c_uint = 1;
const AT_RECURSIVE: libc::c_uint = 0x8000;
const MOUNT_ATTR_RDONLY: u64 = 1;
const MOUNT_ATTR_NOSUID: u64 = 2;
const MOUNT_ATTR_NODEV: u64 = 4;
/// A change of the user keeps capabilities (linux/securebits.h).
const NO_SETUID_FIXUP: libc::c_ulong = 1 << 2;

/// `struct mount_attr` (linux/mount.h).
#[repr(C)]
struct Attributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Enters the root and executes the program there. Returns only where that fails: why.
pub fn enter(arguments: &[OsString]) -> String {
    let done = Target::read(arguments).and_then(|target| target.enter());
    done.err().unwrap_or_default()
}

/// Returns an error of the kernel's with the name of what was tried.
fn failed(what: &'static str) -> impl FnOnce(io::Error) -> String {
    move |error| format!("{what}: {error}")
}

fn checked(result: impl Into<i64>) -> io::Result<i64> {
    match result.into() {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

struct Target<'a> {
    user: u32,
    group: u32,
    groups: Vec<u32>,
    search: &'a OsStr,
    libraries: &'a [OsString],
}

impl<'a> Target<'a> {
    fn read(arguments: &'a [OsString]) -> Result<Target<'a>, String> {
        let read = || {
            let [user, group, groups, search, libraries @ ..] = arguments else {
                return None;
            };
            let groups = groups
                .to_str()?
                .split(',')
                .filter(|group| !group.is_empty());
            Some(Target {
                user: user.to_str()?.parse().ok()?,
                group: group.to_str()?.parse().ok()?,
                groups: groups.map(str::parse).collect::<Result<_, _>>().ok()?,
                search,
                libraries,
            })
        };
        read().ok_or_else(|| "wrong arguments".to_owned())
    }

    fn enter(&self) -> Result<(), String> {
        // SAFETY: takes nothing.
        let parent = unsafe { libc::getppid() };
        let stdin = io::stdin();
        let received = descriptors::receive(stdin.as_fd());
        let [root, mounts, program] = received.map_err(failed("no descriptors"))?;
        // The attacher may have a value that protects it, which this process inherits. An error does not
        // matter.
        let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
        let tree = copy_mounts(root, mounts)?;
        self.take_identity()?;
        change_root(tree).map_err(failed("cannot change the root (chroot)"))?;
        keep_only(program).map_err(failed("descriptors"))?;
        drop_rights()?;
        // SAFETY: these take numbers.
        let bound = unsafe {
            checked(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL)).map(|_| libc::getppid())
        };
        if bound.map_err(failed("prctl"))? != parent {
            return Err("the attacher has ended".to_owned());
        }
        let filter = Filter::for_descriptor(PROGRAM);
        filter
            .install()
            .map_err(failed("cannot filter system calls"))?;
        Err(failed("cannot execute midair's helper there")(
            self.execute(),
        ))
    }

    /// Takes the target's real user and groups, and then a user namespace in which they have no numbers.
    /// The capabilities of this process are of that namespace from then on.
    fn take_identity(&self) -> Result<(), String> {
        let (user, group) = (self.user, self.group);
        // SAFETY: a live slice with its length; the others take numbers. There is no other thread.
        let changed = unsafe {
            // Some systems refuse the namespace to a process without a capability.
            checked(libc::prctl(libc::PR_SET_SECUREBITS, NO_SETUID_FIXUP))
                .and_then(|_| {
                    checked(libc::setgroups(
                        self.groups.len() as _,
                        self.groups.as_ptr(),
                    ))
                })
                .and_then(|_| checked(libc::setresgid(group, group, group)))
                .and_then(|_| checked(libc::setresuid(user, user, user)))
        };
        changed.map_err(failed("cannot take the user and groups of the process"))?;
        // SAFETY: takes a number.
        checked(unsafe { libc::unshare(libc::CLONE_NEWUSER) })
            .map_err(failed("cannot make a user namespace (unshare)"))?;
        Ok(())
    }

    /// Executes the program, whose loader is found in the root that was entered. Returns the error.
    fn execute(&self) -> io::Error {
        let text = |text: &OsStr| CString::new(text.as_bytes()).unwrap_or_default();
        let arguments: Vec<CString> = [OsStr::new(NAME)]
            .into_iter()
            .chain(self.libraries.iter().map(OsString::as_os_str))
            .map(text)
            .collect();
        let search = match self.search.is_empty() {
            true => None,
            false => {
                let mut variable = OsString::from("LD_LIBRARY_PATH=");
                variable.push(self.search);
                Some(text(&variable))
            }
        };
        let pointers = |texts: &[CString]| -> Vec<*const c_char> {
            let pointers = texts.iter().map(|text| text.as_ptr());
            pointers.chain([std::ptr::null()]).collect()
        };
        let (arguments, environment) = (pointers(&arguments), pointers(search.as_slice()));
        // SAFETY: the texts and both lists of pointers to them, which end with null, outlive the call.
        unsafe {
            libc::syscall(
                libc::SYS_execveat,
                PROGRAM,
                c"".as_ptr(),
                arguments.as_ptr(),
                environment.as_ptr(),
                libc::AT_EMPTY_PATH,
            );
        }
        io::Error::last_os_error()
    }
}

/// Limits what this process may use, and drops every capability for good.
fn drop_rights() -> Result<(), String> {
    for (which, most) in LIMITS {
        let limit = libc::rlimit {
            rlim_cur: most,
            rlim_max: most,
        };
        // SAFETY: a live structure.
        checked(unsafe { libc::setrlimit(which, &raw const limit) })
            .map_err(failed("setrlimit"))?;
    }
    for capability in 0..64 {
        // SAFETY: takes numbers.
        match checked(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) }) {
            Ok(_) => {}
            // The kernel knows no more of them.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
            Err(error) => return Err(failed("cannot drop capabilities")(error)),
        }
    }
    midair_secure::drop_all().map_err(failed("cannot drop capabilities"))?;
    // SAFETY: takes numbers.
    checked(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })
        .map_err(failed("no_new_privs"))?;
    Ok(())
}

/// Copies the mounts below the target's root. Nothing can be written in the copy, and no device opened.
fn copy_mounts(root: OwnedFd, mounts: OwnedFd) -> Result<OwnedFd, String> {
    const EMPTY: &CStr = c"";
    // SAFETY: takes numbers. There is no other thread.
    checked(unsafe { libc::setns(mounts.as_raw_fd(), libc::CLONE_NEWNS) })
        .map_err(failed("cannot join its mounts (setns)"))?;
    let flags =
        OPEN_TREE_CLONE | libc::O_CLOEXEC as u32 | AT_RECURSIVE | libc::AT_EMPTY_PATH as u32;
    // SAFETY: a live descriptor and an empty text.
    let tree = checked(unsafe {
        libc::syscall(libc::SYS_open_tree, root.as_raw_fd(), EMPTY.as_ptr(), flags)
    });
    let tree = tree.map_err(failed("cannot copy its mounts (open_tree)"))?;
    // SAFETY: the kernel has just made the descriptor, and nothing else owns it.
    let tree = unsafe { OwnedFd::from_raw_fd(tree as RawFd) };
    let attributes = Attributes {
        set: MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
        clear: 0,
        // What the target mounts later does not come here: it would lack these attributes.
        propagation: libc::MS_PRIVATE,
        user_namespace: 0,
    };
    // SAFETY: a live descriptor, an empty text, and a structure with its size.
    let set = checked(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            EMPTY.as_ptr(),
            AT_RECURSIVE | libc::AT_EMPTY_PATH as u32,
            &raw const attributes,
            size_of::<Attributes>(),
        )
    });
    set.map_err(failed("cannot make the copy read-only (mount_setattr)"))?;
    Ok(tree)
}

/// Makes a directory the root of this process. A process that has another root than its mounts may make
/// no user namespace, so this comes after that.
fn change_root(tree: OwnedFd) -> io::Result<()> {
    // SAFETY: a live descriptor, and texts.
    unsafe {
        checked(libc::fchdir(tree.as_raw_fd()))
            .and_then(|_| checked(libc::chroot(c".".as_ptr())))
            .and_then(|_| checked(libc::chdir(c"/".as_ptr())))?;
    }
    Ok(())
}

/// Closes all descriptors but the first three and the program, which becomes [`PROGRAM`].
fn keep_only(program: OwnedFd) -> io::Result<()> {
    let program = program.into_raw_fd();
    // SAFETY: takes numbers. No value owns one of the descriptors that are replaced or closed.
    unsafe {
        if program != PROGRAM {
            checked(libc::dup3(program, PROGRAM, libc::O_CLOEXEC))?;
        }
        checked(libc::syscall(
            libc::SYS_close_range,
            PROGRAM as c_int + 1,
            u32::MAX,
            0,
        ))?;
    }
    Ok(())
}
