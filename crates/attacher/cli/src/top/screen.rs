//! The terminal while `midair top` runs.
#![expect(
    clippy::disallowed_methods,
    reason = "the screen is drawn by ratatui; what it shows passed the view's filter"
)]

use midair_failure::{Failure, Kind};
use midair_top::{Key, View};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use std::io::{self, IsTerminal, Stdout, stdin, stdout};
use std::os::fd::AsFd;
use std::time::Duration;

/// The number of lines of a page.
const PAGE: usize = 10;

/// Whether there is a terminal to draw on and to read keys from.
pub(super) fn is_there() -> bool {
    stdin().is_terminal() && stdout().is_terminal()
}

/// A terminal in the mode for screens. When this value is dropped, the terminal gets its old mode
/// and its old contents back.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    /// Whether a key was read, so that more may have come with it.
    more: bool,
}

fn failed(error: io::Error) -> Failure {
    Failure::new(Kind::Output, format!("the terminal: {error}"))
        .hint("without a terminal, use midair top --once or --json")
}

impl Screen {
    /// Switches the terminal to this mode.
    pub(super) fn open() -> Result<Screen, Failure> {
        let terminal = Terminal::new(CrosstermBackend::new(stdout())).map_err(failed)?;
        enable_raw_mode().map_err(failed)?;
        let mut screen = Screen {
            terminal,
            more: false,
        };
        execute!(stdout(), EnterAlternateScreen, Hide).map_err(failed)?;
        screen.terminal.clear().map_err(failed)?;
        Ok(screen)
    }

    /// Draws.
    pub(super) fn draw(&mut self, view: &View) -> Result<(), Failure> {
        let drawn = self.terminal.draw(|frame| {
            let area = frame.area();
            view.draw(area, frame.buffer_mut());
        });
        drawn.map(drop).map_err(failed)
    }

    /// Waits for a key, at most this long. If the terminal has gone, the result is
    /// [`Key::Interrupt`].
    pub(super) fn key(&mut self, limit: Duration) -> Result<Option<Key>, Failure> {
        let limit = if self.more { Duration::ZERO } else { limit };
        self.more = false;
        // On a terminal that has gone, crossterm would read without end, so it is not asked then.
        let input = stdin();
        let mut fds = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
        let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        let _ = poll(&mut fds, limit);
        let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
        let [fd] = &fds;
        if fd.revents().is_some_and(|seen| seen.intersects(gone)) {
            return Ok(Some(Key::Interrupt));
        }
        if !event::poll(Duration::ZERO).map_err(failed)? {
            return Ok(None);
        }
        self.more = true;
        let Event::Key(pressed) = event::read().map_err(failed)? else {
            // The size has changed, which the next drawing takes into account.
            return Ok(None);
        };
        if pressed.kind == KeyEventKind::Release {
            return Ok(None);
        }
        let control = pressed.modifiers.contains(KeyModifiers::CONTROL);
        Ok(match pressed.code {
            KeyCode::Char('c' | 'd') if control => Some(Key::Interrupt),
            KeyCode::Char(_) if control => None,
            KeyCode::Char(letter) => Some(Key::Char(letter)),
            KeyCode::Enter => Some(Key::Enter),
            KeyCode::Esc => Some(Key::Escape),
            KeyCode::Backspace => Some(Key::Backspace),
            KeyCode::Up => Some(Key::Up(1)),
            KeyCode::Down => Some(Key::Down(1)),
            KeyCode::PageUp => Some(Key::Up(PAGE)),
            KeyCode::PageDown => Some(Key::Down(PAGE)),
            _ => None,
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}
