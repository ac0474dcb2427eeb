//! Uploads of `--push` to a store, which checks each signature by an implementation of its own (`tests/python/s3_stub.py`).

use super::http::Server;
use super::sum;
use midair_tests::target::{Target, until};
use midair_tests::{Result, python, workspace};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A running store.
struct Store {
    /// Ends with this value.
    _process: Target,
    directory: PathBuf,
    port: u16,
}

impl Store {
    fn start(directory: &Path, tls: &[PathBuf]) -> Result<Store> {
        std::fs::create_dir_all(directory)?;
        std::fs::write(directory.join("mode"), "ok")?;
        let mut command = Command::new(python()?);
        let stub = workspace().join("tests/python/s3_stub.py");
        command.arg(stub).arg(directory).args(tls);
        let mut process = Target::spawn(command)?;
        let line = process.expect("port ")?;
        let port = line.trim_start_matches("port ").parse()?;
        Ok(Store {
            _process: process,
            directory: directory.to_owned(),
            port,
        })
    }

    fn behaves(&self, mode: &str) -> Result<()> {
        // It is replaced whole: the store reads it at any moment.
        let new = self.directory.join("mode.new");
        std::fs::write(&new, mode)?;
        Ok(std::fs::rename(new, self.directory.join("mode"))?)
    }

    /// Returns the objects of a bucket.
    fn objects(&self, bucket: &str) -> Result<Vec<String>> {
        let find = Command::new("find")
            .arg(self.directory.join("objects").join(bucket))
            .args(["-type", "f", "-printf", "%P\n"])
            .output()?;
        let text = String::from_utf8(find.stdout)?;
        Ok(text.lines().map(str::to_owned).collect())
    }
}

fn uploads(server: &Server, outcome: &str) -> Result<f64> {
    let page = String::from_utf8(server.get("/metrics")?.bytes(200)?)?;
    let family = format!("midair_push_uploads_total{{outcome=\"{outcome}\"}}");
    Ok(sum(&page, &family))
}

fn files(directory: &Path) -> Result<Vec<String>> {
    let names =
        std::fs::read_dir(directory)?.map(|it| Ok(it?.file_name().to_string_lossy().into()));
    names.collect()
}

/// By TLS, with a session's token, and with nothing left in the temporary directory.
#[test]
fn uploads_are_signed_and_whole() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let tls =
        ["server.pem", "server.key"].map(|name| workspace().join("tests/e2e/serve/tls").join(name));
    let store = Store::start(&dir.path().join("store"), &tls)?;
    let temporary = dir.path().join("tmp");
    std::fs::create_dir(&temporary)?;
    let ca = workspace().join("tests/e2e/serve/tls/ca.pem");
    let url = format!("https://localhost:{}", store.port);
    let variables = [
        ("AWS_ACCESS_KEY_ID", "AKIDMIDAIR"),
        ("AWS_SECRET_ACCESS_KEY", "sEcReT/of+midair="),
        ("AWS_SESSION_TOKEN", "session/token+of=="),
        ("AWS_REGION", "eu-test-1"),
        ("AWS_ENDPOINT_URL", &url),
        ("AWS_CA_BUNDLE", ca.to_str().ok_or("a path is text")?),
        ("TMPDIR", temporary.to_str().ok_or("a path is text")?),
    ];
    let words = ["--push", "s3://metrics/fleet/a=b/", "--push-every", "1s"];
    let server = Server::start_with(&words, &variables)?;
    until("two uploads", || Ok(uploads(&server, "done")? >= 2.0))?;
    assert_eq!(uploads(&server, "failed")?, 0.0);
    // The keys are in no list of processes.
    let line = std::fs::read(format!("/proc/{}/cmdline", server.process.pid()))?;
    assert!(!String::from_utf8_lossy(&line).contains("sEcReT"));
    server.end()?;
    // With the last one, which the end waits for.
    let objects = store.objects("metrics/fleet/a=b")?;
    assert!(objects.len() >= 3, "{objects:?}");
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    let host = format!("host={}/date=", host.trim());
    assert!(
        objects.iter().all(|name| name.starts_with(&host)),
        "{objects:?}"
    );
    assert_eq!(files(&temporary)?, Vec::<String>::new());
    let ask = "import duckdb, sys; print(duckdb.execute(f\"select count(distinct time), count(distinct host) \
        from read_parquet('{sys.argv[1]}/**/*.parquet', hive_partitioning=true) where metric = 'midair_build_info'\").fetchone())";
    let output = Command::new(python()?)
        .args(["-c", ask])
        .arg(store.directory.join("objects/metrics/fleet/a=b"))
        .output()?;
    let said = String::from_utf8(output.stdout)?;
    assert_eq!(said.trim(), format!("({}, 1)", objects.len()));
    Ok(())
}

