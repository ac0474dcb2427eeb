//! Who may ask.
//!
//! Without a token, these are users of this machine by their number: root, the server's own user, and users
//! of `--client-user`. A unix socket names the number. For a connection by loopback the kernel's list of
//! connections does, where the client's own end has a row; only a row of an established connection counts,
//! since the kernel gives all that were closed to root. With a token, each request must have it.
//!
//! A browser on the same machine may be tricked by a page. So a request to a name that is not this
//! machine's is refused (DNS rebinding), and so is one that another site's page makes.

use crate::current::Current;
use crate::private;
use crate::usage::usage;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, ORIGIN, USER_AGENT};
use midair_failure::Failure;
use nix::unistd::Uid;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

/// The shortest token, and the most bytes of its file.
const SHORTEST: usize = 16;
const MOST_TOKEN: u64 = 4096;
/// The most bytes of the kernel's list of connections that are read.
const MOST_LIST: u64 = 32 << 20;
/// What the kernel calls an established connection.
const ESTABLISHED: &str = "01";

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A user of this machine, over a unix socket.
    Local(u32),
    /// A user of this machine, over loopback.
    Loopback(u32),
    /// Someone whose certificate is of the authority of `--tls-client-ca`.
    Certified,
    /// Someone who is not known.
    Unknown,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It has no token, or a wrong one.
    Token,
    /// Its user may not ask.
    User,
    /// It is for another host, or comes from another site's page.
    Site,
}

/// The token of a file.
pub(crate) type Token = Current<Vec<u8>>;

/// Who may ask.
#[derive(Debug)]
pub(crate) struct Clients {
    token: Option<Arc<Token>>,
    users: Vec<u32>,
    hosts: Vec<String>,
    /// Whether connections over TCP have TLS.
    has_tls: bool,
}

impl Clients {
    pub(crate) fn new(
        token: Option<Arc<Token>>,
        mut users: Vec<u32>,
        hosts: Vec<String>,
        has_tls: bool,
    ) -> Clients {
        users.extend([0, Uid::effective().as_raw()]);
        Clients {
            token,
            users,
            hosts,
            has_tls,
        }
    }

    /// Whether a unix socket must let other users connect, whose numbers the kernel then names.
    pub(crate) fn has_others(&self) -> bool {
        self.token.is_some() || self.users.len() > 2
    }

    /// Whether a token is required.
    pub(crate) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Whether no request of this peer's would be answered.
    pub(crate) fn never_answer(&self, peer: Peer) -> bool {
        let known = match peer {
            Peer::Local(uid) | Peer::Loopback(uid) => self.users.contains(&uid),
            Peer::Certified => true,
            Peer::Unknown => false,
        };
        self.token.is_none() && !known
    }

    /// Decides about a request.
    pub(crate) fn check(&self, peer: Peer, headers: &HeaderMap) -> Result<(), Refused> {
        if !matches!(peer, Peer::Local(_)) {
            self.check_site(peer, headers)?;
        }
        match (&self.token, peer) {
            (Some(token), _) => match has_token(headers, &token.get()) {
                true => Ok(()),
                false => Err(Refused::Token),
            },
            (None, peer) if self.never_answer(peer) => Err(Refused::User),
            (None, _) => Ok(()),
        }
    }

    fn check_site(&self, peer: Peer, headers: &HeaderMap) -> Result<(), Refused> {
        let one = |name: &HeaderName| {
            let mut all = headers.get_all(name).iter();
            match (all.next(), all.next()) {
                (None, _) => Ok(None),
                (Some(one), None) => one.to_str().map(Some).map_err(|_| Refused::Site),
                _ => Err(Refused::Site),
            }
        };
        let host = one(&HOST)?.ok_or(Refused::Site)?;
        if !self.is_ours(peer, host) {
            return Err(Refused::Site);
        }
        if let Some(origin) = one(&ORIGIN)? {
            let of = origin.strip_prefix(if self.has_tls { "https://" } else { "http://" });
            if !of.is_some_and(|of| of.eq_ignore_ascii_case(host)) {
                return Err(Refused::Site);
            }
        }
        match one(&FETCH_SITE)? {
            // A browser says nothing about a page's picture if the address is not one that it trusts.
            None if self.token.is_none() && one(&USER_AGENT)?.is_some_and(is_browser) => {
                Err(Refused::Site)
            }
            None | Some("same-origin" | "none") => Ok(()),
            Some(_) => Err(Refused::Site),
        }
    }

    /// Whether a host, with or without a port, is an address, localhost, or a name of `--host`. An
    /// address cannot be rebound. Without a token it is a loopback address: 0.0.0.0 leads there, too, and
    /// a browser takes it for another site's.
    fn is_ours(&self, peer: Peer, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let bare = name.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        if let Ok(address) = bare.unwrap_or(name).parse::<IpAddr>() {
            let is_known = self.token.is_some() || peer == Peer::Certified;
            return is_known || address.is_loopback();
        }
        let name = name.to_ascii_lowercase();
        name == "localhost" || self.hosts.contains(&name)
    }
}

