//! Lines on standard output and standard error: which are printed, and how they are marked. They
//! are written by [`crate::terminal`].

use crate::terminal::{Colour, INDENT, Stream};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use midair_failure::Failure;
use midair_session::{Console, Style};
use midair_settings::{Settings, Verbosity};
use nix::unistd::Uid;

/// Where the lines of one command go, and which of them are printed.
#[derive(Debug, Clone, Copy)]
pub struct Report {
    program: &'static str,
    verbosity: Verbosity,
    colour: bool,
    terminal: bool,
    screen: OnScreen,
    timed: bool,
}

/// How much of a result is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OnScreen {
    /// Rows of each table; None for the usual number.
    pub rows: Option<usize>,
    /// Whether names are never cut.
    pub wide: bool,
    /// Whether one document is printed instead of tables.
    pub json: bool,
    /// Whether only names of files, warnings and errors are printed.
    pub quiet: bool,
}

impl Report {
    /// Makes a report for the program with this name, according to the environment and the
    /// terminal.
    pub fn new(program: &'static str) -> Report {
        let terminal = Stream::Err.is_terminal();
        Report {
            program,
            verbosity: Verbosity::default(),
            colour: terminal && !plain(),
            terminal,
            screen: OnScreen::default(),
            timed: false,
        }
    }

    /// Sets the level that the settings ask for.
    #[must_use]
    pub fn at_level_of(mut self, settings: &Settings) -> Report {
        let word = settings
            .text("ROCPROF_LOG_LEVEL")
            .and_then(Verbosity::from_word);
        self.verbosity = word.unwrap_or_default();
        self
    }

    /// Sets how much of results is shown.
    #[must_use]
    pub fn showing(mut self, screen: OnScreen) -> Report {
        self.screen = screen;
        self
    }

    /// Returns how much of results is shown.
    pub fn on_screen(&self) -> OnScreen {
        self.screen
    }

    /// Makes the report print information, too.
    #[must_use]
    pub fn verbose(mut self) -> Report {
        self.verbosity = self.verbosity.max(Verbosity::Info);
        self
    }

    /// Makes the report print the phases of an attach, too.
    #[must_use]
    pub fn timed(mut self) -> Report {
        self.timed = true;
        self
    }

    /// Whether the phases of an attach are printed.
    pub fn is_timed(&self) -> bool {
        self.timed
    }

    /// Prints a line of the result on standard output, and flushes it.
    pub fn line(&self, text: &str) {
        Stream::Out.line(text);
    }

    /// Prints a line of the result. A terminal that would break a word gets further lines, which are
    /// indented by so many spaces.
    pub fn folded(&self, text: &str, indent: usize) {
        Stream::Out.folded(text, indent);
    }

    /// Prints text of the result that contains its own line ends.
    pub fn text(&self, text: &[u8]) {
        Stream::Out.lines(&String::from_utf8_lossy(text));
    }

    /// Prints a JSON document as one line.
    pub fn json(&self, document: &serde_json::Value) {
        Stream::Out.json(&document.to_string());
    }

    /// Prints the table of a session, which has its own line ends and may have colours.
    pub fn table(&self, table: &str) {
        Stream::Out.tables(table);
    }

    /// Prints the tables of a summary, on the console that the user chose.
    pub fn summary(&self, summary: Option<&(Console, String)>) {
        match summary {
            Some((Console::Stdout, tables)) => Stream::Out.lines(tables),
            Some((Console::Stderr, tables)) => Stream::Err.lines(tables),
            None => {}
        }
    }

    /// Prints a failure, and its remedy on a second line. Returns the failure's exit code.
    pub fn failure(&self, failure: &Failure) -> u8 {
        self.marked("error:", "31", &failure.what);
        self.clear_status();
        Stream::Err.marked("", "hint:", self.colour("36"), &hint(failure));
        failure.kind.exit_code()
    }

    /// Prints an error that has no exit code of its own.
    pub fn error(&self, text: &str) {
        self.marked("error:", "31", text);
    }

    /// Prints something that the user should know.
    pub fn warning(&self, text: &str) {
        if self.verbosity >= Verbosity::Warning {
            self.marked("warning:", "33", text);
        }
    }

    /// Prints further information for the user.
    pub fn info(&self, text: &str) {
        if self.verbosity >= Verbosity::Info {
            self.marked("info:", "2", text);
        }
    }

    /// Prints a note without a mark on standard error, at every level above errors.
    pub fn note(&self, text: &str) {
        if self.verbosity >= Verbosity::Warning && !self.screen.quiet {
            self.print_line(text);
        }
    }

    /// Shows on a terminal, once a second after the first, that `what` is still in progress, until
    /// the result is dropped.
    pub fn progress(&self, what: &'static str) -> Progress {
        self.progress_of(what, || None)
    }

    /// Does the same as [`Report::progress`], and shows how much of the work is done.
    pub fn progress_of(&self, what: &'static str, share: fn() -> Option<(u64, u64)>) -> Progress {
        Progress::start(self.terminal.then_some(what), share)
    }

