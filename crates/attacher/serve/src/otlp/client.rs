//! Sends one request to a collector, by the rules of OTLP over HTTP.

use super::messages::Answer;
use super::signal::Signal;
use crate::answer::Body;
use crate::tls;
use crate::usage::usage;
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use midair_failure::Failure;
use prost::Message;
use rustls::pki_types::ServerName;
use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};
use tokio_rustls::TlsConnector;

/// How long one request may take in all.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most bytes of an answer, of its head, and the most headers.
const MOST_ANSWER: usize = 64 << 10;
const MOST_HEAD: usize = 16 << 10;
const MOST_HEADERS: usize = 64;
/// Which draft of the profiles signal this is (`v1development` of opentelemetry-proto 1.10): a collector that knows
/// another one refuses it before it reads anything.
const PROFILES: (&str, &str) = ("otlp-profiles-development-version", "1");

/// What a look-up of a name finds.
type Found = io::Result<Vec<SocketAddr>>;

/// A collector.
pub(crate) struct Collector {
    host: String,
    port: u16,
    /// What the header `Host` says.
    authority: String,
    /// The start of all paths.
    base: String,
    token: Option<HeaderValue>,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    resolve: fn(&str, u16) -> Found,
    /// The one look-up that is under way. It outlives its request, and the next one waits for it.
    look_up: Mutex<Option<JoinHandle<Found>>>,
}

fn resolve(host: &str, port: u16) -> Found {
    Ok((host, port).to_socket_addrs()?.collect())
}

fn is_loopback(host: &str) -> bool {
    let address = host.parse::<IpAddr>();
    address.map_or(host.eq_ignore_ascii_case("localhost"), |it| {
        it.is_loopback()
    })
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Collector({self})")
    }
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
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.base)
    }
}

impl Collector {
    /// # Errors
    /// Where the address is none, or a token would travel as text.
    pub(crate) fn new(
        url: &str,
        token: Option<Vec<u8>>,
        ca: Option<&Path>,
    ) -> Result<Collector, Failure> {
        let wrong = || {
            usage(format!("--otlp {url} is not an address of a collector"))
                .hint("such as http://127.0.0.1:4318")
        };
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let authority = uri.authority().ok_or_else(wrong)?;
        let has_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong()),
        };
        if authority.as_str().contains('@') || uri.query().is_some() || authority.host().is_empty()
        {
            return Err(wrong());
        }
        let token = token.map(|token| [b"Bearer ".as_slice(), &token].concat());
        let token = token.map(|token| HeaderValue::from_bytes(&token));
        let mut token = token.transpose().map_err(|_| wrong())?;
        if let Some(token) = &mut token {
            token.set_sensitive(true);
        }
        let host = authority.host();
        let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        let host = bare.unwrap_or(host).to_owned();
        if token.is_some() && !has_tls && !is_loopback(&host) {
            return Err(usage(format!(
                "cannot send the token of --otlp-token-file to {url}: it would travel as text"
            ))
            .hint("use https://, with --otlp-ca where the authority is your own"));
        }
        let tls = match has_tls {
            false => None,
            true => {
                let name = ServerName::try_from(host.clone()).map_err(|_| wrong())?;
                Some((tls::connector(ca)?, name))
            }
        };
        let usual = if has_tls { 443 } else { 80 };
        Ok(Collector {
            host,
            port: authority.port_u16().unwrap_or(usual),
            authority: authority.as_str().to_owned(),
            base: uri.path().trim_end_matches('/').to_owned(),
            token,
            tls,
            resolve,
            look_up: Mutex::new(None),
        })
    }

    /// Looks the collector up, or waits for the look-up of an earlier request.
    async fn addresses(&self) -> Found {
        if let Ok(ip) = self.host.parse() {
            return Ok(vec![SocketAddr::new(ip, self.port)]);
        }
        let mut slot = self.look_up.lock().await;
        let begin = || {
            let (resolve, host, port) = (self.resolve, self.host.clone(), self.port);
            spawn_blocking(move || resolve(&host, port))
        };
        let found = slot.get_or_insert_with(begin).await;
        *slot = None;
        found.map_err(io::Error::other)?
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
        let stream = TcpStream::connect(self.addresses().await?.as_slice()).await?;
        match &self.tls {
            None => self.exchange_over(stream, signal, bytes).await,
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await?;
                self.exchange_over(stream, signal, bytes).await
            }
        }
    }

    async fn exchange_over(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        signal: Signal,
        bytes: Bytes,
    ) -> Result<Sent, Box<dyn Error + Send + Sync>> {
        let (mut to, connection) = hyper::client::conn::http1::Builder::new()
            .max_buf_size(MOST_HEAD)
            .max_headers(MOST_HEADERS)
            .handshake(TokioIo::new(stream))
            .await?;
        // It ends with this request, however that ends.
        let mut drives = JoinSet::new();
        drives.spawn(connection);
        let answer = to.send_request(self.request(signal, bytes)?).await?;
        let status = answer.status();
        let after = answer.headers().get(RETRY_AFTER);
        let after = after.and_then(|after| after.to_str().ok()?.trim().parse().ok());
        let body = read(answer.into_body()).await;
        Ok(match status {
            StatusCode::OK => Sent::Taken {
                rejected: rejected(&body?),
            },
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => {
                Sent::Again(after.map(Duration::from_secs), format!("status {status}"))
            }
            _ => Sent::Refused(format!("status {status}")),
        })
    }

    fn request(&self, signal: Signal, bytes: Bytes) -> Result<Request<Body>, hyper::http::Error> {
        let path = match signal {
            Signal::Metrics => "/v1/metrics",
            Signal::Profiles => "/v1development/profiles",
        };
        let mut request = Request::post(format!("{}{path}", self.base))
            .header(HOST, &self.authority)
            .header(CONTENT_TYPE, "application/x-protobuf")
            .header(
                USER_AGENT,
                concat!("midair-serve/", env!("CARGO_PKG_VERSION")),
            );
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        if signal == Signal::Profiles {
            request = request.header(PROFILES.0, PROFILES.1);
        }
        request.body(Body::Whole(Some(bytes)))
    }
}

