//! Writes metrics as Parquet files below a directory that many machines may share, in hive's partitions:
//! `host=NAME/date=YYYY-MM-DD/midair-MILLISECONDS-PID.parquet`. DuckDB and others read them with one query.

use crate::page::{Kind, Page, Sample, Value};
use crate::route::Server;
use crate::say;
use crate::text::POWERS;
use midair_columns::{Column, Encoder, Field, Group, Sort};
use midair_output::files::{Directory, OneFile};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};

/// The threads for this.
pub(crate) const THREADS: usize = 1;
/// How long a file may take, and the last one, for which the server's end waits.
const PATIENCE: Duration = Duration::from_secs(60);
const LAST: Duration = Duration::from_secs(5);

const fn field(name: &'static str, sort: Sort, optional: bool) -> Field {
    Field {
        name,
        sort,
        optional,
    }
}

/// The columns. `time` is ns since 1970, and `labels` an object of JSON with all labels but `pid`.
const FIELDS: [Field; 5] = [
    field("time", Sort::Time, false),
    field("metric", Sort::Text, false),
    field("pid", Sort::Number, true),
    field("labels", Sort::Text, false),
    field("value", Sort::Real, false),
];

/// The rows of a file.
#[derive(Debug, Default)]
struct Rows {
    texts: Vec<String>,
    known: HashMap<String, i64>,
    columns: [Column; FIELDS.len()],
}

impl Rows {
    fn text(&mut self, text: String) -> i64 {
        if let Some(known) = self.known.get(&text) {
            return *known;
        }
        let at = self.texts.len() as i64;
        self.texts.push(text.clone());
        self.known.insert(text, at);
        at
    }

    fn add(&mut self, time: i64, metric: &str, sample: &Sample, le: Option<f64>, value: f64) {
        let labels = sample.labels.iter();
        let mut labels: BTreeMap<&str, String> =
            labels.map(|(key, text)| (*key, text.clone())).collect();
        let pid: Option<i64> = labels.remove("pid").and_then(|pid| pid.parse().ok());
        if let Some(le) = le {
            labels.insert("le", le.to_string());
        }
        let labels = serde_json::to_string(&labels).unwrap_or_default();
        let (metric, labels) = (self.text(metric.to_owned()), self.text(labels));
        let [times, metrics, pids, all, values] = &mut self.columns;
        times.values.push(time);
        metrics.values.push(metric);
        pids.values.extend(pid);
        pids.levels.push(i16::from(pid.is_some()));
        all.values.push(labels);
        values.values.push(value.to_bits() as i64);
    }

    fn of(page: &Page, time: i64) -> Rows {
        let mut rows = Rows::default();
        for family in &page.0 {
            let name = family.sampled();
            for sample in &family.samples {
                match &sample.value {
                    Value::Number(number) => rows.add(time, &name, sample, None, *number),
                    Value::Delays(delays) => {
                        let bucket = format!("{name}_bucket");
                        for power in POWERS {
                            let (le, below) = (2_f64.powi(power), delays.up_to(power));
                            rows.add(time, &bucket, sample, Some(le), below as f64);
                        }
                        let (count, sum) = (delays.count() as f64, delays.sum() as f64 / 1e9);
                        rows.add(time, &format!("{name}_count"), sample, None, count);
                        rows.add(time, &format!("{name}_sum"), sample, None, sum);
                    }
                }
            }
        }
        rows
    }
}

/// Bytes in memory, of which the encoder has one end.
#[derive(Clone, Default)]
struct Bytes(Arc<Mutex<Vec<u8>>>);

impl Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the file with a page.
fn encoded(page: &Page, time: i64) -> io::Result<Vec<u8>> {
    let rows = Rows::of(page, time);
    let bytes = Bytes::default();
    let mut encoder = Encoder::begin(Box::new(bytes.clone()), &FIELDS)?;
    encoder.group(&Group {
        texts: &rows.texts,
        columns: &rows.columns,
    })?;
    encoder.finish(Vec::new())?;
    let mut all = bytes.0.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(std::mem::take(&mut all))
}

