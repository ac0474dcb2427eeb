//! A terminal without UTF-8 and without colours, emulated by tmux.

use midair_tests::Result;
use midair_tests::target::{PATIENCE, run, until};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The terminal. It ends with this value, and with it what runs in it.
pub struct Terminal {
    socket: String,
}

static STARTED: AtomicU32 = AtomicU32::new(0);

impl Terminal {
    /// Starts a shell's command in a terminal of this size. When the command has ended, the screen
    /// says "ended with" and its code.
    ///
    /// # Errors
    /// Fails when tmux says so.
    pub fn start(words: &str, columns: u16, rows: u16) -> Result<Terminal> {
        let number = STARTED.fetch_add(1, Relaxed);
        let terminal = Terminal {
            socket: format!("midair-{}-{number}", std::process::id()),
        };
        let words = format!("export NO_COLOR=1 LC_ALL=C; {words}; echo ended with $?; cat");
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let new = ["-f", "/dev/null", "new-session", "-d"];
        let size = ["-x", &columns, "-y", &rows, &words];
        terminal.tmux(&[&new[..], &size].concat())?;
        Ok(terminal)
    }

    /// Runs a command of tmux.
    ///
    /// # Errors
    /// Returns what tmux said.
    pub fn tmux(&self, words: &[&str]) -> Result<String> {
        let mut tmux = Command::new("tmux");
        tmux.args(["-L", &self.socket]).args(words);
        Ok(run(tmux, PATIENCE)?.success()?.stdout.join("\n"))
    }

    /// Waits for a screen, and returns it.
    ///
    /// # Errors
    /// Fails with the last screen when it does not come.
    pub fn until(&self, what: &str, wanted: impl Fn(&str) -> bool) -> Result<String> {
        let mut last = String::new();
        let found = until(what, || {
            // The screen is captured with its attributes, so that a colour would be seen.
            last = self.tmux(&["capture-pane", "-p", "-e"])?;
            Ok(wanted(&last))
        });
        found.map_err(|error| format!("{error}; the screen:\n{last}"))?;
        Ok(last)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]);
    }
}

/// Fails where a screen has more than ASCII, or a colour.
pub fn plain(screen: &str) {
    assert!(screen.is_ascii(), "{screen}");
    // Setting the default colours is allowed.
    let own = screen.replace("\x1b[39m", "").replace("\x1b[49m", "");
    assert!(
        !own.contains("\x1b[3") && !own.contains("\x1b[4"),
        "{screen:?}"
    );
}
