//! Sockets, and the limits of connections.

use crate::answer::refused;
use crate::budget::uncounted;
use crate::clients::{Peer, at_the_other_end};
use crate::current;
use crate::options::{Address, Options};
use crate::otlp;
use crate::push;
use crate::route::{Server, route};
use crate::say;
use crate::stall::Stall;
use crate::strangers::Place;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use midair_failure::{Failure, Kind};
use std::convert::Infallible;
use std::future::{Future, pending, poll_fn};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinSet, spawn_blocking};

/// How many connections are looked up at the same time, each in a thread.
pub(crate) const MOST_LOOKS: usize = 2;
static LOOKS: Semaphore = Semaphore::const_new(MOST_LOOKS);
/// The most connections at the same time. More wait in the kernel's queue.
const MOST_CONNECTIONS: usize = 128;
/// What a client may take its time for.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// To send a request's head, also the next one of a connection.
    head: Duration,
    /// To leave an answer unread; a client that reads too slowly uses it up as well.
    unread: Duration,
}

const PATIENCE: Patience = Patience {
    head: Duration::from_secs(10),
    unread: Duration::from_secs(30),
};
/// The most bytes of a request's head, and the most headers.
const MOST_HEAD: usize = 16 << 10;
const MOST_HEADERS: usize = 64;
/// The longest life of a connection.
const LIFE: Duration = Duration::from_secs(3600);
/// The pause after an accept that failed, as where descriptors have run out.
const PAUSE: Duration = Duration::from_millis(100);

/// The answer to a user whom no request helps.
const STRANGER: &[u8] = b"HTTP/1.1 403 Forbidden\r\ncontent-type: application/json\r\ncontent-length: 92\r\n\
    connection: close\r\n\r\n\
    {\"error\":\"this user may not ask; see midair serve --client-user and --token-file\"}         \n";

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

enum Accepted {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Listener {
    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Listener::Tcp(listener) => listener.accept().await.map(|it| Accepted::Tcp(it.0)),
            Listener::Unix(listener) => listener.accept().await.map(|it| Accepted::Unix(it.0)),
        }
    }
}

