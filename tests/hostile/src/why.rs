//! The memory of a process that `midair why` looks at: queues, code objects, Python's frames.

use midair_why::image;

/// The most bytes that are read of one kind of structure (`crates/attacher/why/src/image.rs`).
const READ: usize = 1 << 20;
/// The most reads of one kind.
const READS: usize = 4096;

/// Looks at a piece of memory whose every address can be read, so that lists lead back and tables
/// have no end. The answer stays as small as what was read of it.
pub fn why(bytes: &[u8]) {
    let found = image::look(bytes);
    assert!(found.queues.len() <= bytes.len() / 64 + 1);
    for queue in &found.queues {
        assert!(queue.read <= queue.written && queue.written - queue.read <= u64::from(queue.size));
        assert!(queue.running.len() <= READS);
    }
    assert!(found.frames.len() <= READS);
    // A character of one byte may take two in UTF-8.
    let text: usize = found
        .frames
        .iter()
        .map(|frame| frame.function.len() + frame.file.len())
        .sum();
    assert!(text <= 2 * READ, "{text} bytes of names");
    assert!(found.objects <= READ, "{} bytes of URIs", found.objects);
    assert!(found.name.is_none_or(|name| name.len() <= 4096));
}
