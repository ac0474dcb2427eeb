//! The answer of a helper that runs in the root of a target.

use midair_counters::template::Template;
use midair_counters::wire::{Answer, Listener};

/// The most bytes of a window's memory that a target accepts.
const OUTPUT: u64 = 16 << 20;

fn heard(bytes: &[u8]) -> Option<Answer> {
    let mut listener = Listener::default();
    let mut lines = String::from_utf8_lossy(bytes).into_owned();
    lines.push('\n');
    lines.lines().find_map(|line| listener.take(line).ok()?)
}

/// Hears an answer. Its packets refer to nothing but themselves, and say the same when they are written
/// again.
pub fn packet_answer(bytes: &[u8]) {
    let Some(answer) = heard(bytes) else {
        return;
    };
    let again = heard(answer.to_string().as_bytes());
    if let Answer::Made(template) = &answer {
        in_bounds(template);
    }
    assert_eq!(again, Some(answer));
}

fn in_bounds(template: &Template) {
    let words = template.read_stop.len() as u32;
    assert!(!template.start.is_empty() && template.read_words <= words);
    assert!(template.output_bytes <= OUTPUT);
    let mut commands = template.read_stop.clone();
    template.patch(&mut commands, u64::MAX);
    template.patch(&mut commands, 0);
    let memory = vec![7; (template.output_bytes / 8) as usize];
    let read = template.values(&memory).count();
    assert_eq!(read, template.slots.len(), "each value is in the memory");
}