/// Returns year, month and day of so many days since 1970-01-01, in the Gregorian calendar.
fn date(days: u64) -> (u64, u64, u64) {
    // Years start in March here, so that a leap day is the last one. An era has 400 years.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let first = (153 * month + 2) / 5;
    let (month, next) = match month {
        0..=9 => (month + 3, 0),
        _ => (month - 9, 1),
    };
    (era * 400 + year + next, month, day - first + 1)
}

/// Returns where a file of this moment is.
fn place(directory: &Path, host: &str, time: Duration) -> (PathBuf, String) {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || ".-_".contains(char);
    let host = host.chars().map(|it| if is_plain(it) { it } else { '_' });
    let (year, month, day) = date(time.as_secs() / 86_400);
    let partition = directory
        .join(format!("host={}", host.collect::<String>()))
        .join(format!("date={year:04}-{month:02}-{day:02}"));
    let name = format!("midair-{}-{}.parquet", time.as_millis(), std::process::id());
    (partition, name)
}

/// Writes a page below a directory. The file appears whole.
fn write(page: &Page, directory: &Path) -> Result<(), String> {
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    let time = time.unwrap_or_default();
    let ns = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    let bytes = encoded(page, ns).map_err(|error| error.to_string())?;
    let host = nix::unistd::gethostname().unwrap_or_default();
    let (partition, name) = place(directory, &host.to_string_lossy(), time);
    let made = Directory::make(&partition);
    made.map_err(|error| format!("{}: {error}", partition.display()))?;
    let written = OneFile::write_whole(&partition.join(name), &bytes);
    written.map_err(|error| error.to_string())
}

/// What became of the files, and the thread that writes one.
#[derive(Debug, Default)]
pub(crate) struct Pushed {
    counts: Mutex<[u64; 2]>,
    /// It may hang for as long as the file system of the directory does, and no second one starts meanwhile.
    writer: tokio::sync::Mutex<Option<JoinHandle<Result<(), String>>>>,
}

impl Pushed {
    fn count(&self, is_written: bool) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts[usize::from(is_written)] += 1;
    }

    /// Adds the counts to a page.
    pub(crate) fn write(&self, page: &mut Page) {
        let counts = *self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let help = "Parquet files, by what became of them";
        let family = page.family("midair_push_files", Kind::Counter, "", help);
        for (outcome, count) in ["failed", "written"].iter().zip(counts) {
            family.add(&[("outcome", outcome)], count as f64);
        }
    }

    /// Writes a file in a thread, and waits so long for it, and for an earlier one that is not finished yet.
    async fn file(
        &self,
        patience: Duration,
        write: impl FnOnce() -> Result<(), String> + Send + 'static,
    ) -> Result<(), String> {
        let mut writer = self.writer.lock().await;
        let in_turn = async {
            if let Some(earlier) = writer.as_mut() {
                // It has been counted.
                let _ = earlier.await;
            }
            let written = writer.insert(spawn_blocking(write)).await;
            *writer = None;
            written.unwrap_or_else(|_| Err("the thread that writes ended".to_owned()))
        };
        let late = |_| {
            let seconds = patience.as_secs();
            Err(format!("the directory does not answer within {seconds} s"))
        };
        let written = timeout(patience, in_turn).await.unwrap_or_else(late);
        self.count(written.is_ok());
        written
    }
}

/// Starts what writes files.
pub(crate) fn start(server: &Arc<Server>, tasks: &mut JoinSet<()>) {
    if let Some((_, every)) = server.options.push {
        tasks.spawn(push(Arc::clone(server), every));
    }
}

async fn push(server: Arc<Server>, every: Duration) {
    let mut fails = false;
    loop {
        sleep(every).await;
        let written = file(&server, PATIENCE).await;
        // The file of this moment is left out: sums go on in the next one.
        let failed_before = std::mem::replace(&mut fails, written.is_err());
        report(written.err().filter(|_| !failed_before));
    }
}