/// Whether a `User-Agent` is a browser's.
fn is_browser(agent: &str) -> bool {
    agent.starts_with("Mozilla/")
}

/// Whether the request has the token. The time does not depend on where they differ.
fn has_token(headers: &HeaderMap, token: &[u8]) -> bool {
    let Some(given) = headers.get(AUTHORIZATION) else {
        return false;
    };
    let given = given.as_bytes();
    let Some(given) = given
        .get(7..)
        .filter(|_| given[..7].eq_ignore_ascii_case(b"bearer "))
    else {
        return false;
    };
    let differ = given.iter().zip(token).fold(0, |all, (a, b)| all | (a ^ b));
    given.len() == token.len() && std::hint::black_box(differ) == 0
}

/// Reads the token of `--token-file`, or of another option.
///
/// # Errors
/// Where there is none, it is short, or others may read it.
pub(crate) fn read_token(option: &str, path: &Path) -> Result<Vec<u8>, Failure> {
    let bytes = private::read_secret(option, path, MOST_TOKEN)?;
    let token = bytes.trim_ascii();
    match token.len() >= SHORTEST && token.iter().all(u8::is_ascii_graphic) {
        true => Ok(token.to_vec()),
        false => Err(usage(format!(
            "{option} {}: a token has at least {SHORTEST} printable characters without spaces",
            path.display()
        ))),
    }
}

/// Returns who is at the other end of a connection between these two addresses, `ours` and the client's.
pub(crate) fn at_the_other_end(ours: SocketAddr, client: SocketAddr) -> Peer {
    if !client.ip().is_loopback() {
        return Peer::Unknown;
    }
    let list = match client {
        SocketAddr::V4(_) => "/proc/thread-self/net/tcp",
        SocketAddr::V6(_) => "/proc/thread-self/net/tcp6",
    };
    let text = kernel_list(list).unwrap_or_default();
    owner(&text, client, ours).map_or(Peer::Unknown, Peer::Loopback)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a file of the kernel's about itself"
)]
fn kernel_list(path: &str) -> std::io::Result<String> {
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    file.take(MOST_LIST).read_to_string(&mut text)?;
    Ok(text)
}

/// Finds the user of the established connection from `from` to `to` in the kernel's list.
fn owner(list: &str, from: SocketAddr, to: SocketAddr) -> Option<u32> {
    let (from, to) = (as_listed(from), as_listed(to));
    list.lines().skip(1).find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let mut next = || words.next();
        let is_it = next()? == from && next()? == to && next()? == ESTABLISHED;
        if !is_it {
            return None;
        }
        words.nth(3)?.parse().ok()
    })
}

