//! Sends one request to a collector, by the rules of OTLP over HTTP.

use super::messages::Answer;
use super::signal::Signal;
use crate::answer::Body;
use crate::clients::read_token;
use crate::current::Current;
use crate::remote::Remote;
use crate::usage::usage;
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::{Request, StatusCode};
use midair_failure::Failure;
use prost::Message;
use std::error::Error;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long one request may take in all.
const PATIENCE: Duration = Duration::from_secs(10);
/// Which draft of the profiles signal this is (`v1development` of opentelemetry-proto 1.10): a collector that knows
/// another one refuses it before it reads anything.
const PROFILES: (&str, &str) = ("otlp-profiles-development-version", "1");

/// A collector.
#[derive(Debug)]
pub(crate) struct Collector {
    remote: Remote,
    token: Option<Arc<Current<HeaderValue>>>,
}

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The collector took it, but for so many of its parts.
    Taken { rejected: u64 },
    /// The collector does not take it, and will not.
    Refused(String),
    /// It may take it later, after this time if it says so.
    Again(Option<Duration>, String),
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.remote.fmt(f)
    }
}

/// Reads the header with the token of a file.
fn authorization(file: &Path) -> Result<HeaderValue, Failure> {
    const OPTION: &str = "--otlp-token-file";
    let token = read_token(OPTION, file)?;
    let token = HeaderValue::from_bytes(&[b"Bearer ".as_slice(), &token].concat());
    let mut token = token.map_err(|error| usage(format!("{OPTION}: {error}")))?;
    token.set_sensitive(true);
    Ok(token)
}

impl Collector {
    /// # Errors
    /// Where the address is none, or a token would travel as text.
    pub(crate) fn new(
        url: &str,
        token: Option<&Path>,
        ca: Option<&Path>,
    ) -> Result<Collector, Failure> {
        let remote = Remote::new("--otlp", url, ("--otlp-ca", ca))?;
        let read = |file: &Path| {
            let path = file.to_owned();
            Current::new(&[Some(file)], move || authorization(&path)).map(Arc::new)
        };
        let token = token.map(read).transpose()?;
        if token.is_some() && remote.is_open() {
            return Err(usage(format!(
                "cannot send the token of --otlp-token-file to {url}: it would travel as text"
            ))
            .hint("use https://, with --otlp-ca where the authority is your own"));
        }
        Ok(Collector { remote, token })
    }

    /// Returns the token, which may change.
    pub(crate) fn token(&self) -> Option<&Arc<Current<HeaderValue>>> {
        self.token.as_ref()
    }

    /// Sends a request, once.
    pub(crate) async fn post(&self, signal: Signal, bytes: Bytes) -> Sent {
        match tokio::time::timeout(PATIENCE, self.exchange(signal, bytes)).await {
            Ok(Ok(sent)) => sent,
            Ok(Err(error)) => Sent::Again(None, error.to_string()),
            Err(_) => Sent::Again(None, "no answer in time".to_owned()),
        }
    }

    async fn exchange(
        &self,
        signal: Signal,
        bytes: Bytes,
    ) -> Result<Sent, Box<dyn Error + Send + Sync>> {
        let answer = self.remote.exchange(self.request(signal, bytes)?).await?;
        let status = answer.status;
        Ok(match status {
            StatusCode::OK => Sent::Taken {
                rejected: rejected(&answer.body?),
            },
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Sent::Again(answer.after, format!("status {status}")),
            _ => Sent::Refused(format!("status {status}")),
        })
    }

    fn request(&self, signal: Signal, bytes: Bytes) -> Result<Request<Body>, hyper::http::Error> {
        let path = match signal {
            Signal::Metrics => "/v1/metrics",
            Signal::Profiles => "/v1development/profiles",
        };
        let mut request = Request::post(format!("{}{path}", self.remote.base))
            .header(HOST, &self.remote.authority)
            .header(CONTENT_TYPE, "application/x-protobuf")
            .header(
                USER_AGENT,
                concat!("midair-serve/", env!("CARGO_PKG_VERSION")),
            );
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.get());
        }
        if signal == Signal::Profiles {
            request = request.header(PROFILES.0, PROFILES.1);
        }
        request.body(Body::Whole(Some(bytes)))
    }
}

