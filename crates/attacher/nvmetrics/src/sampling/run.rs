//! The sequence of a sampling: libraries, GPU, groups, then samples until the parent goes away.

use super::Refusal;
use super::device::{Device, IMAGES, Image, availability, chip};
use super::host::{Group, Host};
use super::library::{Cupti, Driver, ProfilerInitialize, refused};
use super::values::{self, Done, Evaluations, Work};
use crate::wire::{Event, Question};
use std::ffi::OsStr;
use std::io;
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// The time between two looks at what the hardware has written. A longer one costs no less: a
/// decoding costs by its samples and by the time that they span (seen on an H200).
const LOOK: Duration = Duration::from_millis(100);
/// The most samples between two looks. A sample of 11 metrics takes some 25 KB of the hardware's
/// buffer of 64 MiB. With 2,700 samples between two looks, most were lost (seen on an H100 at 10
/// kHz).
const MOST_BETWEEN: u64 = 700;
/// The number of looks whose samples fit into an image.
const LOOKS: u64 = 4;
/// The fewest samples for which an image has room.
const LEAST_ROOM: u32 = 512;
const MOST_ROOM: u32 = 8192;
/// The most decodings of one look. There has to be a limit, since the hardware goes on writing.
const MOST_IMAGES: u32 = 64;
/// The limit for the values of one image's samples to be computed and said. The parent may be stopped
/// for a while, and then it takes nothing.
const VALUES: Duration = Duration::from_secs(120);

/// Where answers go.
pub type Say<'a> = &'a mut (dyn FnMut(&Event) -> io::Result<()> + Send);

