//! The log: one line of `key=value` words per record.
//!
//! Every line starts with `t` (CLOCK_BOOTTIME ns when the record was written: a packet's is written
//! before its completion can be seen), `pid`, `q` (the queue's number in that process, which is
//! also in the name of its thread) and `ev`. The other words depend on `ev`:
//!
//! | ev | words |
//! |---|---|
//! | `model` | `eager seed kernel_ns`: a process has loaded the model |
//! | `queue` | `kind` (aql, sdma) `ring` (address) `size` (packets, or bytes for sdma) `wp rp` (addresses of the indices) `doorbell` (address, 0 where the runtime tells none to the model: an AQL queue's is then found through its `amd_queue_t`): a queue was made |
//! | `queue-end` | `idx` (read index at the end): a queue was destroyed |
//! | `begin` | as `dispatch`, written when a kernel with a time of its own (`MODEL_LONG_KERNEL`) is taken; its `end` is 0 |
//! | `dispatch` | packet words, then `setup wg grid private group kobj kernarg format` (0: the packet that AQL has for it; else the format of the vendor packet) |
//! | `cut` | as `dispatch`: the queue was destroyed while the kernel ran, nothing was completed |
//! | `barrier` | packet words, then `op` (and, or) `deps` (five signal handles) |
//! | `vendor` | packet words, then `format` |
//! | `copy` | `ring idx db op` (linear, rect) `bytes src dst start end` |
//! | `sdma` | `ring idx db op at value`: any other SDMA packet; `value` is what it wrote, added, compared or raised |
//! | `reads` | `ring idx count`: how often the program had read from a ring in device memory when its dispatch `idx` was taken (`MODEL_RING=device`) |
//! | `stop` | `ring idx code need have`: the packet processor stopped the queue and sent the runtime the reason (`code`, as in the queue's inactive signal: 1 a dispatch needs more scratch memory, 512 scratch memory for one dispatch has been used); `need have` are bytes per work-item |
//! | `register` | `ring idx xcc op` (write, read) `reg` (address in words) `unit` (`GRBM_GFX_INDEX` at that moment) `value at` (where a read went): a command of packet `idx` accessed a register of the counters (see `pmu`) |
//! | `pm4` | `ring idx at words control` (what was written to `CP_PERFMON_CNTL`, `-` for nothing) `reads` (of registers, of all XCCs) `enabled` (whether the queue's kernels count in SQ and SPI from now on) `over` (the queue whose counting a reset destroyed, -1 for none) `unknown` (a word that was not understood, 0 for none): the commands of vendor packet `idx` have been carried out |
//! | `samples` | `ring idx kobj invalid lost at` (`OFFSET*COUNT,...`: valid samples of program counters that were written, by their offset from the kernel's entry; `-` for none): a look at the kernel of packet `idx` (see `sampling`) |
//! | `trace` | `ring idx xcc engine base bytes full` (1 if not all blocks found room) `hash` (FNV-1a of the bytes): packet `idx` ended the thread trace of an engine (see `pmu::trace`) |
//! | `unknown` | `ring idx word`: the packet's first word; the queue stops there |
//!
//! Packet words: `ring` (address, which identifies a queue in the process), `idx`
//! (packet index, counting from 0 when the queue was made), `hdr`, `sig` (completion signal or 0),
//! `start end` (when it ran; a dispatch is taken off the ring at its start), `times` (`signal`:
//! they were written into the signal, `none`: they were not), `db` (the highest index that the
//! doorbell had reported when the packet was taken, -1 for none; in bytes for sdma; lower than `idx` in
//! eager mode, and where a ring may have been overwritten by a lower one before the model saw it,
//! which takes several producers on one queue). Numbers with `0x` are addresses, handles and
//! headers.

use crate::sampling::Taken;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// The fields that all AQL packets have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Packet {
    /// Address of the queue's ring.
    pub ring: u64,
    /// Packet index, not reduced to the ring's size.
    pub index: u64,
    /// First 16 bits.
    pub header: u16,
    /// Handle of the completion signal, or 0.
    pub signal: u64,
    /// When it started, CLOCK_BOOTTIME ns.
    pub start: u64,
    /// When it ended, CLOCK_BOOTTIME ns.
    pub end: u64,
    /// Whether start and end were written into the signal.
    pub times_written: bool,
    /// The highest index that the doorbell had reported when the packet was taken.
    pub doorbell: i64,
}

