//! The sequence of a sampling: libraries, GPU, groups, then samples until the parent goes away.

use super::Refusal;
use super::device::{Device, Image, availability, chip};
use super::evaluator::Fast;
use super::host::{Group, Host, Slow};
use super::library::{Cupti, Driver, ProfilerInitialize, refused};
use crate::wire::{Event, Question, Samples};
use std::ffi::{CStr, OsStr};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The time between two looks at what the hardware has written. A decoding costs CUPTI 10 ms and
/// more, however few samples there are (seen on an H100).
const LOOK: Duration = Duration::from_millis(100);
/// The most samples between two looks. A sample of 11 metrics takes some 25 KB of the hardware's
/// buffer of 64 MiB. With 2,700 samples between two looks, most were lost (seen on an H100 at 10
/// kHz).
const MOST_BETWEEN: u64 = 700;
/// The number of looks whose samples fit into an image.
const LOOKS: u64 = 5;
/// The fewest samples for which an image has room.
const LEAST_ROOM: u32 = 512;
const MOST_ROOM: u32 = 8192;
/// The number of samples whose values are computed in both ways.
const COMPARED: u64 = 32;
/// Values that differ by less count as equal: the two ways may add in another order.
const SAME: f64 = 1e-9;
/// The most decodings of one look. There has to be a limit, since the hardware goes on writing.
const MOST_IMAGES: u32 = 64;

/// Why the sampling ended, unless the parent asked for it.
enum Ended {
    /// CUPTI refused.
    Refused(Refusal),
    /// Nobody reads our answers any more.
    Alone,
}

impl From<Refusal> for Ended {
    fn from(refusal: Refusal) -> Ended {
        Ended::Refused(refusal)
    }
}

impl From<io::Error> for Ended {
    fn from(_: io::Error) -> Ended {
        Ended::Alone
    }
}

/// Answers a question, until `stop` gets a message or its other end is closed.
pub fn run(
    library: &OsStr,
    question: &Question,
    stop: &Receiver<()>,
    say: &mut dyn FnMut(&Event) -> io::Result<()>,
) {
    match answer(library, question, stop, say) {
        Ok(()) | Err(Ended::Alone) => {}
        Err(Ended::Refused(Refusal {
            what,
            status,
            words,
        })) => {
            let _ = say(&Event::Refused {
                what,
                status,
                words,
            });
        }
    }
}

fn answer(
    library: &OsStr,
    question: &Question,
    stop: &Receiver<()>,
    say: &mut dyn FnMut(&Event) -> io::Result<()>,
) -> Result<(), Ended> {
    let began = Instant::now();
    // The driver comes first, because CUPTI looks for it when it is loaded.
    let driver = Driver::open()?;
    let cupti = Cupti::open(library)?;
    // SAFETY: the struct has no pointers to fill in.
    unsafe { cupti.library.call(&mut ProfilerInitialize::default()) }
        .map_err(refused::<ProfilerInitialize>)?;
    let count = driver.count().unwrap_or(0);
    if question.gpu >= count {
        return Err(Refusal {
            what: "gpu".into(),
            status: -1,
            words: count.to_string(),
        }
        .into());
    }
    let chip = chip(&cupti, question.gpu)?;
    let mut facts = vec![
        ("chip".to_owned(), chip.to_string_lossy().into_owned()),
        ("cupti".to_owned(), cupti.version.to_string()),
        ("library".to_owned(), library.to_string_lossy().into_owned()),
    ];
    for (key, function) in [
        ("name", c"cuDeviceGetName"),
        ("bus", c"cuDeviceGetPCIBusId"),
    ] {
        facts.extend(
            driver
                .text(function, question.gpu)
                .map(|text| (key.to_owned(), text)),
        );
    }
    say(&Event::Hello(facts))?;
    let image = availability(&cupti, question.gpu)?;
    // Made only as a test: a refusal here would otherwise be repeated for each metric.
    drop(Host::new(&cupti, &chip, &image)?);
    if question.list {
        let names = Host::new(&cupti, &chip, &image)?.base_metrics()?;
        return Ok(say(&Event::Names(names))?);
    }
    let (groups, without) = Host::groups(&cupti, &chip, &image, &question.metrics);
    let metrics = groups
        .iter()
        .flat_map(|group| group.metrics.clone())
        .collect();
    say(&Event::Metrics(metrics, without))?;
    if groups.is_empty() {
        return Ok(say(&Event::End(Vec::new()))?);
    }
    let mut sampling = Sampling {
        evaluations: groups
            .iter()
            .map(|group| Evaluation::new(&cupti, &chip, &image, group))
            .collect::<Result<_, _>>()?,
        groups: &groups,
        cupti: &cupti,
        question,
        say,
        facts: Facts {
            set_up: began.elapsed(),
            ..Facts::default()
        },
    };
    sampling.all(stop)?;
    let Sampling {
        evaluations,
        facts,
        say,
        ..
    } = sampling;
    Ok(say(&Event::End(facts.lines(&evaluations)))?)
}