/// Returns how many data points or profiles the collector says that it did not take.
fn rejected(body: &[u8]) -> u64 {
    let answer = Answer::decode(body).unwrap_or_default();
    let partial = answer.partial_success.unwrap_or_default();
    u64::try_from(partial.rejected).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a token that only its owner may read.
    fn token(directory: &Path) -> std::path::PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = directory.join("token");
        std::fs::write(&path, b"collector-0123456789").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    #[test]
    fn a_token_does_not_travel_as_text() {
        let dir = tempfile::tempdir().unwrap();
        let file = token(dir.path());
        let made = |url: &str| Collector::new(url, Some(&file), None);
        for url in ["http://127.0.0.1:4318", "http://[::1]", "http://LOCALHOST"] {
            let made = made(url).unwrap();
            assert!(!format!("{made:?}").contains("0123456789"), "{made:?}");
            let request = made.request(Signal::Profiles, Bytes::new()).unwrap();
            assert_eq!(
                request.headers()[AUTHORIZATION],
                "Bearer collector-0123456789"
            );
            assert_eq!(request.uri(), "/v1development/profiles");
        }
        for url in ["http://collector:4318", "http://10.0.0.1", "http://0.0.0.0"] {
            let failure = made(url).unwrap_err();
            assert!(failure.what.contains("travel as text"), "{}", failure.what);
            Collector::new(url, None, None).unwrap();
        }
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap()
    }

    /// Sends with a token to a collector with the certificate of the end-to-end tests, where this authority is trusted.
    /// Returns what the collector got, too: the path and the token.
    fn sent_by_tls(authority: &str) -> (Sent, Vec<(String, HeaderValue)>) {
        use crate::tls::{Files, Tls};
        use crate::{answer::text, options::Options};
        use hyper::body::Incoming;
        use hyper::{server::conn::http1, service::service_fn};
        use hyper_util::rt::TokioIo;
        use std::os::unix::fs::PermissionsExt;
        let keys = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/e2e/serve/tls");
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().join("key");
        std::fs::copy(keys.join("server.key"), &key).unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        let token = token(dir.path());
        let tls = Tls::new(Files {
            cert: keys.join("server.pem"),
            key,
            ca: None,
            crl: None,
        })
        .unwrap();
        let got = Arc::new(std::sync::Mutex::new(Vec::new()));
        let kept = Arc::clone(&got);
        let sent = runtime().block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let collects = tokio::spawn(async move {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(stream) = tls.acceptor.get().accept(stream).await else {
                    return;
                };
                let service = service_fn(move |request: Request<Incoming>| {
                    let token = request.headers()[AUTHORIZATION].clone();
                    let path = request.uri().path().to_owned();
                    kept.lock().unwrap().push((path, token));
                    let answer = text("text/plain", String::new());
                    async { Ok::<_, std::convert::Infallible>(answer) }
                });
                let builder = http1::Builder::new();
                let _ = builder
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
            let url = format!("https://localhost:{port}");
            let (ca, token) = (keys.join(authority), token.display().to_string());
            let ca = ca.display().to_string();
            let words = [
                "--otlp",
                &url,
                "--otlp-ca",
                &ca,
                "--otlp-token-file",
                &token,
            ];
            let options = Options::parse(&words.map(str::to_owned)).unwrap();
            let (collector, _) = options.otlp.unwrap();
            let sent = collector
                .post(Signal::Metrics, Bytes::from_static(b"x"))
                .await;
            collects.await.unwrap();
            sent
        });
        let got = std::mem::take(&mut *got.lock().unwrap());
        (sent, got)
    }

    #[test]
    fn a_collector_by_tls_shows_its_certificate_first() {
        let (sent, got) = sent_by_tls("ca.pem");
        assert_eq!(sent, Sent::Taken { rejected: 0 });
        let token = HeaderValue::from_static("Bearer collector-0123456789");
        assert_eq!(got, [("/v1/metrics".to_owned(), token)]);
        // One of another authority gets nothing.
        let (sent, got) = sent_by_tls("stranger.pem");
        assert!(
            matches!(&sent, Sent::Again(None, why) if why.contains("certificate")),
            "{sent:?}"
        );
        assert!(got.is_empty(), "{got:?}");
    }

    /// Sends to a collector with this answer.
    fn sent(answer: &'static [u8]) -> Sent {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let answers = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // One request is one write here.
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer);
        });
        let collector = Collector::new(&format!("http://{at}"), None, None).unwrap();
        let sent = runtime().block_on(collector.post(Signal::Metrics, Bytes::from_static(b"x")));
        answers.join().unwrap();
        sent
    }

    #[test]
    fn answers_mean_what_otlp_says() {
        let again = |seconds: Option<u64>| seconds.map(Duration::from_secs);
        let partial = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\x0a\x02\x08\x07";
        assert_eq!(sent(partial), Sent::Taken { rejected: 7 });
        let taken = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(sent(taken), Sent::Taken { rejected: 0 });
        for (answer, wanted) in [
            (
                &b"HTTP/1.1 503 X\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"[..],
                again(Some(7)),
            ),
            (b"HTTP/1.1 429 X\r\nContent-Length: 0\r\n\r\n", None),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", None),
            (b"nonsense", None),
            (b"", None),
        ] {
            let sent = sent(answer);
            let is_wanted = matches!(&sent, Sent::Again(after, _) if *after == wanted);
            assert!(is_wanted, "{sent:?}");
        }
        // It goes nowhere else, and what it does not take is not sent again.
        for refused in [
            &b"HTTP/1.1 302 X\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"[..],
            b"HTTP/1.1 400 X\r\nContent-Length: 0\r\n\r\n",
        ] {
            assert!(matches!(sent(refused), Sent::Refused(_)));
        }
    }
}