/// Why the sampling ended, unless the parent asked for it.
enum Ended {
    /// CUPTI refused.
    Refused(Refusal),
    /// No process reads our answers any more.
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
pub fn run(library: &OsStr, question: &Question, stop: &Receiver<()>, say: Say<'_>) {
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
    say: Say<'_>,
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
    let evaluations = Evaluations::new(&cupti, &chip, &image, &groups)?;
    let say = Mutex::new(say);
    let (facts, computed) = thread::scope(|scope| {
        let (give, work) = mpsc::channel();
        let (back, done) = mpsc::channel();
        let (groups, say) = (&groups, &say);
        let thread = thread::Builder::new()
            .name("midair-nv-val".into())
            .spawn_scoped(scope, move || evaluations.work(groups, &work, &back, say))
            .map_err(|error| Refusal::new("a thread", error.to_string()))?;
        let mut sampling = Sampling {
            groups,
            cupti: &cupti,
            question,
            say,
            give,
            done,
            ready: Vec::new(),
            facts: Facts {
                set_up: began.elapsed(),
                ..Facts::default()
            },
        };
        sampling.all(stop)?;
        // Without its end of the channel, the thread ends.
        let facts = sampling.facts;
        drop(sampling.give);
        let computed = thread.join().map_err(|_| Ended::Alone)?;
        Ok::<_, Ended>((facts, computed))
    })?;
    let mut say = say.lock().map_err(|_| Ended::Alone)?;
    Ok(say(&Event::End(facts.lines(&computed)))?)
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
    /// Of the samples' times.
    times: Duration,
    clear: Duration,
    /// Bytes of all images of a group.
    image_bytes: usize,
    buffer_bytes: usize,
    /// The least time from a sample's end to its decoding, ns.
    age: Option<i64>,
}

impl Facts {
    fn lines(&self, values: &values::Facts) -> Vec<(String, String)> {
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
            text("evaluate_ms", milliseconds(self.times + values.evaluate)),
            text("clear_ms", milliseconds(self.clear)),
            text("image_bytes", self.image_bytes.to_string()),
            text("buffer_bytes", self.buffer_bytes.to_string()),
            text("prepared_us", each(values.prepared, values.compared)),
            text("by_name_us", each(values.by_name, values.compared)),
            text(
                "evaluation",
                if values.fast { "prepared" } else { "by name" }.to_owned(),
            ),
            text(
                "age_us",
                self.age
                    .map_or(String::new(), |age| format!("{:.1}", age as f64 / 1e3)),
            ),
            text(
                "cpu_ms",
                milliseconds(clock(libc::CLOCK_PROCESS_CPUTIME_ID)),
            ),
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

/// Processor time of this thread.
fn cpu() -> Duration {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Reads a clock of the system's.
pub fn clock(clock: libc::clockid_t) -> Duration {
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

/// A sampling in progress.
struct Sampling<'a, 's> {
    groups: &'a [Group],
    cupti: &'a Cupti,
    question: &'a Question,
    say: &'a Mutex<Say<'s>>,
    /// To the thread that computes values, and back.
    give: Sender<Work>,
    done: Receiver<Done>,
    /// The group's images that the thread does not have.
    ready: Vec<Image>,
    facts: Facts,
}

impl Sampling<'_, '_> {
    /// Samples one group after the other, until the end. Each turn enables the device again: after a
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
        let mut images: Vec<Vec<Image>> = self.groups.iter().map(|_| Vec::new()).collect();
        let mut number = 0;
        let mut first = true;
        loop {
            let Some(group) = self.groups.get(number) else {
                return Ok(());
            };
            let known = images
                .get_mut(number)
                .map(std::mem::take)
                .unwrap_or_default();
            let mut device = Device::enable(self.cupti, self.question.gpu)?;
            let before = Instant::now();
            let buffer;
            (self.ready, buffer) = device.start_with(group, interval, room, known)?;
            self.facts.image_bytes = self.ready.iter().map(Image::bytes).sum();
            self.facts.buffer_bytes = buffer;
            if first {
                self.facts.start = before.elapsed();
                self.tell(&Event::Started)?;
                first = false;
            }
            let mut taken = Turn::default();
            let mut looked = Instant::now();
            let ended = loop {
                // Counted from the start of one look to the start of the next, so that the time a
                // look takes is part of the pause.
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
                let overflow = self.look(number, &device, &mut taken)?;
                if overflow {
                    self.tell(&Event::Overflow)?;
                }
                // When the buffer is full, the samples in it are whole but the hardware writes no
                // more. So the turn restarts.
                if ended || over || overflow {
                    break ended;
                }
            };
            while self.ready.len() < IMAGES {
                let image = self.returned()?;
                self.ready.push(image);
            }
            if ended {
                return Ok(());
            }
            if let Some(place) = images.get_mut(number) {
                *place = std::mem::take(&mut self.ready);
            }
            number = (number + 1) % self.groups.len();
        }
    }

    fn tell(&self, event: &Event) -> Result<(), Ended> {
        let mut say = self.say.lock().map_err(|_| Ended::Alone)?;
        Ok(say(event)?)
    }

    /// Waits for an image that the thread has.
    fn returned(&self) -> Result<Image, Ended> {
        match self.done.recv_timeout(VALUES) {
            Ok(done) => taken_back(done),
            Err(RecvTimeoutError::Timeout) => {
                Err(Refusal::new("the values of samples", "they took too long").into())
            }
            Err(RecvTimeoutError::Disconnected) => Err(Ended::Alone),
        }
    }

    /// Takes an image back, and empties it if it has no room for the samples of another look.
    fn empty(&mut self, device: &Device<'_>, mut image: Image) -> Result<(), Ended> {
        if image.full {
            let before = cpu();
            device.clear(&mut image)?;
            self.facts.clear += cpu().saturating_sub(before);
        }
        self.ready.push(image);
        Ok(())
    }

    /// Takes what the hardware has written. Returns whether its buffer was full.
    fn look(&mut self, number: usize, device: &Device<'_>, turn: &mut Turn) -> Result<bool, Ended> {
        let mut overflow = false;
        for _ in 0..MOST_IMAGES {
            if self.ready.is_empty() {
                let image = self.returned()?;
                self.empty(device, image)?;
            }
            let Some(mut image) = self.ready.pop() else {
                break;
            };
            self.facts.looks += 1;
            let before = cpu();
            let decoded = device.decode(&mut image)?;
            let after = cpu();
            self.facts.decode += after.saturating_sub(before);
            overflow |= decoded.overflow;
            // Both clocks are read at the same moment, since CUPTI takes its times from the wall
            // clock.
            let (wall, boot) = (
                nanoseconds(clock(libc::CLOCK_REALTIME)),
                nanoseconds(clock(libc::CLOCK_BOOTTIME)),
            );
            let anew = image.taken == 0 && decoded.samples > 0;
            let mut samples = Vec::with_capacity(decoded.samples.saturating_sub(image.taken));
            for index in image.taken..decoded.samples {
                let (start, end) = device.times(&image, index)?;
                // The first sample starts before the start of the sampling, so it is left out.
                let first = turn.last == 0;
                let again = end <= turn.last || start < turn.last;
                if first || again {
                    self.facts.again += u64::from(!first);
                    turn.last = turn.last.max(end);
                    continue;
                }
                turn.last = end;
                let age = wall - end.cast_signed();
                self.facts.age = Some(self.facts.age.map_or(age, |least| least.min(age)));
                let times = (
                    start.wrapping_add_signed(boot - wall),
                    end.wrapping_add_signed(boot - wall),
                );
                samples.push((index, times));
            }
            self.facts.times += cpu().saturating_sub(after);
            let fresh = decoded.samples.saturating_sub(image.taken);
            image.taken = decoded.samples;
            // A full image loses the sample that is being decoded (seen on an H100). Emptying an
            // image costs as much as all the samples that fit into it, so it is done only when the
            // next look could fill the image.
            image.full = decoded.more || image.room.saturating_sub(image.taken) < 2 * fresh;
            let work = Work {
                image,
                group: number,
                anew,
                samples,
            };
            self.give.send(work).map_err(|_| Ended::Alone)?;
            while let Ok(done) = self.done.try_recv() {
                let image = taken_back(done)?;
                self.empty(device, image)?;
            }
            if !decoded.more {
                break;
            }
        }
        Ok(overflow)
    }
}

/// The image, or why there will be no more.
fn taken_back(done: Done) -> Result<Image, Ended> {
    done.map_err(|refusal| refusal.map_or(Ended::Alone, Ended::Refused))
}