/// The facts that are reported at the end.
#[derive(Default)]
struct Facts {
    set_up: Duration,
    start: Duration,
    stop: Duration,
    looks: u64,
    /// Samples that CUPTI gave twice.
    again: u64,
    /// Processor time spent on each part.
    decode: Duration,
    evaluate: Duration,
    clear: Duration,
    image_bytes: usize,
    buffer_bytes: usize,
    /// Processor time of each of the two ways, for the samples whose values were computed in both.
    prepared: Duration,
    by_name: Duration,
    compared: u32,
    /// The least time from a sample's end to its decoding, ns.
    age: Option<i64>,
}

impl Facts {
    fn lines(&self, evaluations: &[Evaluation<'_>]) -> Vec<(String, String)> {
        let fast = evaluations.iter().all(|it| it.fast.is_some());
        let text = |key: &str, value: String| (key.to_owned(), value);
        vec![
            text(
                "set_up_ms",
                format!("{:.1}", self.set_up.as_secs_f64() * 1e3),
            ),
            text("start_ms", format!("{:.3}", self.start.as_secs_f64() * 1e3)),
            text("stop_ms", format!("{:.1}", self.stop.as_secs_f64() * 1e3)),
            text("looks", self.looks.to_string()),
            text("again", self.again.to_string()),
            text("decode_ms", milliseconds(self.decode)),
            text("evaluate_ms", milliseconds(self.evaluate)),
            text("clear_ms", milliseconds(self.clear)),
            text("image_bytes", self.image_bytes.to_string()),
            text("buffer_bytes", self.buffer_bytes.to_string()),
            text("prepared_us", each(self.prepared, self.compared)),
            text("by_name_us", each(self.by_name, self.compared)),
            text(
                "evaluation",
                if fast { "prepared" } else { "by name" }.to_owned(),
            ),
            text(
                "age_us",
                self.age
                    .map_or(String::new(), |age| format!("{:.1}", age as f64 / 1e3)),
            ),
            text("cpu_ms", format!("{:.1}", cpu().as_secs_f64() * 1e3)),
        ]
    }
}

/// Returns the microseconds that each of `count` took.
fn each(time: Duration, count: u32) -> String {
    time.checked_div(count).map_or(String::new(), |time| {
        format!("{:.1}", time.as_secs_f64() * 1e6)
    })
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e3)
}

/// One turn of a group.
#[derive(Default)]
struct Turn {
    /// When its last sample ended, in the device's nanoseconds.
    last: u64,
}