/// Writes what has been recorded since the last file, when the server ends.
pub(crate) async fn last(server: &Arc<Server>) {
    report(file(server, LAST).await.err());
}

fn report(failed: Option<String>) {
    if let Some(why) = failed {
        say(&format!("cannot write a file of --push: {why}"));
    }
}

async fn file(server: &Arc<Server>, patience: Duration) -> Result<(), String> {
    let (Some((directory, _)), Some(pushed)) = (&server.options.push, &server.pushed) else {
        return Ok(());
    };
    let (server, directory) = (Arc::clone(server), directory.clone());
    let write = move || write(&server.page(), &directory);
    pushed.file(patience, write).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_columns::read;

    #[test]
    fn days_have_their_dates() {
        for (days, wanted) in [
            (0, (1970, 1, 1)),
            (58, (1970, 2, 28)),
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (20_788, (2026, 12, 1)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(date(days), wanted, "{days}");
        }
        let (at, name) = place(Path::new("/x"), "../a b", Duration::from_millis(86_400_001));
        assert_eq!(at, Path::new("/x/host=.._a_b/date=1970-01-02"));
        assert!(name.starts_with("midair-86400001-") && name.ends_with(".parquet"));
    }

    /// A file system that hangs costs one thread, and one file an interval; when it is back, so are the files.
    #[test]
    fn a_directory_that_hangs_keeps_one_thread() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (pushed, (to, hangs)) = (Pushed::default(), std::sync::mpsc::channel::<()>());
        let short = Duration::from_millis(100);
        runtime.block_on(async {
            let hung = pushed.file(short, move || hangs.recv().map_err(|it| it.to_string()));
            assert!(hung.await.unwrap_err().contains("does not answer"));
            let second = pushed.file(short, || panic!("a second writer")).await;
            assert!(second.unwrap_err().contains("does not answer"));
            to.send(()).unwrap();
            pushed.file(10 * PATIENCE, || Ok(())).await.unwrap();
            let ended = pushed.file(PATIENCE, || panic!("the writer's end")).await;
            assert!(ended.unwrap_err().contains("thread that writes ended"));
        });
        assert_eq!(*pushed.counts.lock().unwrap(), [3, 1]);
    }

    #[test]
    fn a_file_has_a_row_for_each_sample() {
        let mut page = Page::default();
        let family = page.family("midair_kernels", Kind::Counter, "", "Kernels");
        family.add(&[("pid", "42"), ("class", "gemm")], 7.5);
        let family = page.family("midair_build", Kind::Info, "", "The version");
        family.add(&[("version", "a\"b")], 1.0);
        let dir = tempfile::tempdir().unwrap();
        write(&page, dir.path()).unwrap();
        let found: Vec<_> = std::fs::read_dir(dir.path()).unwrap().flatten().collect();
        let day = std::fs::read_dir(found[0].path()).unwrap().flatten().next();
        let file = std::fs::read_dir(day.unwrap().path())
            .unwrap()
            .flatten()
            .next();
        let file = std::fs::File::open(file.unwrap().path()).unwrap();
        let table = read::Table::open(file).unwrap();
        let mut rows = Vec::new();
        let mut take = |row: Vec<read::Value>| {
            rows.push(row[1..].to_vec());
            true
        };
        table.each(&mut take).unwrap();
        let text = |text: &str| read::Value::Text(text.to_owned());
        assert_eq!(rows[0][0], text("midair_kernels_total"));
        assert_eq!(rows[0][1], read::Value::Number(42));
        assert_eq!(rows[0][2], text("{\"class\":\"gemm\"}"));
        assert_eq!(rows[1][1], read::Value::None);
        assert_eq!(rows[1][2], text("{\"version\":\"a\\\"b\"}"));
        assert_eq!(rows.len(), 2);
    }
}