/// Returns an address as the kernel's list has it.
fn as_listed(address: SocketAddr) -> String {
    let bytes = match address.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let words = bytes.as_chunks::<4>().0.iter();
    let words: String = words
        .map(|word| format!("{:08X}", u32::from_ne_bytes(*word)))
        .collect();
    format!("{words}:{:04X}", address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn token() -> Option<Arc<Token>> {
        let token = Current::new(&[], || Ok(b"0123456789abcdef".to_vec()));
        Some(Arc::new(token.unwrap()))
    }

    fn headers(all: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in all {
            let name: HeaderName = name.parse().unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        map
    }

    #[test]
    fn the_kernel_knows_whose_an_established_connection_is() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_server, from) = listener.accept().unwrap();
        let ours = listener.local_addr().unwrap();
        let me = Uid::effective().as_raw();
        assert_eq!(at_the_other_end(ours, from), Peer::Loopback(me));
        // The kernel says that a connection that its client has closed is root's.
        drop(client);
        assert_eq!(at_the_other_end(ours, from), Peer::Unknown);
        let elsewhere = "10.0.0.1:5".parse().unwrap();
        assert_eq!(at_the_other_end(ours, elsewhere), Peer::Unknown);
    }

    #[test]
    fn a_row_of_another_state_or_direction_is_no_row() {
        let list = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n   \
            0: 0100007F:1234 0100007F:24FC 08 00000000:00000000 00:00000000 00000000     0        0 0 2\n   \
            1: 0100007F:1235 0100007F:24FC 01 00000000:00000000 00:00000000 00000000  1007        0 9 2\n";
        let to: SocketAddr = "127.0.0.1:9468".parse().unwrap();
        let from = |port| SocketAddr::new(to.ip(), port);
        assert_eq!(owner(list, from(0x1234), to), None);
        assert_eq!(owner(list, from(0x1235), to), Some(1007));
        assert_eq!(owner(list, to, from(0x1235)), None);
        let six = as_listed("[::1]:9468".parse().unwrap());
        assert_eq!(six, "00000000000000000000000001000000:24FC");
    }

    #[test]
    fn users_of_this_machine_by_their_number() {
        let clients = Clients::new(None, vec![1007], Vec::new(), false);
        let local = headers(&[("host", "127.0.0.1:9468")]);
        let me = Uid::effective().as_raw();
        for uid in [0, me, 1007] {
            assert_eq!(clients.check(Peer::Loopback(uid), &local), Ok(()));
            assert_eq!(clients.check(Peer::Local(uid), &HeaderMap::new()), Ok(()));
        }
        for peer in [Peer::Loopback(1008), Peer::Local(1008), Peer::Unknown] {
            assert_eq!(clients.check(peer, &local), Err(Refused::User), "{peer:?}");
        }
    }

    #[test]
    fn a_token_is_needed_by_everyone_where_there_is_one() {
        let clients = Clients::new(token(), vec![], vec![], false);
        let with = |word: &str| headers(&[("host", "10.1.2.3"), ("authorization", word)]);
        for peer in [Peer::Unknown, Peer::Loopback(0), Peer::Local(0)] {
            for right in ["Bearer 0123456789abcdef", "bearer 0123456789abcdef"] {
                assert_eq!(clients.check(peer, &with(right)), Ok(()));
            }
            for wrong in [
                "Bearer 0123456789abcdeg",
                "Bearer 0123456789abcde",
                "Bearer 0123456789abcdef0",
                "Bearer ",
                "Basic 0123456789abcdef",
                "B",
            ] {
                assert_eq!(clients.check(peer, &with(wrong)), Err(Refused::Token));
            }
            let none = headers(&[("host", "10.1.2.3")]);
            assert_eq!(clients.check(peer, &none), Err(Refused::Token));
        }
    }

    /// A certificate opens as a token does, and a page in its owner's browser has neither.
    #[test]
    fn a_certificate_lets_in_and_pages_do_not() {
        let clients = Clients::new(None, vec![], vec![], true);
        let check = |peer, all: &[(&str, &str)]| clients.check(peer, &headers(all));
        let host = ("host", "10.1.2.3:9468");
        assert_eq!(check(Peer::Certified, &[host]), Ok(()));
        let own = ("origin", "https://10.1.2.3:9468");
        assert_eq!(check(Peer::Certified, &[host, own]), Ok(()));
        assert_eq!(
            check(Peer::Unknown, &[("host", "localhost")]),
            Err(Refused::User)
        );
        for refused in [
            &[("host", "evil.example")][..],
            &[host, ("origin", "http://10.1.2.3:9468")],
            &[host, ("sec-fetch-site", "cross-site")],
            &[host, ("user-agent", "Mozilla/5.0 (X11)")],
        ] {
            assert_eq!(check(Peer::Certified, refused), Err(Refused::Site));
        }
        // Where a token is asked for as well, both are needed.
        let clients = Clients::new(token(), vec![], vec![], true);
        let without = clients.check(Peer::Certified, &headers(&[host]));
        assert_eq!(without, Err(Refused::Token));
    }

    #[test]
    fn other_names_and_other_sites_are_refused() {
        let clients = Clients::new(None, vec![], vec!["gpu7".to_owned()], false);
        let check = |all: &[(&str, &str)]| clients.check(Peer::Loopback(0), &headers(all));
        for host in [
            "localhost",
            "LOCALHOST:9468",
            "[::1]:9468",
            "127.0.0.1",
            "gpu7:1",
        ] {
            assert_eq!(check(&[("host", host)]), Ok(()), "{host}");
            let own = format!("http://{host}");
            assert_eq!(check(&[("host", host), ("origin", &own)]), Ok(()));
        }
        let typed = [
            ("host", "localhost"),
            ("user-agent", "Mozilla/5.0 (X11)"),
            ("sec-fetch-site", "none"),
        ];
        assert_eq!(check(&typed), Ok(()));
        for all in [
            &[][..],
            &[("host", "evil.example")],
            &[("host", "127.0.0.1.evil.example")],
            &[("host", "localhost.evil")],
            &[("host", "127.0.0.1@evil")],
            &[("host", "localhost"), ("host", "evil")],
            &[("host", "localhost"), ("origin", "http://evil.example")],
            &[("host", "localhost"), ("origin", "null")],
            &[("host", "localhost"), ("origin", "https://localhost")],
            &[("host", "localhost"), ("sec-fetch-site", "cross-site")],
            &[("host", "localhost"), ("sec-fetch-site", "same-site")],
            // A page reaches these by http, where a browser sends neither of the two.
            &[("host", "0.0.0.0:9468")],
            &[("host", "10.1.2.3:9468")],
            &[("host", "gpu7"), ("user-agent", "Mozilla/5.0 (X11)")],
        ] {
            assert_eq!(check(all), Err(Refused::Site), "{all:?}");
        }
    }

    #[test]
    fn a_token_that_others_may_read_is_none() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let with = |text: &str, mode| {
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            read_token("--token-file", &file).map_err(|failure| failure.what)
        };
        assert_eq!(
            with("0123456789abcdef\n", 0o640).unwrap(),
            b"0123456789abcdef"
        );
        assert!(with("0123456789abcdef", 0o604).is_err());
        assert!(with("0123456789abcdef", 0o620).is_err());
        assert!(with("short", 0o600).is_err());
        assert!(with("0123456789abcdef 0123", 0o600).is_err());
        assert!(read_token("--token-file", dir.path()).is_err());
    }
}
