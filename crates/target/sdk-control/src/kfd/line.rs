//! A line of the driver has the event's number in hexadecimal, nanoseconds of the boot clock, `-`
//! and the process, and the event's own data. Addresses are page numbers. GPUs are named by their
//! ids, and the host's memory by 0 (source: `docs/sources.md#kfd`).

use midair_abi::constants as c;

/// The size of a page, as a power of two. This is the driver's unit, whatever the processor's page
/// size is.
const PAGE: u32 = 12;

/// `enum kfd_smi_event`.
mod number {
    pub(super) const MIGRATE_START: u64 = 5;
    pub(super) const MIGRATE_END: u64 = 6;
    pub(super) const PAGE_FAULT_START: u64 = 7;
    pub(super) const PAGE_FAULT_END: u64 = 8;
    pub(super) const QUEUE_EVICTION: u64 = 9;
    pub(super) const QUEUE_RESTORE: u64 = 10;
    pub(super) const UNMAP_FROM_GPU: u64 = 11;
    pub(super) const DROPPED_EVENT: u64 = 14;
}

/// The events that are requested: bit N - 1 for number N. The driver reports dropped events without
/// a request.
pub(crate) const MASK: u64 = {
    let mut mask = 0;
    let mut event = number::MIGRATE_START;
    while event <= number::UNMAP_FROM_GPU {
        mask |= 1 << (event - 1);
        event += 1;
    }
    mask | 1 << (number::DROPPED_EVENT - 1)
};

/// The relation of an event to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Another event ends what it starts.
    Begin,
    /// It ends what another event started.
    End,
    /// It stands alone.
    Whole,
}

/// An event, or a start and its end in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Event {
    /// AMD's buffer-tracing kind.
    pub tracing_kind: i32,
    /// AMD's operation of that kind.
    pub operation: u32,
    /// ns of CLOCK_BOOTTIME.
    pub start: u64,
    pub pid: u32,
    /// First address.
    pub address: u64,
    /// The address after the last one.
    pub end_address: u64,
    /// GPU ids; 0 for the host's memory.
    pub from: u32,
    pub to: u32,
    pub prefetch: u32,
    pub preferred: u32,
    pub error: i32,
    /// How many events were dropped.
    pub count: u32,
}

impl Event {
    /// Returns the kind of its records.
    pub fn kind(&self) -> Option<u8> {
        midair_domain::of_buffer_kind(self.tracing_kind).map(|domain| domain.kind)
    }

    /// Returns whether it starts or ends something.
    pub fn part(&self) -> Part {
        let operation = self.operation as i32;
        match self.tracing_kind {
            c::ROCPROFILER_BUFFER_TRACING_KFD_EVENT_PAGE_MIGRATE => {
                if operation == c::ROCPROFILER_KFD_EVENT_PAGE_MIGRATE_END {
                    Part::End
                } else {
                    Part::Begin
                }
            }
            c::ROCPROFILER_BUFFER_TRACING_KFD_EVENT_PAGE_FAULT => match operation {
                c::ROCPROFILER_KFD_EVENT_PAGE_FAULT_END_PAGE_MIGRATED
                | c::ROCPROFILER_KFD_EVENT_PAGE_FAULT_END_PAGE_UPDATED => Part::End,
                _ => Part::Begin,
            },
            c::ROCPROFILER_BUFFER_TRACING_KFD_EVENT_QUEUE => match operation {
                c::ROCPROFILER_KFD_EVENT_QUEUE_RESTORE => Part::End,
                c::ROCPROFILER_KFD_EVENT_QUEUE_RESTORE_RESCHEDULED => Part::Whole,
                _ => Part::Begin,
            },
            _ => Part::Whole,
        }
    }

    /// Whether `end` is the end of this start.
    pub fn is_ended_by(&self, end: &Event) -> bool {
        let what = |event: &Event| {
            (
                event.tracing_kind,
                event.address,
                event.end_address,
                event.from,
                event.to,
            )
        };
        what(self) == what(end)
    }