    /// Returns how a table on standard output should look.
    pub fn table_style(&self) -> Style {
        let terminal = Stream::Out.is_terminal();
        let columns = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
        let mut style = Style {
            colour: terminal && !plain(),
            unicode: is_utf8(),
            whole_names: !terminal || self.screen.wide,
            ..Style::default()
        };
        if let Some(rows) = self.screen.rows {
            style.rows = rows;
        }
        if let Some(columns) = columns.filter(|_| terminal) {
            style.columns = columns;
        }
        style
    }

    /// Returns the columns of the terminal on standard output, or None where it is not a terminal.
    pub fn columns(&self) -> Option<usize> {
        Stream::Out.columns()
    }

    /// Returns the columns of the terminal on standard error, or 0 where it is not a terminal.
    pub fn error_columns(&self) -> usize {
        Stream::Err.columns().unwrap_or(0)
    }

    /// Prints a line on the terminal that the next one replaces.
    pub fn status(&self, text: &str) {
        if self.terminal {
            Stream::Err.replace_line(text);
        }
    }

    /// Whether standard error is a terminal.
    pub fn is_watched(&self) -> bool {
        self.terminal
    }

    fn marked(&self, mark: &'static str, colour: &'static str, text: &str) {
        self.clear_status();
        let before = format!("{}: ", self.program);
        Stream::Err.marked(&before, mark, self.colour(colour), text);
    }

    fn colour(&self, code: &'static str) -> Option<Colour> {
        self.colour.then_some(Colour(code))
    }

    fn print_line(&self, text: &str) {
        self.clear_status();
        Stream::Err.folded(text, INDENT);
    }

    fn clear_status(&self) {
        self.status("");
    }
}

/// Returns the remedy of a failure for this user. Root is not advised to become root.
pub(crate) fn hint(failure: &Failure) -> String {
    let all = [failure.hint.as_str(), failure.kind.remedy()];
    let mut hints = all
        .into_iter()
        .map(|hint| match Uid::effective().is_root() {
            true => without_root(hint),
            false => hint.to_owned(),
        });
    hints.find(|hint| !hint.is_empty()).unwrap_or_default()
}

/// Returns a hint without the parts, separated by semicolons, that tell the reader to become root.
fn without_root(hint: &str) -> String {
    let tells = |part: &&str| {
        !["as root", "by root", "sudo "]
            .iter()
            .any(|word| part.contains(word))
    };
    let parts: Vec<&str> = hint.split("; ").filter(tells).collect();
    parts.join("; ")
}

fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Whether the user or the terminal wants no colours.
fn plain() -> bool {
    variable("NO_COLOR").is_some() || variable("TERM").is_some_and(|term| term == "dumb")
}

/// Whether the locale is UTF-8.
fn is_utf8() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(variable)
        .unwrap_or_default();
    let locale = locale.to_string_lossy().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// A display of progress, see [`Report::progress`].
#[derive(Debug)]
pub struct Progress {
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    fn start(what: Option<&'static str>, share: fn() -> Option<(u64, u64)>) -> Progress {
        let thread = what.and_then(|what| {
            let (stop, stopped) = channel::<()>();
            let began = Instant::now();
            let show = move || {
                let mut shown = false;
                while stopped.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout)
                {
                    let seconds = began.elapsed().as_secs();
                    Stream::Err.replace_line(&under_way(what, seconds, share()));
                    shown = true;
                }
                if shown {
                    Stream::Err.replace_line("");
                }
            };
            // If the thread cannot be started, no progress is shown, and nothing else is lost.
            let thread = std::thread::Builder::new()
                .name("progress".into())
                .spawn(show)
                .ok()?;
            Some((stop, thread))
        });
        Progress { thread }
    }
}

/// Returns a line about something in progress.
fn under_way(what: &str, seconds: u64, share: Option<(u64, u64)>) -> String {
    match share {
        Some((done, total)) if total > 0 => {
            let percent = done as f64 * 100.0 / total as f64;
            format!("{what} ... {percent:.0} % of {total} records, {seconds} s")
        }
        _ => format!("{what} ... {seconds} s"),
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.thread.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

/// Returns a number of bytes in a readable unit.
pub fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{count} B")
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_not_told_to_become_root() {
        for (hint, wanted) in [
            ("run this as root", ""),
            (
                "omit --cupti, so that midair finds the process's own; or run this as root",
                "omit --cupti, so that midair finds the process's own",
            ),
            ("kill -CONT 5", "kill -CONT 5"),
        ] {
            assert_eq!(without_root(hint), wanted);
        }
    }

    #[test]
    fn what_is_under_way_tells_how_far_it_is() {
        assert_eq!(under_way("detaching", 2, None), "detaching ... 2 s");
        let share = Some((250, 1000));
        let line = "writing results ... 25 % of 1000 records, 9 s";
        assert_eq!(under_way("writing results", 9, share), line);
    }

    #[test]
    fn sizes_for_people() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(u64::MAX), "16777216.0 TiB");
    }
}
