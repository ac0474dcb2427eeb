//! TLS of connections over TCP, by rustls: version 1.3 alone, which all scrapers and collectors of these years speak.
//! A client may be asked for a certificate of one authority, and needs no token then.

use crate::private;
use crate::usage::usage;
use midair_failure::Failure;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::fmt;
use std::path::Path;
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
#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) acceptor: TlsAcceptor,
    /// Whether clients must have a certificate.
    pub(crate) asks_clients: bool,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("asks_clients", &self.asks_clients)
            .finish_non_exhaustive()
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn failed(option: &str, path: &Path, why: impl fmt::Display) -> Failure {
    usage(format!("--{option} {}: {why}", path.display()))
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

impl Tls {
    /// Reads the files of `--tls-cert`, `--tls-key` and `--tls-client-ca`.
    ///
    /// # Errors
    /// Where one is not what it should be, or others may read the key.
    pub(crate) fn new(cert: &Path, key: &Path, ca: Option<&Path>) -> Result<Tls, Failure> {
        let chain = certificates("tls-cert", cert)?;
        let secret = private::read_secret("tls-key", key, MOST)?;
        let secret = PrivateKeyDer::from_pem_slice(&secret);
        let secret = secret.map_err(|error| failed("tls-key", key, error))?;
        let provider = provider();
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| failed("tls-cert", cert, error))?;
        let config = match ca {
            None => config.with_no_client_auth(),
            Some(ca) => {
                let roots = Arc::new(authorities("tls-client-ca", ca)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = verifier.build();
                let verifier = verifier.map_err(|error| failed("tls-client-ca", ca, error))?;
                config.with_client_cert_verifier(verifier)
            }
        };
        let config = config.with_single_cert(chain, secret);
        let mut config = config.map_err(|error| failed("tls-key", key, error))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Tls {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            asks_clients: ca.is_some(),
        })
    }
}

/// Returns how a collector is connected to: its certificate is of an authority in this file, or of the system's.
///
/// # Errors
/// Where there is no such file, or no authority in it.
pub(crate) fn connector(ca: Option<&Path>) -> Result<TlsConnector, Failure> {
    let system = || {
        SYSTEM
            .map(Path::new)
            .into_iter()
            .find(|path| private::is_file(path))
    };
    let path = ca.or_else(system).ok_or_else(|| {
        usage("this system has no list of authorities".to_owned()).hint("give an --otlp-ca")
    })?;
    let roots = authorities("otlp-ca", path)?;
    let config = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
    let config = config.map_err(|error| failed("otlp-ca", path, error))?;
    let config = config.with_root_certificates(roots).with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