/// Whatever is wrong with the store or the keys, files wait, and are there at last.
#[test]
fn what_is_not_taken_waits() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let store = Store::start(&dir.path().join("store"), &[])?;
    let (keep, keys) = (dir.path().join("keep"), dir.path().join("credentials"));
    let keys_are = |secret: &str| -> Result<()> {
        let text =
            format!("[default]\naws_access_key_id=AKIDPLAIN\naws_secret_access_key={secret}\n");
        std::fs::write(&keys, text)?;
        Ok(std::fs::set_permissions(
            &keys,
            std::fs::Permissions::from_mode(0o600),
        )?)
    };
    keys_are("wrong")?;
    let path = |path: &Path| path.display().to_string();
    let (at, to) = (path(&keep), format!("http://127.0.0.1:{}", store.port));
    let words = [
        "--push",
        "s3://metrics",
        "--push-every",
        "1s",
        "--push-keep",
        &at,
        "--push-endpoint",
        &to,
    ];
    let (home, file) = (path(dir.path()), path(&keys));
    let variables = [
        ("AWS_SHARED_CREDENTIALS_FILE", file.as_str()),
        ("AWS_DEFAULT_REGION", "eu-test-1"),
        ("HOME", &home),
    ];
    let start = || Server::start_with(&words, &variables);
    let server = start()?;
    until("a refusal", || Ok(uploads(&server, "failed")? >= 1.0))?;
    server.says("status 403 SignatureDoesNotMatch")?;
    assert!(!files(&keep)?.is_empty() && store.objects("metrics")?.is_empty());
    // The keys are read again for each try.
    keys_are("plain-secret")?;
    until("the files that waited", || {
        Ok(uploads(&server, "done")? >= 2.0)
    })?;
    for mode in ["busy", "shut"] {
        store.behaves(mode)?;
        let (failed, done) = (uploads(&server, "failed")?, store.objects("metrics")?.len());
        until(mode, || Ok(uploads(&server, "failed")? >= failed + 1.0))?;
        until("a file that waits", || Ok(!files(&keep)?.is_empty()))?;
        store.behaves("ok")?;
        until("uploads again", || {
            Ok(store.objects("metrics")?.len() >= done + 2)
        })?;
    }
    // Nor does a store that does not answer keep the server from its end, or from its next start.
    store.behaves("deaf")?;
    let written = || -> Result<f64> {
        let page = String::from_utf8(server.get("/metrics")?.bytes(200)?)?;
        Ok(sum(&page, "midair_push_files_total{outcome=\"written\"}"))
    };
    let before = written()?;
    until("two more files", || Ok(written()? >= before + 2.0))?;
    server.end()?;
    let left = files(&keep)?;
    assert!(!left.is_empty());
    store.behaves("ok")?;
    let server = start()?;
    until("what an earlier server left", || {
        let objects = store.objects("metrics")?;
        Ok(left
            .iter()
            .all(|name| objects.iter().any(|it| it.ends_with(name))))
    })?;
    server.end()?;
    assert_eq!(files(&keep)?, Vec::<String>::new());
    Ok(())
}
