//! What the application's console gets to see of the results. The application's own side prints it,
//! since the console is the application's.

use midair_failure::Failure;
use midair_record::collector::{Order, message, print, say};
use midair_results::{Console, Style, Written};
use midair_settings::{SCREEN, Settings};
use std::os::unix::net::UnixStream;

/// Where texts go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Printer<'a> {
    pub(crate) order: Order,
    pub(crate) socket: &'a UnixStream,
}

impl Printer<'_> {
    /// Sends a text. An application that has ended, or that does not read, gets none.
    fn text(self, kind: u8, text: &str) {
        if self.order.prints && !text.is_empty() {
            let mut socket = self.socket;
            drop(print(&mut socket, kind, text));
        }
    }

    /// Sends any other message.
    pub(crate) fn message(self, kind: u8, bytes: &[u8]) {
        let mut socket = self.socket;
        drop(say(&mut socket, kind, bytes));
    }

    pub(crate) fn sentence(self, text: &str) {
        self.text(message::SENTENCE, text);
    }

    pub(crate) fn failure(self, failure: &Failure) {
        self.sentence(&format!("error: {}", failure.what));
        if !failure.hint.is_empty() {
            self.sentence(&format!("hint: {}", failure.hint));
        }
    }

    /// Prints what was written.
    pub(crate) fn written(self, settings: &Settings, written: &Written) {
        for warning in &written.warnings {
            self.sentence(&format!("warning: {warning}"));
        }
        match &written.summary {
            // As AMD's tool does, print on standard output of the program that it started.
            Some((Console::Stdout, tables)) if self.order.is_launched => {
                self.text(message::OUTPUT, tables);
            }
            Some((_, tables)) => self.text(message::ERROR, tables),
            None => {}
        }
        if self.order.is_launched && settings.get(SCREEN).is_some() {
            let screen = midair_failure::plain::lines(&written.table);
            self.text(message::ERROR, &screen);
        }
        for file in &written.files {
            // AMD's words, which scripts look for (`docs/sources.md#rocprofv3`).
            let line = format!("Opened result file: {}", file.display());
            self.text(message::LINE, &line);
        }
        if let Some(failure) = &written.incomplete {
            self.failure(failure);
        }
    }
}

/// Returns how the screen looks on standard error of a program that midair started.
pub(crate) fn screen_style(settings: &Settings) -> Style {
    let screen = settings.text(SCREEN).unwrap_or_default();
    let (columns, unicode) = match screen.strip_suffix('u') {
        Some(columns) => (columns, true),
        None => (screen, false),
    };
    match columns.parse() {
        Ok(columns @ 1..) => Style {
            columns,
            unicode,
            ..Style::default()
        },
        _ => Style {
            whole_names: true,
            unicode,
            ..Style::default()
        },
    }
}

/// Sends summaries for a console to a file, `PREFIX_summary.txt`, where nothing may be printed.
pub(crate) fn with_summary_file(order: Order, settings: &Settings) -> Settings {
    const OUTPUT: &str = "ROCPROF_STATS_SUMMARY_OUTPUT";
    let mut settings = settings.clone();
    let on_console = matches!(settings.text(OUTPUT), None | Some("stdout" | "stderr"));
    if on_console && !order.prints {
        settings.set(OUTPUT, "summary");
    }
    settings
}
