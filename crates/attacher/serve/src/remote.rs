//! A server elsewhere, to which requests go one at a time: its name is looked up, its certificate checked where that was
//! asked for, and what it answers has limits. It is never followed to another address.

use crate::answer::Body;
use crate::tls;
use crate::usage::usage;
use hyper::body::{Body as _, Incoming};
use hyper::header::RETRY_AFTER;
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use midair_failure::Failure;
use rustls::pki_types::ServerName;
use std::error::Error;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
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

/// The most bytes of an answer, of its head, and the most headers.
const MOST_ANSWER: usize = 64 << 10;
const MOST_HEAD: usize = 16 << 10;
const MOST_HEADERS: usize = 64;

/// What a look-up of a name finds.
type Found = io::Result<Vec<SocketAddr>>;

/// A server.
pub(crate) struct Remote {
    host: String,
    port: u16,
    /// What the header `Host` says.
    pub(crate) authority: String,
    /// The start of all paths.
    pub(crate) base: String,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    resolve: fn(&str, u16) -> Found,
    /// The one look-up that is under way. It outlives its request, and the next one waits for it.
    look_up: Mutex<Option<JoinHandle<Found>>>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Replied {
    pub(crate) status: StatusCode,
    /// When it wants to be asked again.
    pub(crate) after: Option<Duration>,
    /// Its body, up to the limit.
    pub(crate) body: Result<Vec<u8>, hyper::Error>,
}

fn resolve(host: &str, port: u16) -> Found {
    Ok((host, port).to_socket_addrs()?.collect())
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({self})")
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.base)
    }
}

impl Remote {
    /// `from` is where the address is from, and `ca` is the name and the value of the option with an authority.
    ///
    /// # Errors
    /// Where the address is none, or there is no authority.
    pub(crate) fn new(
        from: &str,
        url: &str,
        (option, ca): (&str, Option<&Path>),
    ) -> Result<Remote, Failure> {
        let wrong = || {
            usage(format!("{from} {url} is not an address of a server"))
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
        let host = authority.host();
        let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        let host = bare.unwrap_or(host).to_owned();
        let tls = match has_tls {
            false => None,
            true => {
                let name = ServerName::try_from(host.clone()).map_err(|_| wrong())?;
                Some((tls::connector(option, ca)?, name))
            }
        };
        let usual = if has_tls { 443 } else { 80 };
        Ok(Remote {
            host,
            port: authority.port_u16().unwrap_or(usual),
            authority: authority.as_str().to_owned(),
            base: uri.path().trim_end_matches('/').to_owned(),
            tls,
            resolve,
            look_up: Mutex::new(None),
        })
    }

    /// Whether others on a network can read what travels to it.
    pub(crate) fn is_open(&self) -> bool {
        let is_loopback = match self.host.parse::<IpAddr>() {
            Ok(address) => address.is_loopback(),
            Err(_) => self.host.eq_ignore_ascii_case("localhost"),
        };
        self.tls.is_none() && !is_loopback
    }

    /// Looks the server up, or waits for the look-up of an earlier request.
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

    /// Sends a request, and returns the answer to it.
    ///
    /// # Errors
    /// Where there is none.
    pub(crate) async fn exchange(
        &self,
        request: Request<Body>,
    ) -> Result<Replied, Box<dyn Error + Send + Sync>> {
        let stream = TcpStream::connect(self.addresses().await?.as_slice()).await?;
        match &self.tls {
            None => exchange_over(stream, request).await,
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await?;
                exchange_over(stream, request).await
            }
        }
    }
}

async fn exchange_over(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Body>,
) -> Result<Replied, Box<dyn Error + Send + Sync>> {
    let (mut to, connection) = hyper::client::conn::http1::Builder::new()
        .max_buf_size(MOST_HEAD)
        .max_headers(MOST_HEADERS)
        .handshake(TokioIo::new(stream))
        .await?;
    // It ends with this request, however that ends.
    let mut drives = JoinSet::new();
    drives.spawn(connection);
    let answer = to.send_request(request).await?;
    let after = answer.headers().get(RETRY_AFTER);
    let after = after.and_then(|after| after.to_str().ok()?.trim().parse().ok());
    Ok(Replied {
        status: answer.status(),
        after: after.map(Duration::from_secs),
        body: read(answer.into_body()).await,
    })
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

/// Returns a factor by which servers that failed together do not come back together.
pub(crate) fn jitter() -> f64 {
    0.75 + (RandomState::new().hash_one(0) % 512) as f64 / 1024.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_apart() {
        for (url, host, port, base, is_open) in [
            ("http://c:4318", "c", 4318, "", true),
            ("http://c/", "c", 80, "", true),
            ("http://[::1]:4318/x/", "::1", 4318, "/x", false),
            ("http://LOCALHOST", "LOCALHOST", 80, "", false),
            ("http://localhost.evil", "localhost.evil", 80, "", true),
            ("http://0.0.0.0", "0.0.0.0", 80, "", true),
        ] {
            let made = Remote::new("--otlp", url, ("--otlp-ca", None)).unwrap();
            assert_eq!(
                (made.host.as_str(), made.port, made.base.as_str()),
                (host, port, base)
            );
            assert_eq!(made.is_open(), is_open, "{url}");
        }
    }

    /// A resolver that does not answer has one thread, and what it finds at last is used.
    #[test]
    fn one_look_up_is_under_way() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static LOOK_UPS: AtomicUsize = AtomicUsize::new(0);
        let mut remote =
            Remote::new("--otlp", "http://collector:4318", ("--otlp-ca", None)).unwrap();
        remote.resolve = |_, port| {
            LOOK_UPS.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(500));
            Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))])
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        runtime.unwrap().block_on(async {
            for _ in 0..3 {
                let short = Duration::from_millis(20);
                let found = tokio::time::timeout(short, remote.addresses()).await;
                assert!(found.is_err());
            }
            let found = remote.addresses().await.unwrap();
            assert_eq!(found, [SocketAddr::from(([127, 0, 0, 1], 4318))]);
            assert_eq!(LOOK_UPS.load(Ordering::Relaxed), 1);
            remote.addresses().await.unwrap();
            assert_eq!(LOOK_UPS.load(Ordering::Relaxed), 2);
        });
    }
}
