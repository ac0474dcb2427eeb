//! `--process-sync`: a program that was started ends only when the other children of its parent
//! that are recorded have written their files, too. Some launchers kill all ranks when the first of
//! them ends.
//!
//! Each such process holds a shared record lock on one file until its files are written. Such a lock
//! belongs to a process, so that it is gone when the process is killed, and a forked child does not
//! have it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a process waits for its peers. One that goes on, such as the other end of a pipe, must
/// not keep it forever.
const LIMIT: Duration = Duration::from_secs(60);
/// How often it looks.
const TICK: Duration = Duration::from_millis(20);

/// This process's place among its peers. It keeps them from ending until [`Peers::wait`].
#[derive(Debug)]
pub(crate) struct Peers {
    file: File,
    path: PathBuf,
}

impl Peers {
    /// Joins the peers: those with the same parent and the same user.
    ///
    /// # Errors
    /// When there is no file for the lock, or it belongs to another user.
    pub(crate) fn join(directory: &Path) -> io::Result<Peers> {
        let parent = std::os::unix::process::parent_id();
        // SAFETY: geteuid takes no arguments and cannot fail.
        let user = unsafe { libc::geteuid() };
        Peers::at(
            directory.join(format!("midair-peers-{user}-{parent}")),
            user,
        )
    }

    fn at(path: PathBuf, user: u32) -> io::Result<Peers> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        // The directory is one to which everybody may write.
        options.mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let file = options.open(&path)?;
        let found = file.metadata()?;
        if found.uid() != user || !found.is_file() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        lock(&file, libc::F_SETLK, libc::F_RDLCK)?;
        Ok(Peers { file, path })
    }

    /// Returns when no peer records or writes any more, or at the end of the limit. Returns whether
    /// all have ended.
    pub(crate) fn wait(self) -> bool {
        self.wait_for(LIMIT)
    }

    fn wait_for(self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        drop(lock(&self.file, libc::F_SETLK, libc::F_UNLCK));
        loop {
            // A lock that others' shared locks would keep us from having.
            match lock(&self.file, libc::F_GETLK, libc::F_WRLCK) {
                Ok(found) if found != libc::F_UNLCK && Instant::now() < end => {
                    std::thread::sleep(TICK);
                }
                Ok(found) => {
                    let all = found == libc::F_UNLCK;
                    if all {
                        // Another peer may have removed it already.
                        drop(std::fs::remove_file(&self.path));
                    }
                    return all;
                }
                Err(_) => return true,
            }
        }
    }
}

/// Changes or asks for a lock on the whole file. Returns its kind, as the kernel left it.
fn lock(file: &File, command: i32, kind: i32) -> io::Result<i32> {
    // SAFETY: an all-zero flock is valid: from the start of the file to its end.
    let mut wanted: libc::flock = unsafe { std::mem::zeroed() };
    wanted.l_type = kind as libc::c_short;
    wanted.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the descriptor is open, and these commands take a flock.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut wanted) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(i32::from(wanted.l_type)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    /// A process that holds the lock until its standard input ends.
    fn peer(path: &Path) -> std::process::Child {
        let text = "import fcntl, sys\nf = open(sys.argv[1], 'r+')\n\
             fcntl.lockf(f, fcntl.LOCK_SH)\nprint('held', flush=True)\nsys.stdin.read()";
        let mut child = Command::new("python3")
            .args(["-c", text])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut word = [0; 4];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut word)
            .unwrap();
        assert_eq!(&word, b"held");
        child
    }

    #[test]
    fn a_process_waits_for_its_peers_and_not_for_one_that_goes_on() {
        // SAFETY: geteuid takes no arguments and cannot fail.
        let user = unsafe { libc::geteuid() };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("peers");
        let join = || Peers::at(path.clone(), user).unwrap();
        // Alone: nothing to wait for, and the file is removed.
        assert!(join().wait_for(Duration::from_secs(20)));
        assert!(!path.exists());
        // A peer that goes on.
        let peers = join();
        let mut other = peer(&path);
        assert!(!peers.wait_for(Duration::from_millis(1)));
        // A peer that ends meanwhile.
        let peers = join();
        let waits = std::thread::spawn(|| peers.wait_for(Duration::from_secs(20)));
        other.stdin.take().unwrap().flush().unwrap();
        other.wait().unwrap();
        assert!(waits.join().unwrap());
        // A link there is not followed.
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert!(Peers::at(path, user).is_err());
    }
}
