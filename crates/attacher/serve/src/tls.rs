//! TLS of connections over TCP, by rustls: version 1.3 alone, which all scrapers and collectors of these years speak.
//! A client may be asked for a certificate of one authority, and needs no token then. What that authority has revoked is
//! in a list next to it. Files that change are read again ([`crate::current`]).

use crate::current::Current;
use crate::private;
use crate::usage::usage;
use midair_failure::Failure;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The most bytes of a file with certificates.
const MOST: u64 = 4 << 20;
/// Where systems keep the authorities that they trust.
const SYSTEM: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
];

/// How connections are accepted.
#[derive(Debug)]
pub(crate) struct Tls {
    pub(crate) acceptor: Arc<Current<TlsAcceptor>>,
    /// Whether clients must have a certificate.
    pub(crate) asks_clients: bool,
}

/// The files of `--tls-cert`, `--tls-key`, `--tls-client-ca` and `--tls-client-crl`.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) crl: Option<PathBuf>,
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn failed(option: &str, path: &Path, why: impl fmt::Display) -> Failure {
    usage(format!("{option} {}: {why}", path.display()))
}

fn certificates(option: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let bytes = private::read(path, MOST).map_err(|error| failed(option, path, error))?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let all = all.map_err(|error| failed(option, path, error))?;
    match all.is_empty() {
        true => Err(failed(option, path, "there is no certificate in it")),
        false => Ok(all),
    }
}

fn authorities(option: &str, path: &Path) -> Result<RootCertStore, Failure> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates(option, path)?);
    match added {
        0 => Err(failed(option, path, "there is no authority in it")),
        _ => Ok(roots),
    }
}

/// Reads lists of revoked certificates.
fn revoked(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, Failure> {
    let failed = |why: &dyn fmt::Display| failed("--tls-client-crl", path, why);
    let bytes = private::read(path, MOST).map_err(|error| failed(&error))?;
    let all: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&bytes).collect();
    let all = all.map_err(|error| failed(&error))?;
    match all.is_empty() {
        true => Err(failed(&"there is no list of revoked certificates in it")),
        false => Ok(all),
    }
}

impl Files {
    /// Reads them.
    fn acceptor(&self) -> Result<TlsAcceptor, Failure> {
        let chain = certificates("--tls-cert", &self.cert)?;
        let secret = private::read_secret("--tls-key", &self.key, MOST)?;
        let secret = PrivateKeyDer::from_pem_slice(&secret);
        let secret = secret.map_err(|error| failed("--tls-key", &self.key, error))?;
        let provider = provider();
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| failed("--tls-cert", &self.cert, error))?;
        let config = match &self.ca {
            None => config.with_no_client_auth(),
            Some(ca) => {
                let roots = Arc::new(authorities("--tls-client-ca", ca)?);
                let mut verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                // A certificate whose authority has no list here is refused as well.
                if let Some(crl) = &self.crl {
                    verifier = verifier.with_crls(revoked(crl)?);
                }
                let verifier = verifier.build();
                let verifier = verifier.map_err(|error| failed("--tls-client-ca", ca, error))?;
                config.with_client_cert_verifier(verifier)
            }
        };
        let config = config.with_single_cert(chain, secret);
        let mut config = config.map_err(|error| failed("--tls-key", &self.key, error))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        if self.ca.is_some() {
            // A session that is resumed shows no certificate, which may have ended meanwhile.
            config.send_tls13_tickets = 0;
        }
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// Where one is not what it should be, or others may read the key.
    pub(crate) fn new(files: Files) -> Result<Tls, Failure> {
        let asks_clients = files.ca.is_some();
        let all = [
            Some(&files.cert),
            Some(&files.key),
            files.ca.as_ref(),
            files.crl.as_ref(),
        ];
        let all = all.map(|file| file.map(PathBuf::as_path));
        let acceptor = Current::new(&all, {
            let files = files.clone();
            move || files.acceptor()
        })?;
        Ok(Tls {
            acceptor: Arc::new(acceptor),
            asks_clients,
        })
    }
}

/// Returns how another server is connected to: its certificate is of an authority in the file of this option, or of the
/// system's.
///
/// # Errors
/// Where there is no such file, or no authority in it.
pub(crate) fn connector(option: &str, ca: Option<&Path>) -> Result<TlsConnector, Failure> {
    let system = || {
        SYSTEM
            .map(Path::new)
            .into_iter()
            .find(|path| private::is_file(path))
    };
    let path = ca.or_else(system).ok_or_else(|| {
        usage("this system has no list of authorities".to_owned()).hint(format!("give an {option}"))
    })?;
    let roots = authorities(option, path)?;
    let config = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
    let config = config.map_err(|error| failed(option, path, error))?;
    let config = config.with_root_certificates(roots).with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