/// Reads an answer up to its limit.
async fn read(mut body: Incoming) -> Result<Vec<u8>, hyper::Error> {
    let mut all = Vec::new();
    while all.len() < MOST_ANSWER {
        let part = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
        match part {
            None => break,
            Some(part) => {
                if let Ok(bytes) = part?.into_data() {
                    let most = MOST_ANSWER - all.len();
                    all.extend_from_slice(&bytes[..bytes.len().min(most)]);
                }
            }
        }
    }
    Ok(all)
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

    #[test]
    fn an_address_is_taken_apart() {
        for (url, host, port, base) in [
            ("http://c:4318", "c", 4318, ""),
            ("http://c/", "c", 80, ""),
            ("http://[::1]:4318/x/", "::1", 4318, "/x"),
        ] {
            let made = Collector::new(url, None, None).unwrap();
            assert_eq!(
                (made.host.as_str(), made.port, made.base.as_str()),
                (host, port, base)
            );
        }
        let made = Collector::new("http://localhost", Some(b"secret".to_vec()), None).unwrap();
        assert!(!format!("{made:?}").contains("secret"), "{made:?}");
        let request = made.request(Signal::Profiles, Bytes::new()).unwrap();
        assert_eq!(request.headers()[AUTHORIZATION], "Bearer secret");
        assert_eq!(request.uri(), "/v1development/profiles");
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap()
    }

    #[test]
    fn a_token_does_not_travel_as_text() {
        let made = |url: &str| Collector::new(url, Some(b"secret".to_vec()), None);
        for url in ["http://127.0.0.1:4318", "http://[::1]", "http://LOCALHOST"] {
            made(url).unwrap();
        }
        for url in [
            "http://collector:4318",
            "http://10.0.0.1",
            "http://localhost.evil",
            "http://0.0.0.0",
        ] {
            let failure = made(url).unwrap_err();
            assert!(failure.what.contains("travel as text"), "{}", failure.what);
            Collector::new(url, None, None).unwrap();
        }
    }

    /// A resolver that does not answer has one thread, and what it finds at last is used.
    #[test]
    fn one_look_up_is_under_way() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static LOOK_UPS: AtomicUsize = AtomicUsize::new(0);
        let mut collector = Collector::new("http://collector:4318", None, None).unwrap();
        collector.resolve = |_, port| {
            LOOK_UPS.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(500));
            Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))])
        };
        runtime().block_on(async {
            for _ in 0..3 {
                let short = Duration::from_millis(20);
                let found = tokio::time::timeout(short, collector.addresses()).await;
                assert!(found.is_err());
            }
            let found = collector.addresses().await.unwrap();
            assert_eq!(found, [SocketAddr::from(([127, 0, 0, 1], 4318))]);
            assert_eq!(LOOK_UPS.load(Ordering::Relaxed), 1);
            collector.addresses().await.unwrap();
            assert_eq!(LOOK_UPS.load(Ordering::Relaxed), 2);
        });
    }

    /// Sends with a token to a collector with the certificate of the end-to-end tests, where this authority is trusted.
    /// Returns what the collector got, too: the path and the token.
    fn sent_by_tls(authority: &str) -> (Sent, Vec<(String, HeaderValue)>) {
        use crate::{answer::text, options::Options, tls::Tls};
        use hyper::{server::conn::http1, service::service_fn};
        use std::os::unix::fs::PermissionsExt;
        use std::sync::Arc;
        let keys = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/e2e/serve/tls");
        let dir = tempfile::tempdir().unwrap();
        let secret = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            path
        };
        let key = secret("key", &std::fs::read(keys.join("server.key")).unwrap());
        let token = secret("token", b"collector-0123456789");
        let tls = Tls::new(&keys.join("server.pem"), &key, None).unwrap();
        let got = Arc::new(std::sync::Mutex::new(Vec::new()));
        let kept = Arc::clone(&got);
        let sent = runtime().block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let collects = tokio::spawn(async move {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(stream) = tls.acceptor.accept(stream).await else {
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
