//! What keys do.

use crate::view::{By, Sort, View};

/// A key, as far as one is used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// Ctrl-C.
    Interrupt,
    /// A character.
    Char(char),
    /// Enter.
    Enter,
    /// Escape.
    Escape,
    /// Backspace.
    Backspace,
    /// Up, by so many lines.
    Up(usize),
    /// Down, by so many lines.
    Down(usize),
}

/// What the caller is to do after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Draw.
    Draw,
    /// Detach, and end.
    Quit,
    /// Keep the next seconds as files.
    Keep,
    /// Take stacks from now on. The view shows lines of code already.
    TakeStacks,
}

impl View {
    /// A key was pressed.
    pub fn key(&mut self, key: Key) -> Action {
        if key == Key::Interrupt {
            return Action::Quit;
        }
        self.message.clear();
        if let Some(mut typed) = self.typed.take() {
            match key {
                Key::Char(letter) => {
                    typed.push(letter);
                    self.typed = Some(typed);
                }
                Key::Backspace => {
                    typed.pop();
                    self.typed = Some(typed);
                }
                Key::Enter => self.filter_by(&typed),
                Key::Escape | Key::Up(_) | Key::Down(_) | Key::Interrupt => {}
            }
            return Action::Draw;
        }
        match key {
            Key::Char('q') => return Action::Quit,
            Key::Char('r') => return Action::Keep,
            Key::Char(' ' | 'p') => self.pause(),
            Key::Char('s') => self.sort = self.sort.next(),
            Key::Char('S') => self.sort = Sort::default(),
            Key::Char('c') => {
                let by = match self.by {
                    By::Kernel => By::Code,
                    By::Code => By::Kernel,
                };
                self.show_by(by);
                if by == By::Code && !self.has_code() {
                    return Action::TakeStacks;
                }
            }
            Key::Char('/') => self.typed = Some(self.filter.clone()),
            Key::Char('?' | 'h') => self.help = !self.help,
            Key::Char('k') => self.select(-1),
            Key::Char('j') => self.select(1),
            Key::Up(lines) => self.select(-(lines as isize)),
            Key::Down(lines) => self.select(lines as isize),
            Key::Enter => self.open(),
            Key::Escape => self.close(),
            Key::Char(_) | Key::Backspace | Key::Interrupt => {}
        }
        Action::Draw
    }
}
