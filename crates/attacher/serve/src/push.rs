//! Writes metrics as Parquet files in hive's partitions, `host=NAME/date=YYYY-MM-DD/midair-MILLISECONDS-PID.parquet`: below a
//! directory that many machines may share, or into a bucket. DuckDB and others read them with one query.
//!
//! A file for a bucket stays in a local directory until its upload succeeds ([`kept`]).

pub(crate) mod kept;
pub(crate) mod place;
pub(crate) mod pushed;
mod table;
pub(crate) mod to;
mod upload;

use crate::page::Page;
use crate::route::Server;
use crate::say;
use midair_output::files::{Directory, OneFile};
use place::{name_of, own_partition};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
#[cfg(test)]
pub(crate) use table::encoded;
use to::To;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The threads for this: one writes files, one reads them and what is needed to send them.
pub(crate) const THREADS: usize = 2;
/// How long a file may take, and the last one, for which the server's end waits.
const PATIENCE: Duration = Duration::from_secs(60);
const LAST: Duration = Duration::from_secs(5);

fn now() -> Duration {
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    time.unwrap_or_default()
}

/// Returns the file of a page.
fn file_of(page: &Page, time: Duration) -> Result<(String, Vec<u8>), String> {
    let ns = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    let bytes = table::encoded(page, ns).map_err(|error| error.to_string())?;
    Ok((name_of(time), bytes))
}

/// Writes a page below a directory. The file appears whole.
fn write(page: &Page, directory: &Path) -> Result<(), String> {
    let time = now();
    let (name, bytes) = file_of(page, time)?;
    let partition = directory.join(own_partition(time));
    let made = Directory::make(&partition);
    made.map_err(|error| format!("{}: {error}", partition.display()))?;
    let written = OneFile::write_whole(&partition.join(name), &bytes);
    written.map_err(|error| error.to_string())
}

/// Starts what writes files, and what uploads them.
pub(crate) fn start(server: &Arc<Server>, tasks: &mut JoinSet<()>) {
    if let Some((to, every)) = &server.options.push {
        tasks.spawn(push(Arc::clone(server), *every));
        if let (To::Bucket(bucket), Some(pushed)) = (to, &server.pushed) {
            tasks.spawn(upload::upload(Arc::clone(bucket), Arc::clone(pushed)));
        }
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
    if let (Some((To::Bucket(bucket), _)), Some(pushed)) = (&server.options.push, &server.pushed) {
        upload::last(bucket, pushed, LAST).await;
    }
}

fn report(failed: Option<String>) {
    if let Some(why) = failed {
        say(&format!("cannot write a file of --push: {why}"));
    }
}

async fn file(server: &Arc<Server>, patience: Duration) -> Result<(), String> {
    let (Some((to, _)), Some(pushed)) = (&server.options.push, &server.pushed) else {
        return Ok(());
    };
    let of = Arc::clone(server);
    match to {
        To::Directory(directory) => {
            let directory = directory.clone();
            pushed
                .file(patience, move || write(&of.page(), &directory))
                .await
        }
        To::Bucket(bucket) => {
            let (bucket, counts) = (Arc::clone(bucket), Arc::clone(pushed));
            let write = move || {
                let time = now();
                let (name, bytes) = file_of(&of.page(), time)?;
                counts.uploads("dropped", bucket.1.add(&name, &bytes, time)?);
                counts.came.notify_one();
                Ok(())
            };
            pushed.file(patience, write).await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Kind;
    use midair_columns::read;

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