/// Processor time of this process.
fn cpu() -> Duration {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn clock(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes one struct, for which the pointer is valid.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    Duration::new(
        time.tv_sec.cast_unsigned(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// The two ways to compute values.
struct Evaluation<'a> {
    fast: Option<Fast>,
    slow: Slow<'a>,
    compared: u64,
}

impl<'a> Evaluation<'a> {
    fn new(
        cupti: &'a Cupti,
        chip: &CStr,
        availability: &[u64],
        group: &Group,
    ) -> Result<Evaluation<'a>, Refusal> {
        Ok(Evaluation {
            fast: Fast::new(cupti, chip, group),
            slow: Slow::new(Host::new(cupti, chip, availability)?, group),
            compared: 0,
        })
    }

    /// Prepares for an image. Call it before taking samples from an image that was initialised
    /// anew.
    fn begin(&mut self, image: &Image) {
        if let Some(fast) = &self.fast {
            // SAFETY: the caller initialised the image for this group, and it has as many bytes as
            // it says.
            if unsafe { fast.attributes(image.as_ptr(), image.bytes()) }.is_err() {
                self.fast = None;
            }
        }
    }

    fn values(
        &mut self,
        image: &Image,
        index: usize,
        values: &mut [f64],
        facts: &mut Facts,
    ) -> Result<(), Refusal> {
        let (at, bytes) = (image.as_ptr(), image.bytes());
        let Some(fast) = &self.fast else {
            // SAFETY: the caller initialised the image for this group, as `begin` says.
            return unsafe { self.slow.evaluate(at, bytes, index, values) };
        };
        let whole = self.compared >= COMPARED;
        let before = if whole { Duration::ZERO } else { cpu() };
        // SAFETY: the caller initialised the image for this group, as `begin` says.
        let got = unsafe { fast.evaluate(at, bytes, index, values) };
        if got.is_ok() && whole {
            return Ok(());
        }
        let between = cpu();
        let mut other = vec![0.0; values.len()];
        // SAFETY: the caller initialised the image for this group, as `begin` says.
        unsafe { self.slow.evaluate(at, bytes, index, &mut other) }?;
        self.compared += 1;
        facts.compared += 1;
        facts.prepared += between.saturating_sub(before);
        facts.by_name += cpu().saturating_sub(between);
        let same = |(a, b): (&f64, &f64)| {
            a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= SAME * a.abs().max(b.abs())
        };
        if got.is_err() || !values.iter().zip(&other).all(same) {
            self.fast = None;
        }
        values.copy_from_slice(&other);
        Ok(())
    }
}

/// A sampling in progress.
struct Sampling<'a> {
    evaluations: Vec<Evaluation<'a>>,
    groups: &'a [Group],
    cupti: &'a Cupti,
    question: &'a Question,
    say: &'a mut dyn FnMut(&Event) -> io::Result<()>,
    facts: Facts,
}

impl Sampling<'_> {
    /// Samples one group after the other, until the end. Each turn enables the device anew: after a
    /// second configuration, CUPTI 13.0 and 13.5 give no samples (seen on an H100).
    fn all(&mut self, stop: &Receiver<()>) -> Result<(), Ended> {
        let turn = match self.groups {
            [_] => None,
            _ => Some(Duration::from_millis(self.question.turn.max(1))),
        };
        let interval = self.question.interval.max(1);
        let period = LOOK.min(Duration::from_nanos(interval.saturating_mul(MOST_BETWEEN)));
        let room = LOOKS * period.as_nanos() as u64 / interval;
        let room = u32::try_from(room)
            .unwrap_or(u32::MAX)
            .clamp(LEAST_ROOM, MOST_ROOM);
        let mut images: Vec<Option<Image>> = self.groups.iter().map(|_| None).collect();
        let mut number = 0;
        let mut first = true;
        loop {
            let Some(group) = self.groups.get(number) else {
                return Ok(());
            };
            let known = images.get_mut(number).and_then(Option::take);
            let mut device = Device::enable(self.cupti, self.question.gpu)?;
            let before = Instant::now();
            let (mut image, buffer) = device.start_with(group, interval, room, known)?;
            self.facts.image_bytes = image.bytes();
            self.facts.buffer_bytes = buffer;
            if first {
                self.facts.start = before.elapsed();
                (self.say)(&Event::Started)?;
                first = false;
            }
            let mut taken = Turn::default();
            let mut looked = Instant::now();
            let ended = loop {
                // Counted from the begin of one look to that of the next, so that the time a look
                // takes is part of the pause.
                let next = period.saturating_sub(looked.elapsed());
                let left =
                    turn.map_or(next, |turn| turn.saturating_sub(before.elapsed()).min(next));
                let ended = !matches!(stop.recv_timeout(left), Err(RecvTimeoutError::Timeout));
                let over = turn.is_some_and(|turn| before.elapsed() >= turn);
                if ended || over {
                    let before = Instant::now();
                    device.stop()?;
                    self.facts.stop = before.elapsed();
                }
                looked = Instant::now();
                let overflow = self.look(number, &device, &mut image, &mut taken)?;
                if overflow {
                    (self.say)(&Event::Overflow)?;
                }
                // When the buffer is full, the samples in it are whole but the hardware writes no
                // more. So the turn begins anew.
                if ended || over || overflow {
                    break ended;
                }
            };
            if ended {
                return Ok(());
            }
            if let Some(place) = images.get_mut(number) {
                *place = Some(image);
            }
            number = (number + 1) % self.groups.len();
        }
    }

    /// Takes what the hardware has written. Returns whether its buffer was full.
    fn look(
        &mut self,
        number: usize,
        device: &Device<'_>,
        image: &mut Image,
        turn: &mut Turn,
    ) -> Result<bool, Ended> {
        let Some(group) = self.groups.get(number) else {
            return Ok(false);
        };
        let width = group.metrics.len();
        let mut overflow = false;
        for _ in 0..MOST_IMAGES {
            self.facts.looks += 1;
            let before = cpu();
            let decoded = device.decode(image)?;
            let after = cpu();
            self.facts.decode += after.saturating_sub(before);
            overflow |= decoded.overflow;
            // Both clocks are read at the same moment, since CUPTI's times are those of the wall
            // clock.
            let (wall, boot) = (
                nanoseconds(clock(libc::CLOCK_REALTIME)),
                nanoseconds(clock(libc::CLOCK_BOOTTIME)),
            );
            let Some(evaluation) = self.evaluations.get_mut(number) else {
                return Ok(false);
            };
            if image.taken == 0 && decoded.samples > 0 {
                evaluation.begin(image);
            }
            let mut samples = Samples {
                group: number as u32,
                ..Samples::default()
            };
            for index in image.taken..decoded.samples {
                let (start, end) = device.times(image, index)?;
                // The first sample begins before the start of the sampling, so it is left out.
                let first = turn.last == 0;
                let again = end <= turn.last || start < turn.last;
                if first || again {
                    self.facts.again += u64::from(!first);
                    turn.last = turn.last.max(end);
                    continue;
                }
                turn.last = end;
                let from = samples.values.len();
                samples.values.resize(from + width, 0.0);
                let values = samples.values.get_mut(from..).unwrap_or_default();
                evaluation.values(image, index, values, &mut self.facts)?;
                for (value, divisor) in values.iter_mut().zip(&group.divisors) {
                    *value /= divisor;
                }
                let age = wall - end.cast_signed();
                self.facts.age = Some(self.facts.age.map_or(age, |least| least.min(age)));
                samples.times.push((
                    start.wrapping_add_signed(boot - wall),
                    end.wrapping_add_signed(boot - wall),
                ));
            }
            let fresh = decoded.samples.saturating_sub(image.taken);
            image.taken = decoded.samples;
            let evaluated = cpu();
            self.facts.evaluate += evaluated.saturating_sub(after);
            // A full image loses the sample that is being decoded (seen on an H100). Emptying an
            // image costs as much as all the samples that fit into it, so it is done only when the
            // next look could fill the image.
            if decoded.more || image.room.saturating_sub(image.taken) < 2 * fresh {
                device.clear(image)?;
                self.facts.clear += cpu().saturating_sub(evaluated);
            }
            if !samples.times.is_empty() {
                (self.say)(&Event::Samples(samples))?;
            }
            if !decoded.more {
                break;
            }
        }
        Ok(overflow)
    }
}