    /// Combines a start and its end. The result has the start's time.
    pub fn with_end(&self, end: &Event) -> Option<Event> {
        let (tracing_kind, operation) = match self.tracing_kind {
            c::ROCPROFILER_BUFFER_TRACING_KFD_EVENT_PAGE_MIGRATE => (
                c::ROCPROFILER_BUFFER_TRACING_KFD_PAGE_MIGRATE,
                self.operation,
            ),
            c::ROCPROFILER_BUFFER_TRACING_KFD_EVENT_PAGE_FAULT => {
                let writes =
                    self.operation as i32 == c::ROCPROFILER_KFD_EVENT_PAGE_FAULT_START_WRITE_FAULT;
                let migrated =
                    end.operation as i32 == c::ROCPROFILER_KFD_EVENT_PAGE_FAULT_END_PAGE_MIGRATED;
                let operation = match (writes, migrated) {
                    (false, true) => c::ROCPROFILER_KFD_PAGE_FAULT_READ_FAULT_MIGRATED,
                    (false, false) => c::ROCPROFILER_KFD_PAGE_FAULT_READ_FAULT_UPDATED,
                    (true, true) => c::ROCPROFILER_KFD_PAGE_FAULT_WRITE_FAULT_MIGRATED,
                    (true, false) => c::ROCPROFILER_KFD_PAGE_FAULT_WRITE_FAULT_UPDATED,
                };
                (
                    c::ROCPROFILER_BUFFER_TRACING_KFD_PAGE_FAULT,
                    operation as u32,
                )
            }
            c::ROCPROFILER_BUFFER_TRACING_KFD_EVENT_QUEUE => {
                (c::ROCPROFILER_BUFFER_TRACING_KFD_QUEUE, self.operation)
            }
            _ => return None,
        };
        Some(Event {
            tracing_kind,
            operation,
            error: end.error,
            ..*self
        })
    }
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

fn gpu(text: &str) -> Option<u32> {
    u32::from_str_radix(text, 16).ok()
}

/// Splits `@A(B)`.
fn place(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix('@')?.strip_suffix(')')?.split_once('(')
}

/// Returns the addresses of `@FIRST(PAGES)`.
fn range(text: &str) -> Option<(u64, u64)> {
    let (first, pages) = place(text)?;
    let (first, pages) = (hexadecimal(first)?, hexadecimal(pages)?);
    Some((first << PAGE, first.wrapping_add(pages) << PAGE))
}

/// Returns the number of one of `count` operations.
fn operation(text: &str, count: i32) -> Option<u32> {
    text.parse::<u32>()
        .ok()
        .filter(|number| *number < count as u32)
}

/// Parses a line. `None`: it is about another event, or is malformed.
pub(crate) fn read(line: &str) -> Option<Event> {
    let mut words = line.split_ascii_whitespace();
    let event = hexadecimal(words.next()?)?;
    let start = words.next()?.parse().ok()?;
    let pid = words.next()?.strip_prefix('-')?.parse().ok()?;
    let rest: Vec<&str> = words.collect();
    let base = Event {
        start,
        pid,
        ..Event::default()
    };
    Some(match (event, rest.as_slice()) {
        (number::MIGRATE_START, [at, ways, wishes, trigger]) => {
            let (address, end_address) = range(at)?;
            let (from, to) = ways.split_once("->")?;
            let (prefetch, preferred) = wishes.split_once(':')?;
            Event {
                tracing_kind: c::ROCPROFILER_BUFFER_TRACING_KFD_EVENT_PAGE_MIGRATE,
                operation: operation(trigger, c::ROCPROFILER_KFD_EVENT_PAGE_MIGRATE_END)?,
                address,
                end_address,
                from: gpu(from)?,
                to: gpu(to)?,
                prefetch: gpu(prefetch)?,
                preferred: gpu(preferred)?,
                ..base
            }
        }
        // Older drivers do not report an error.
        (number::MIGRATE_END, [at, ways, _trigger, error @ ..]) => {
            let (address, end_address) = range(at)?;
            let (from, to) = ways.split_once("->")?;
            Event {
                tracing_kind: c::ROCPROFILER_BUFFER_TRACING_KFD_EVENT_PAGE_MIGRATE,
                operation: c::ROCPROFILER_KFD_EVENT_PAGE_MIGRATE_END as u32,
                address,
                end_address,
                from: gpu(from)?,
                to: gpu(to)?,
                error: error.first().map_or(Some(0), |error| error.parse().ok())?,
                ..base
            }
        }
        (number::PAGE_FAULT_START | number::PAGE_FAULT_END, [at, how]) => {
            let (page, node) = place(at)?;
            let operation = match (event, *how) {
                (number::PAGE_FAULT_START, "R") => {
                    c::ROCPROFILER_KFD_EVENT_PAGE_FAULT_START_READ_FAULT
                }
                (number::PAGE_FAULT_START, "W") => {
                    c::ROCPROFILER_KFD_EVENT_PAGE_FAULT_START_WRITE_FAULT
                }
                (number::PAGE_FAULT_END, "M") => {
                    c::ROCPROFILER_KFD_EVENT_PAGE_FAULT_END_PAGE_MIGRATED
                }
                (number::PAGE_FAULT_END, "U") => {
                    c::ROCPROFILER_KFD_EVENT_PAGE_FAULT_END_PAGE_UPDATED
                }
                _ => return None,
            };
            Event {
                tracing_kind: c::ROCPROFILER_BUFFER_TRACING_KFD_EVENT_PAGE_FAULT,
                operation: operation as u32,
                address: hexadecimal(page)? << PAGE,
                from: gpu(node)?,
                ..base
            }
        }
        (number::QUEUE_EVICTION, [node, trigger]) => Event {
            tracing_kind: c::ROCPROFILER_BUFFER_TRACING_KFD_EVENT_QUEUE,
            operation: operation(trigger, c::ROCPROFILER_KFD_EVENT_QUEUE_RESTORE_RESCHEDULED)?,
            from: gpu(node)?,
            ..base
        },
        (number::QUEUE_RESTORE, [node, again @ ..]) => Event {
            tracing_kind: c::ROCPROFILER_BUFFER_TRACING_KFD_EVENT_QUEUE,
            operation: match again {
                [] | ["0"] => c::ROCPROFILER_KFD_EVENT_QUEUE_RESTORE as u32,
                ["R"] => c::ROCPROFILER_KFD_EVENT_QUEUE_RESTORE_RESCHEDULED as u32,
                _ => return None,
            },
            from: gpu(node)?,
            ..base
        },
        (number::UNMAP_FROM_GPU, [at, node, trigger]) => {
            let (address, end_address) = range(at)?;
            Event {
                tracing_kind: c::ROCPROFILER_BUFFER_TRACING_KFD_EVENT_UNMAP_FROM_GPU,
                operation: operation(trigger, c::ROCPROFILER_KFD_EVENT_UNMAP_FROM_GPU_LAST)?,
                address,
                end_address,
                from: gpu(node)?,
                ..base
            }
        }
        (number::DROPPED_EVENT, [count]) => Event {
            tracing_kind: c::ROCPROFILER_BUFFER_TRACING_KFD_EVENT_DROPPED_EVENTS,
            operation: c::ROCPROFILER_KFD_EVENT_DROPPED_EVENTS as u32,
            count: count.parse().ok()?,
            ..base
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good(line: &str) -> Event {
        read(line).unwrap_or_else(|| panic!("{line:?} is a line"))
    }

    #[test]
    fn a_migration_has_a_begin_and_an_end() {
        let begin = good("5 1000 -42 @7f001(10) 0->1ea0 1ea0:0 1");
        assert_eq!(
            begin,
            Event {
                tracing_kind: c::ROCPROFILER_BUFFER_TRACING_KFD_EVENT_PAGE_MIGRATE,
                operation: 1,
                start: 1000,
                pid: 42,
                address: 0x7f00_1000,
                end_address: 0x7f01_1000,
                from: 0,
                to: 0x1ea0,
                prefetch: 0x1ea0,
                ..Event::default()
            }
        );
        for (text, error) in [
            ("6 1500 -42 @7f001(10) 0->1ea0 1", 0),
            ("6 1500 -42 @7f001(10) 0->1ea0 1 -12", -12),
        ] {
            let end = good(text);
            assert_eq!((begin.part(), end.part()), (Part::Begin, Part::End));
            assert!(begin.is_ended_by(&end));
            let both = begin.with_end(&end).unwrap();
            assert_eq!(
                (both.tracing_kind, both.operation, both.start, both.error),
                (
                    c::ROCPROFILER_BUFFER_TRACING_KFD_PAGE_MIGRATE,
                    1,
                    1000,
                    error
                )
            );
        }
        let other = good("6 1500 -42 @7f002(10) 0->1ea0 1 0");
        assert!(!begin.is_ended_by(&other));
    }

    #[test]
    fn a_fault_says_how_it_was_solved() {
        for (begin, end, operation) in [("R", "M", 0), ("R", "U", 1), ("W", "M", 2), ("W", "U", 3)]
        {
            let begin = good(&format!("7 10 -1 @ff(1ea0) {begin}"));
            let end = good(&format!("8 20 -1 @ff(1ea0) {end}"));
            assert_eq!((begin.address, begin.from), (0xff000, 0x1ea0));
            assert!(begin.is_ended_by(&end));
            assert_eq!(begin.with_end(&end).unwrap().operation, operation);
        }
    }

    #[test]
    fn a_queue_is_evicted_and_restored_perhaps_later() {
        let begin = good("9 10 -1 1ea0 2");
        let later = good("a 20 -1 1ea0 R");
        let end = good("a 30 -1 1ea0 ");
        assert_eq!(later.part(), Part::Whole);
        assert_eq!(end.part(), Part::End);
        let both = begin.with_end(&end).unwrap();
        assert_eq!(
            (both.tracing_kind, both.operation),
            (c::ROCPROFILER_BUFFER_TRACING_KFD_QUEUE, 2)
        );
    }

    #[test]
    fn unmaps_and_drops_stand_alone() {
        let unmap = good("b 10 -1 @10(2) 1ea0 2");
        assert_eq!((unmap.address, unmap.end_address), (0x10000, 0x12000));
        assert_eq!((unmap.part(), unmap.operation), (Part::Whole, 2));
        let dropped = good("e 10 -1 17");
        assert_eq!((dropped.part(), dropped.count), (Part::Whole, 17));
    }

    #[test]
    fn what_is_no_line_is_left_alone() {
        for line in [
            "",
            "5",
            "1 10 -1 0:0",
            "7 10 -1 @ff(1ea0) X",
            "7 10 1 @ff(1ea0) R",
            "7 10 -1 ff(1ea0) R",
            "5 10 -1 @1(1) 0->1 0:0 4",
            "9 10 -1 1ea0 6",
            "b 10 -1 @10(2) 1ea0 3",
            "e 10 -1 many",
        ] {
            assert_eq!(read(line), None, "{line:?}");
        }
        assert_eq!(MASK, 0x27f0);
    }
}