/// A kernel dispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dispatch {
    /// The fields that all packets have.
    pub packet: Packet,
    /// 0 for AQL's own packet, otherwise the format of the vendor packet.
    pub format: u8,
    /// Number of dimensions, as the packet has it.
    pub setup: u16,
    /// Work-items per workgroup.
    pub workgroup: [u16; 3],
    /// Work-items of the grid.
    pub grid: [u32; 3],
    /// Bytes of private segment per work-item.
    pub private_size: u32,
    /// Bytes of group segment.
    pub group_size: u32,
    /// Address of the kernel descriptor.
    pub kernel_object: u64,
    /// Address of the arguments.
    pub kernarg: u64,
}

/// A copy by an SDMA queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Copy {
    /// Address of the queue's ring.
    pub ring: u64,
    /// Offset of the packet in bytes, not reduced to the ring's size.
    pub index: u64,
    /// The highest index that the doorbell had reported when the packet was taken.
    pub doorbell: i64,
    /// Rectangular, else linear.
    pub rect: bool,
    /// Bytes moved.
    pub bytes: u64,
    /// First byte read.
    pub src: u64,
    /// First byte written.
    pub dst: u64,
    /// When it started, CLOCK_BOOTTIME ns.
    pub start: u64,
    /// When it ended, CLOCK_BOOTTIME ns.
    pub end: u64,
}

/// An access to a counter register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Register {
    /// Address of the queue's ring.
    pub ring: u64,
    /// Index of the packet.
    pub index: u64,
    /// The XCC that accessed its register.
    pub xcc: u32,
    /// Whether it is a write; otherwise it is a read.
    pub write: bool,
    /// Address in words.
    pub register: u32,
    /// `GRBM_GFX_INDEX` at that moment.
    pub unit: u32,
    /// The value that was written or read.
    pub value: u32,
    /// The address to which a read value was stored, otherwise 0.
    pub at: u64,
}

/// A thread trace of an engine that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Trace {
    /// Address of the queue's ring.
    pub ring: u64,
    /// Index of the packet that ended it.
    pub index: u64,
    /// The XCC.
    pub xcc: u32,
    /// Its engine.
    pub engine: u32,
    /// Address of the buffer.
    pub base: u64,
    /// How many bytes were written.
    pub bytes: u64,
    /// Whether not all blocks found room.
    pub full: bool,
    /// The FNV-1a hash of the bytes.
    pub hash: u64,
}

/// The commands of a vendor packet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pm4 {
    /// Address of the queue's ring.
    pub ring: u64,
    /// Index of the packet.
    pub index: u64,
    /// Address of the commands.
    pub at: u64,
    /// Their length in 32-bit words.
    pub words: u32,
    /// The values that were written to `CP_PERFMON_CNTL` of XCC 0, in order.
    pub control: Vec<u32>,
    /// The number of registers read into memory, on all XCCs.
    pub reads: u32,
    /// The queue's `COMPUTE_PERFCOUNT_ENABLE` afterwards.
    pub enabled: bool,
    /// The queue whose counting was destroyed by a reset.
    pub over: Option<u32>,
    /// A word that was not understood, or 0.
    pub unknown: u32,
}