/// Listens and serves until a signal.
///
/// # Errors
/// [`Kind::Enter`] where an address cannot be listened at.
pub(crate) async fn serve(options: Arc<Options>) -> Result<(), Failure> {
    let mut signals = Vec::new();
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        let signal = signal(kind);
        signals.push(signal.map_err(|error| failed(format!("cannot take signals: {error}")))?);
    }
    let mut listeners = Vec::new();
    for address in &options.listen {
        listeners.push(listen(address, &options).await?);
    }
    let server = Arc::new(Server::new(Arc::clone(&options))?);
    let mut serving = JoinSet::new();
    otlp::start(&server, &mut serving);
    push::start(&server, &mut serving);
    current::start(options.files(), &mut serving);
    for listener in listeners {
        // Strangers on a network do not take the places of a unix socket.
        let connections = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        serving.spawn(accept(listener, Arc::clone(&server), connections));
    }
    poll_fn(|context| {
        let came = signals
            .iter_mut()
            .any(|it| it.poll_recv(context).is_ready());
        match came {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    // Their connections end with them, and so does each attach.
    serving.shutdown().await;
    push::last(&server).await;
    server.end();
    for address in &options.listen {
        if let Address::Unix(path) = address {
            let _ = std::fs::remove_file(path);
        }
    }
    Ok(())
}

fn failed(what: String) -> Failure {
    Failure::new(Kind::Enter, what).hint("choose another --listen")
}

async fn listen(address: &Address, options: &Options) -> Result<Listener, Failure> {
    match address {
        Address::Tcp(at) => {
            let listener = TcpListener::bind(at).await;
            let listener =
                listener.map_err(|error| failed(format!("cannot listen at {at}: {error}")))?;
            let at = listener.local_addr().unwrap_or(*at);
            let scheme = options.tls.as_ref().map_or("http", |_| "https");
            say(&format!("listening at {scheme}://{at}"));
            Ok(Listener::Tcp(listener))
        }
        Address::Unix(path) => {
            let listener = unix(path, options.clients.has_others());
            let listener = listener
                .map_err(|error| failed(format!("cannot listen at {}: {error}", path.display())))?;
            say(&format!("listening at unix:{}", path.display()));
            Ok(Listener::Unix(listener))
        }
    }
}

/// Listens at a path. A socket that an earlier server of this user left there is replaced; any other file is an error.
#[expect(
    clippy::disallowed_methods,
    reason = "a path that the user names, with the user's rights"
)]
fn unix(path: &Path, has_others: bool) -> io::Result<UnixListener> {
    if let Ok(left) = std::fs::symlink_metadata(path) {
        let is_ours = left.uid() == nix::unistd::Uid::effective().as_raw();
        let is_left = left.file_type().is_socket()
            && is_ours
            && std::os::unix::net::UnixStream::connect(path).is_err();
        if !is_left {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        std::fs::remove_file(path)?;
    }
    // The socket's rights are set by its path, which only we may change then.
    let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
    let about = std::fs::metadata(directory.unwrap_or(Path::new(".")))?;
    let is_safe = [0, nix::unistd::Uid::effective().as_raw()].contains(&about.uid())
        && (about.mode() & 0o022 == 0 || about.mode() & 0o1000 != 0);
    if !is_safe {
        let why = "others may replace files in its directory";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    let listener = UnixListener::bind(path)?;
    // Who connects is known by the kernel, so others may where some others are served.
    let mode = if has_others { 0o666 } else { 0o600 };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    Ok(listener)
}

async fn accept(listener: Listener, server: Arc<Server>, connections: Arc<Semaphore>) {
    let mut serving = JoinSet::new();
    loop {
        while serving.try_join_next().is_some() {}
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok(accepted) => {
                serving.spawn(connected(accepted, Arc::clone(&server), permit));
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn connected(accepted: Accepted, server: Arc<Server>, _permit: OwnedSemaphorePermit) {
    match accepted {
        Accepted::Tcp(stream) => {
            let ends = (stream.local_addr(), stream.peer_addr());
            let place = match (server.options.knows_otherwise(), &ends.1) {
                (true, Ok(client)) => {
                    let entered = server.strangers.enter(client.ip(), Instant::now());
                    let Some(place) = entered else { return };
                    Some(place)
                }
                _ => None,
            };
            let peer = match ends {
                (Ok(ours), Ok(client)) if !server.options.knows_otherwise() => {
                    // Where there are many connections, that list is long.
                    let _look = LOOKS.acquire().await;
                    let asked = spawn_blocking(move || at_the_other_end(ours, client));
                    asked.await.unwrap_or(Peer::Unknown)
                }
                _ => Peer::Unknown,
            };
            if !server.options.knows_otherwise() && server.options.clients.never_answer(peer) {
                // Such a connection must not take the place of another.
                let _ = stream.try_write(STRANGER);
                return;
            }
            let _ = stream.set_nodelay(true);
            let Some(tls) = &server.options.tls else {
                answer(TokioIo::new(stream), peer, place, server, PATIENCE).await;
                return;
            };
            let peer = match tls.asks_clients {
                true => Peer::Certified,
                false => peer,
            };
            // What a certificate said holds until the files change.
            let mut changes = tls.acceptor.changes();
            let acceptor = changes.borrow_and_update().clone();
            let accept = uncounted(acceptor.accept(stream));
            let shaken = tokio::time::timeout(PATIENCE.head, accept);
            if let Ok(Ok(stream)) = shaken.await {
                let changed = async move { drop(changes.changed().await) };
                answer_until(changed, TokioIo::new(stream), peer, place, server, PATIENCE).await;
            }
        }
        Accepted::Unix(stream) => {
            let peer = match stream.peer_cred() {
                Ok(peer) => Peer::Local(peer.uid()),
                Err(_) => Peer::Unknown,
            };
            if server.options.clients.never_answer(peer) {
                let _ = stream.try_write(STRANGER);
                return;
            }
            answer(TokioIo::new(stream), peer, None, server, PATIENCE).await;
        }
    }
}

async fn answer(
    stream: impl Read + Write + Unpin,
    peer: Peer,
    place: Option<Place>,
    server: Arc<Server>,
    patience: Patience,
) {
    answer_until(pending(), stream, peer, place, server, patience).await;
}

/// Answers requests until this has happened, and the one that is under way then.
async fn answer_until(
    ends: impl Future<Output = ()>,
    stream: impl Read + Write + Unpin,
    peer: Peer,
    place: Option<Place>,
    server: Arc<Server>,
    patience: Patience,
) {
    // Other futures of this connection than this one do not touch it.
    let place = Arc::new(Mutex::new(place));
    let service = service_fn(move |request: Request<Incoming>| {
        let (server, place) = (Arc::clone(&server), Arc::clone(&place));
        async move {
            // While a body is to be read, nothing notices that its client has gone.
            let has_body = request.headers().contains_key(header::TRANSFER_ENCODING)
                || (request.headers().get(header::CONTENT_LENGTH)).is_some_and(|it| it != "0");
            let mut answer = match has_body {
                true => refused(StatusCode::BAD_REQUEST, "a request has no body here"),
                false => route(&server, peer, &request).await,
            };
            // A client that is refused does not keep the place of another.
            if answer.status().is_client_error() {
                let close = header::HeaderValue::from_static("close");
                answer.headers_mut().insert(header::CONNECTION, close);
            } else if let Some(place) = place
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .as_mut()
            {
                place.admit(Instant::now());
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(patience.head)
        .max_buf_size(MOST_HEAD)
        .max_headers(MOST_HEADERS)
        .serve_connection(Stall::new(stream, patience.unread), service);
    let mut connection = pin!(connection);
    let mut ends = pin!(ends);
    let mut is_over = false;
    let served = poll_fn(|context| {
        if !is_over && ends.as_mut().poll(context).is_ready() {
            is_over = true;
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(context)
    });
    // What a client does wrong is its own affair.
    let _ = tokio::time::timeout(LIFE, served).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::io::Write as _;

    /// Runs with a server's end of a connection, and returns what its client gets until the end.
    fn answered(words: &'static [u8]) -> (String, Duration) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let at = listener.local_addr().unwrap();
            let client = std::thread::spawn(move || {
                let began = Instant::now();
                let mut client = std::net::TcpStream::connect(at).unwrap();
                client.write_all(words).unwrap();
                let mut said = String::new();
                let _ = client.read_to_string(&mut said);
                (said, began.elapsed())
            });
            let (stream, _) = listener.accept().await.unwrap();
            let server = Server::new(Arc::new(Options::parse(&[]).unwrap())).unwrap();
            let patience = Patience {
                head: Duration::from_millis(200),
                unread: Duration::from_millis(200),
            };
            answer(
                TokioIo::new(stream),
                Peer::Loopback(0),
                None,
                Arc::new(server),
                patience,
            )
            .await;
            client.join().unwrap()
        })
    }

    #[test]
    fn a_head_that_does_not_end_ends_the_connection() {
        let (said, took) = answered(b"GET /metrics HTTP/1.1\r\nHost: local");
        assert!(
            said.is_empty() || said.starts_with("HTTP/1.1 408"),
            "{said}"
        );
        assert!(took < Duration::from_secs(5), "{took:?}");
        // Nor does one that asks once and then leaves its connection open.
        let (said, took) = answered(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(said.starts_with("HTTP/1.1 200"), "{said}");
        assert!(took < Duration::from_secs(5), "{took:?}");
    }

    /// While a body is awaited, it would not be noticed that its client has gone.
    #[test]
    fn a_request_with_a_body_is_refused() {
        for body in [
            "Content-Length: 1\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\n",
        ] {
            let words = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{body}");
            let (said, took) = answered(Box::leak(words.into_boxed_str()).as_bytes());
            assert!(said.starts_with("HTTP/1.1 400"), "{said}");
            assert!(said.contains("connection: close"), "{said}");
            assert!(took < Duration::from_secs(5), "{took:?}");
        }
    }

    #[test]
    fn the_answer_to_a_stranger_is_whole() {
        let text = std::str::from_utf8(STRANGER).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let length = head.split("content-length: ").nth(1).unwrap();
        let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
        assert_eq!(length, body.len());
        assert!(body.ends_with('\n') && body.trim_end().ends_with('}'));
    }
}
