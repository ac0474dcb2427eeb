//! `--process-sync`: a program that was started ends only when the other children of its parent
//! that are recorded have written their files, too. Some launchers kill all ranks when the first of
//! them ends.
//!
//! The collector of each such program holds a shared record lock on one file until the files are
//! written. Such a lock belongs to a process, so that it is gone when the collector is killed.

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::unistd::geteuid;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a program waits for its peers. One that goes on, such as the other end of a pipe, must
/// not keep it forever.
const LIMIT: Duration = Duration::from_secs(60);
/// How often it looks.
const TICK: Duration = Duration::from_millis(20);

/// The program's place among its peers. It keeps them from ending until [`Peers::wait`].
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
    pub(crate) fn join(directory: &Path, parent: u32) -> io::Result<Peers> {
        let user = geteuid().as_raw();
        Peers::at(
            directory.join(format!("midair-peers-{user}-{parent}")),
            user,
        )
    }

    #[cfg_attr(
        not(test),
        expect(
            clippy::disallowed_methods,
            reason = "our own file, and no link is followed"
        )
    )]
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
        set(&file, libc::F_RDLCK)?;
        Ok(Peers { file, path })
    }

    /// Returns when no peer records or writes any more, or at the end of the limit. Returns whether
    /// all have ended.
    pub(crate) fn wait(self) -> bool {
        self.wait_for(LIMIT)
    }

    fn wait_for(self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        drop(set(&self.file, libc::F_UNLCK));
        loop {
            // A lock that others' shared locks would keep us from having.
            match in_the_way(&self.file) {
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

/// Returns a lock of this kind on the whole file.
fn whole(kind: i32) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Changes the lock of this process.
fn set(file: &File, kind: i32) -> io::Result<()> {
    fcntl(file, FcntlArg::F_SETLK(&whole(kind)))?;
    Ok(())
}

/// Returns the kind of another process's lock that is in the way of an exclusive one.
fn in_the_way(file: &File) -> io::Result<i32> {
    let mut asked = whole(libc::F_WRLCK);
    fcntl(file, FcntlArg::F_GETLK(&mut asked))?;
    Ok(i32::from(asked.l_type))
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
        let user = geteuid().as_raw();
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