/// What a record reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A process has loaded the model.
    Model {
        /// Mode.
        eager: bool,
        /// Seed of the eager mode.
        seed: u64,
        /// Length of a kernel in ns.
        kernel_ns: u64,
    },
    /// A queue was created.
    Queue {
        /// SDMA, else AQL.
        sdma: bool,
        /// Address of the ring.
        ring: u64,
        /// Packets (AQL) or bytes (SDMA).
        size: u64,
        /// Address of the write index.
        write_index_at: u64,
        /// Address of the read index.
        read_index_at: u64,
        /// Address of the doorbell, 0 if the runtime named none.
        doorbell_at: u64,
    },
    /// A queue was destroyed; its read index.
    QueueEnd {
        /// Read index.
        index: u64,
    },
    /// A kernel with a time of its own was taken.
    Begin(Dispatch),
    /// A kernel ran.
    Dispatch(Dispatch),
    /// A kernel was cut off by the end of its queue.
    Cut(Dispatch),
    /// A barrier was passed.
    Barrier {
        /// The fields that all packets have.
        packet: Packet,
        /// Barrier-or, else barrier-and.
        or: bool,
        /// Handles of the signals waited for, 0 for none.
        deps: [u64; 5],
    },
    /// A vendor packet was passed.
    Vendor {
        /// The fields that all packets have.
        packet: Packet,
        /// 1: PM4 commands, 2: barrier-value.
        format: u8,
    },
    /// A register of the counters was accessed.
    Register(Register),
    /// The commands of a vendor packet were executed.
    Pm4(Pm4),
    /// Bytes were moved.
    Copy(Copy),
    /// Another SDMA packet.
    Sdma {
        /// Address of the queue's ring.
        ring: u64,
        /// Offset of the packet in bytes.
        index: u64,
        /// The highest index that the doorbell had reported when the packet was taken.
        doorbell: i64,
        /// fence, trap, poll, add64, fill, timestamp, gcr, nop.
        op: &'static str,
        /// Address, or 0.
        at: u64,
        /// The value that it wrote, added, compared or raised.
        value: u64,
    },
    /// A dispatch was taken from a ring in device memory.
    Reads {
        /// Address of the queue's ring.
        ring: u64,
        /// Index of the packet.
        index: u64,
        /// The number of reads over the bus since the queue was created.
        count: u64,
    },
    /// The queue was stopped until the runtime has reacted.
    Stop {
        /// Address of the queue's ring.
        ring: u64,
        /// Index of the packet.
        index: u64,
        /// The code that was passed to the runtime.
        code: u64,
        /// Bytes of scratch memory per work-item that the packet needs.
        need: u32,
        /// Bytes of scratch memory per work-item that the queue had.
        have: u32,
    },
    /// Program counters of a running kernel were sampled.
    Samples {
        /// Address of the queue's ring.
        ring: u64,
        /// Index of the packet.
        index: u64,
        /// Address of the kernel descriptor.
        kernel_object: u64,
        /// What was taken.
        taken: Taken,
    },
    /// A thread trace ended.
    Trace(Trace),
    /// A packet that the model does not know. Its queue stops there.
    Unknown {
        /// Address of the queue's ring.
        ring: u64,
        /// Index (AQL) or offset (SDMA).
        index: u64,
        /// First 32 bits.
        word: u32,
    },
}

/// One line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// When the record was written, CLOCK_BOOTTIME ns.
    pub time: u64,
    /// The process.
    pub pid: u32,
    /// Number of the queue in that process, or 0 for `model`.
    pub queue: u32,
    /// What happened.
    pub event: Event,
}

struct Words<'a>(&'a Packet);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let p = self.0;
        let times = if p.times_written { "signal" } else { "none" };
        write!(
            f,
            "ring={:#x} idx={} hdr={:#06x} sig={:#x} start={} end={} times={times} db={}",
            p.ring, p.index, p.header, p.signal, p.start, p.end, p.doorbell
        )
    }
}

