//! Which memory of this process may be read, executed and written, according to its maps file. This
//! makes a wrong guess about a table end in a refusal and not in a fault of the target.

/// One range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    start: usize,
    end: usize,
    read: bool,
    write: bool,
    run: bool,
}

/// A snapshot of the address space, sorted.
#[derive(Debug, Default)]
pub struct Maps {
    ranges: Vec<Range>,
}

impl Maps {
    /// Takes a snapshot of the calling process. It does not use `/proc/self`: that is the first
    /// thread, which may have ended and then has no mappings.
    pub fn of_self() -> Option<Maps> {
        Some(Self::parse(&std::fs::read("/proc/thread-self/maps").ok()?))
    }

    /// Parses the text of a maps file; malformed lines are left out.
    pub fn parse(text: &[u8]) -> Maps {
        let mut ranges: Vec<Range> = text
            .split(|byte| *byte == b'\n')
            .filter_map(parse_line)
            .collect();
        ranges.sort_by_key(|range| range.start);
        Maps { ranges }
    }

    fn covers(&self, address: usize, len: usize, good: impl Fn(&Range) -> bool) -> bool {
        let Some(end) = address.checked_add(len) else {
            return false;
        };
        let mut at = address;
        let first = self.ranges.partition_point(|range| range.end <= address);
        for range in self.ranges.iter().skip(first) {
            if range.start > at || !good(range) {
                return false;
            }
            at = range.end;
            if at >= end {
                return true;
            }
        }
        false
    }

    /// Whether `address` lies in code.
    pub fn is_text(&self, address: usize) -> bool {
        self.covers(address, 1, |range| range.run)
    }

    /// Whether the whole range may be read and written, and none of it executed.
    pub fn is_writable(&self, address: usize, len: usize) -> bool {
        self.covers(address, len, |range| {
            range.read && range.write && !range.run
        })
    }

    /// Reads memory of this process that is readable according to the snapshot.
    pub fn read(&self, address: usize, into: &mut [u8]) -> bool {
        if !self.covers(address, into.len(), |range| range.read) {
            return false;
        }
        // The kernel checks again: the range may be gone since the snapshot was taken. Then this
        // fails instead of faulting.
        let local = libc::iovec {
            iov_base: into.as_mut_ptr().cast(),
            iov_len: into.len(),
        };
        let remote = libc::iovec {
            iov_base: std::ptr::without_provenance_mut(address),
            iov_len: into.len(),
        };
        // Use this thread's id: the first thread may have ended, and then has no memory.
        // SAFETY: `local` describes `into`; `remote` is only an address that the kernel checks.
        let read = unsafe { libc::process_vm_readv(libc::gettid(), &local, 1, &remote, 1, 0) };
        if read >= 0 {
            return read as usize == into.len();
        }
        // process_vm_readv may be forbidden (seccomp). According to the snapshot the range is
        // readable.
        // SAFETY: the range was mapped readable when the snapshot was taken, a moment ago, by a
        // library that is not unloaded while the loader's list is being walked.
        unsafe {
            std::ptr::copy_nonoverlapping(
                std::ptr::with_exposed_provenance::<u8>(address),
                into.as_mut_ptr(),
                into.len(),
            )
        };
        true
    }

    /// Reads a word.
    pub fn read_u64(&self, address: usize) -> Option<u64> {
        let mut word = [0; 8];
        self.read(address, &mut word)
            .then(|| u64::from_ne_bytes(word))
    }
}

fn parse_line(line: &[u8]) -> Option<Range> {
    let line = std::str::from_utf8(line.get(..line.len().min(60))?)
        .ok()
        .or_else(|| {
            // A path that is not UTF-8 comes after the fields that matter.
            std::str::from_utf8(line.get(..line.iter().position(|byte| *byte >= 0x80)?)?).ok()
        })?;
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let rights = fields.next()?.as_bytes();
    Some(Range {
        start: usize::from_str_radix(start, 16).ok()?,
        end: usize::from_str_radix(end, 16).ok()?,
        read: rights.first() == Some(&b'r'),
        write: rights.get(1) == Some(&b'w'),
        run: rights.get(2) == Some(&b'x'),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_count_as_one() {
        let maps = Maps::parse(b"1000-2000 rw-p 0 0:0 0\n2000-3000 rw-p 0 0:0 0 /x\xff\n3000-4000 r-xp 0 0:0 0\ngarbage\n");
        assert!(maps.is_writable(0x1ff8, 16));
        assert!(!maps.is_writable(0x2ff8, 16));
        assert!(maps.is_text(0x3000));
        assert!(!maps.is_text(0x4000));
        assert!(!maps.is_writable(usize::MAX - 4, 16));
    }

    #[test]
    fn reads_are_refused_where_nothing_is_mapped() {
        let maps = Maps::of_self().unwrap();
        let value = 42_u64;
        assert_eq!(maps.read_u64((&raw const value).addr()), Some(42));
        assert_eq!(maps.read_u64(8), None);
    }
}