fn dispatch(f: &mut fmt::Formatter<'_>, name: &str, d: &Dispatch) -> fmt::Result {
    let ([wx, wy, wz], [gx, gy, gz]) = (d.workgroup, d.grid);
    write!(
        f,
        "{name} {} setup={} wg={wx},{wy},{wz} grid={gx},{gy},{gz} private={} group={} kobj={:#x} kernarg={:#x} format={}",
        Words(&d.packet),
        d.setup,
        d.private_size,
        d.group_size,
        d.kernel_object,
        d.kernarg,
        d.format
    )
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t={} pid={} q={} ev=", self.time, self.pid, self.queue)?;
        match &self.event {
            Event::Model {
                eager,
                seed,
                kernel_ns,
            } => {
                write!(
                    f,
                    "model eager={} seed={seed} kernel_ns={kernel_ns}",
                    u8::from(*eager)
                )
            }
            Event::Queue {
                sdma,
                ring,
                size,
                write_index_at,
                read_index_at,
                doorbell_at,
            } => write!(
                f,
                "queue kind={} ring={ring:#x} size={size} wp={write_index_at:#x} rp={read_index_at:#x} doorbell={doorbell_at:#x}",
                if *sdma { "sdma" } else { "aql" }
            ),
            Event::QueueEnd { index } => write!(f, "queue-end idx={index}"),
            Event::Begin(d) => dispatch(f, "begin", d),
            Event::Dispatch(d) => dispatch(f, "dispatch", d),
            Event::Cut(d) => dispatch(f, "cut", d),
            Event::Barrier { packet, or, deps } => {
                write!(
                    f,
                    "barrier {} op={} deps=",
                    Words(packet),
                    if *or { "or" } else { "and" }
                )?;
                for (n, dep) in deps.iter().enumerate() {
                    write!(f, "{}{dep:#x}", if n > 0 { "," } else { "" })?;
                }
                Ok(())
            }
            Event::Vendor { packet, format } => {
                write!(f, "vendor {} format={format}", Words(packet))
            }
            Event::Register(r) => write!(
                f,
                "register ring={:#x} idx={} xcc={} op={} reg={:#x} unit={:#x} value={:#x} at={:#x}",
                r.ring,
                r.index,
                r.xcc,
                if r.write { "write" } else { "read" },
                r.register,
                r.unit,
                r.value,
                r.at
            ),
            Event::Pm4(p) => {
                write!(
                    f,
                    "pm4 ring={:#x} idx={} at={:#x} words={} control=",
                    p.ring, p.index, p.at, p.words
                )?;
                for (n, value) in p.control.iter().enumerate() {
                    write!(f, "{}{value:#x}", if n > 0 { "," } else { "" })?;
                }
                let over = p.over.map_or(-1, i64::from);
                write!(
                    f,
                    "{} reads={} enabled={} over={over} unknown={:#x}",
                    if p.control.is_empty() { "-" } else { "" },
                    p.reads,
                    u8::from(p.enabled),
                    p.unknown
                )
            }
            Event::Copy(c) => write!(
                f,
                "copy ring={:#x} idx={} db={} op={} bytes={} src={:#x} dst={:#x} start={} end={}",
                c.ring,
                c.index,
                c.doorbell,
                if c.rect { "rect" } else { "linear" },
                c.bytes,
                c.src,
                c.dst,
                c.start,
                c.end
            ),
            Event::Sdma {
                ring,
                index,
                doorbell,
                op,
                at,
                value,
            } => {
                write!(
                    f,
                    "sdma ring={ring:#x} idx={index} db={doorbell} op={op} at={at:#x} value={value}"
                )
            }
            Event::Reads { ring, index, count } => {
                write!(f, "reads ring={ring:#x} idx={index} count={count}")
            }
            Event::Stop {
                ring,
                index,
                code,
                need,
                have,
            } => {
                write!(
                    f,
                    "stop ring={ring:#x} idx={index} code={code} need={need} have={have}"
                )
            }
            Event::Samples {
                ring,
                index,
                kernel_object,
                taken,
            } => {
                write!(
                    f,
                    "samples ring={ring:#x} idx={index} kobj={kernel_object:#x} invalid={} lost={} at=",
                    taken.invalid, taken.lost
                )?;
                for (n, (offset, count)) in taken.offsets.iter().enumerate() {
                    write!(f, "{}{offset}*{count}", if n > 0 { "," } else { "" })?;
                }
                f.write_str(if taken.offsets.is_empty() { "-" } else { "" })
            }
            Event::Trace(Trace {
                ring,
                index,
                xcc,
                engine,
                base,
                bytes,
                full,
                hash,
            }) => write!(
                f,
                "trace ring={ring:#x} idx={index} xcc={xcc} engine={engine} base={base:#x} bytes={bytes} full={} hash={hash:#x}",
                u8::from(*full)
            ),
            Event::Unknown { ring, index, word } => {
                write!(f, "unknown ring={ring:#x} idx={index} word={word:#x}")
            }
        }
    }
}

impl Record {
    /// Returns the record as a line with its newline, ready for one `write`.
    pub fn line(&self) -> String {
        let mut line = String::with_capacity(320);
        // Writing to a String cannot fail.
        let _ = writeln!(line, "{self}");
        line
    }
}

/// Names of the SDMA packets that are not copies.
const SDMA_OPS: [&str; 8] = [
    "nop",
    "fence",
    "trap",
    "poll",
    "add64",
    "fill",
    "timestamp",
    "gcr",
];

/// The fields of a line. They are few, and logs have millions of lines: a table of hashes took longer
/// to make than all looks into it.
struct Fields<'a>(Vec<(&'a str, &'a str)>);

/// Reads a decimal or, after `0x`, a hexadecimal number.
fn number_of<T: TryFrom<u64>>(key: &str, text: &str) -> Result<T, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed
        .ok()
        .and_then(|value| T::try_from(value).ok())
        .ok_or_else(|| format!("{key}={text}"))
}

impl<'a> Fields<'a> {
    fn text(&self, key: &str) -> Result<&'a str, String> {
        let mut fields = self.0.iter().rev();
        let found = fields.find(|(name, _)| *name == key);
        found
            .map(|(_, text)| *text)
            .ok_or_else(|| format!("no {key}"))
    }
    fn number<T: TryFrom<u64>>(&self, key: &str) -> Result<T, String> {
        number_of(key, self.text(key)?)
    }
    fn signed(&self, key: &str) -> Result<i64, String> {
        let text = self.text(key)?;
        text.parse().map_err(|_| format!("{key}={text}"))
    }
    fn list<const N: usize, T: TryFrom<u64> + Default + std::marker::Copy>(
        &self,
        key: &str,
    ) -> Result<[T; N], String> {
        let text = self.text(key)?;
        let mut out = [T::default(); N];
        let mut words = text.split(',');
        for slot in &mut out {
            let word = words.next().ok_or_else(|| format!("{key}={text}"))?;
            *slot = number_of(key, word)?;
        }
        if words.next().is_some() {
            Err(format!("{key}={text}"))
        } else {
            Ok(out)
        }
    }
    /// Returns a list of any length; `-` is the empty one.
    fn numbers(&self, key: &str) -> Result<Vec<u32>, String> {
        let text = self.text(key)?;
        let words = text.split(',').filter(|word| *word != "-");
        words.map(|word| number_of(key, word)).collect()
    }
    /// Returns counts by key: `KEY*COUNT,...`; `-` is none.
    fn counts(&self, key: &str) -> Result<BTreeMap<u64, u64>, String> {
        let text = self.text(key)?;
        let words = text.split(',').filter(|word| *word != "-");
        words
            .map(|word| {
                let (offset, count) = word
                    .split_once('*')
                    .ok_or_else(|| format!("{key}={text}"))?;
                Ok((number_of(key, offset)?, number_of(key, count)?))
            })
            .collect()
    }
    fn either(&self, key: &str, yes: &str, no: &str) -> Result<bool, String> {
        match self.text(key)? {
            text if text == yes => Ok(true),
            text if text == no => Ok(false),
            text => Err(format!("{key}={text}")),
        }
    }
    fn packet(&self) -> Result<Packet, String> {
        Ok(Packet {
            ring: self.number("ring")?,
            index: self.number("idx")?,
            header: self.number("hdr")?,
            signal: self.number("sig")?,
            start: self.number("start")?,
            end: self.number("end")?,
            times_written: self.either("times", "signal", "none")?,
            doorbell: self.signed("db")?,
        })
    }
    fn dispatch(&self) -> Result<Dispatch, String> {
        Ok(Dispatch {
            packet: self.packet()?,
            format: self.number("format")?,
            setup: self.number("setup")?,
            workgroup: self.list("wg")?,
            grid: self.list("grid")?,
            private_size: self.number("private")?,
            group_size: self.number("group")?,
            kernel_object: self.number("kobj")?,
            kernarg: self.number("kernarg")?,
        })
    }
    fn event(&self) -> Result<Event, String> {
        Ok(match self.text("ev")? {
            "model" => Event::Model {
                eager: self.either("eager", "1", "0")?,
                seed: self.number("seed")?,
                kernel_ns: self.number("kernel_ns")?,
            },
            "queue" => Event::Queue {
                sdma: self.either("kind", "sdma", "aql")?,
                ring: self.number("ring")?,
                size: self.number("size")?,
                write_index_at: self.number("wp")?,
                read_index_at: self.number("rp")?,
                doorbell_at: self.number("doorbell")?,
            },
            "queue-end" => Event::QueueEnd {
                index: self.number("idx")?,
            },
            "begin" => Event::Begin(self.dispatch()?),
            "dispatch" => Event::Dispatch(self.dispatch()?),
            "cut" => Event::Cut(self.dispatch()?),
            "barrier" => Event::Barrier {
                packet: self.packet()?,
                or: self.either("op", "or", "and")?,
                deps: self.list("deps")?,
            },
            "vendor" => Event::Vendor {
                packet: self.packet()?,
                format: self.number("format")?,
            },
            "register" => Event::Register(Register {
                ring: self.number("ring")?,
                index: self.number("idx")?,
                xcc: self.number("xcc")?,
                write: self.either("op", "write", "read")?,
                register: self.number("reg")?,
                unit: self.number("unit")?,
                value: self.number("value")?,
                at: self.number("at")?,
            }),
            "pm4" => Event::Pm4(Pm4 {
                ring: self.number("ring")?,
                index: self.number("idx")?,
                at: self.number("at")?,
                words: self.number("words")?,
                control: self.numbers("control")?,
                reads: self.number("reads")?,
                enabled: self.either("enabled", "1", "0")?,
                over: match self.signed("over")? {
                    -1 => None,
                    queue => Some(u32::try_from(queue).map_err(|_| format!("over={queue}"))?),
                },
                unknown: self.number("unknown")?,
            }),
            "copy" => Event::Copy(Copy {
                ring: self.number("ring")?,
                index: self.number("idx")?,
                doorbell: self.signed("db")?,
                rect: self.either("op", "rect", "linear")?,
                bytes: self.number("bytes")?,
                src: self.number("src")?,
                dst: self.number("dst")?,
                start: self.number("start")?,
                end: self.number("end")?,
            }),
            "sdma" => {
                let name = self.text("op")?;
                Event::Sdma {
                    ring: self.number("ring")?,
                    index: self.number("idx")?,
                    doorbell: self.signed("db")?,
                    op: SDMA_OPS
                        .into_iter()
                        .find(|op| *op == name)
                        .ok_or_else(|| format!("op={name}"))?,
                    at: self.number("at")?,
                    value: self.number("value")?,
                }
            }
            "reads" => Event::Reads {
                ring: self.number("ring")?,
                index: self.number("idx")?,
                count: self.number("count")?,
            },
            "stop" => Event::Stop {
                ring: self.number("ring")?,
                index: self.number("idx")?,
                code: self.number("code")?,
                need: self.number("need")?,
                have: self.number("have")?,
            },
            "samples" => Event::Samples {
                ring: self.number("ring")?,
                index: self.number("idx")?,
                kernel_object: self.number("kobj")?,
                taken: Taken {
                    offsets: self.counts("at")?,
                    invalid: self.number("invalid")?,
                    lost: self.number("lost")?,
                },
            },
            "trace" => Event::Trace(Trace {
                ring: self.number("ring")?,
                index: self.number("idx")?,
                xcc: self.number("xcc")?,
                engine: self.number("engine")?,
                base: self.number("base")?,
                bytes: self.number("bytes")?,
                full: self.either("full", "1", "0")?,
                hash: self.number("hash")?,
            }),
            "unknown" => Event::Unknown {
                ring: self.number("ring")?,
                index: self.number("idx")?,
                word: self.number("word")?,
            },
            other => return Err(format!("ev={other}")),
        })
    }
}

/// Parses one line.
///
/// # Errors
/// Fails when a word is missing or cannot be parsed, and names the word.
pub fn parse_line(line: &str) -> Result<Record, String> {
    let fields = Fields(
        line.split_ascii_whitespace()
            .filter_map(|word| word.split_once('='))
            .collect(),
    );
    let read = || {
        Ok::<_, String>(Record {
            time: fields.number("t")?,
            pid: fields.number("pid")?,
            queue: fields.number("q")?,
            event: fields.event()?,
        })
    };
    read().map_err(|what| format!("{what} in the model's log: {line}"))
}

/// Parses a whole log. A last line without its newline is refused, too. Since a record is one
/// `write`, there can be no such line.
///
/// # Errors
/// Returns the first line that is not a record.
pub fn parse(text: &str) -> Result<Vec<Record>, String> {
    if !text.is_empty() && !text.ends_with('\n') {
        return Err("the model's log ends in the middle of a line".into());
    }
    text.lines().map(parse_line).collect()
}

#[cfg(test)]
mod tests;
