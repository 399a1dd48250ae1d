//! `tls` blocks: whom a provider's certificates are believed from, and what a listener shows its clients.
//!
//! There is no way to believe every certificate: traffic that anybody on the way can read and change is what `http://`
//! says openly.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, Error, RootCertStore, ServerConfig};
use sha2::{Digest, Sha256};

use super::Credentials;
use super::decode::{At, Decoder, Fields};
use super::read_bounded;
use crate::bounds;

/// What is spoken inside: nothing but HTTP/1.1 (RFC 7301).
const PROTOCOL: &[u8] = b"http/1.1";

/// How a provider is spoken to over TLS.
#[derive(Clone)]
pub struct ClientTls {
    /// The settings, which also keep what is needed to resume sessions.
    pub config: Arc<ClientConfig>,
    /// A hash of whose certificates are believed: equal ones are one setting.
    pub roots: [u8; 32],
    /// The file with the roots, when they are not the built-in ones.
    pub ca_file: Option<PathBuf>,
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ClientTls").field("ca_file", &self.ca_file).finish_non_exhaustive()
    }
}

/// What a listener shows its clients.
#[derive(Clone)]
pub struct ServerTls {
    /// The settings.
    pub config: Arc<ServerConfig>,
    /// The file of the certificate and those that it leads through.
    pub cert_file: PathBuf,
    /// The file of its key.
    pub key_file: PathBuf,
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ServerTls").field("cert_file", &self.cert_file).finish_non_exhaustive()
    }
}

/// A listener's `tls` block. The files are not looked at where credentials are not.
pub fn server(
    decoder: &mut Decoder<'_>,
    fields: &Fields<'_>,
    folder: &Path,
    credentials: Credentials,
) -> Option<Option<ServerTls>> {
    let Some(at) = fields.get("tls") else { return Some(None) };
    let block = decoder.fields(at.clone(), &["cert_file", "key_file"])?;
    let cert = decoder.required(&block, "cert_file");
    let key = decoder.required(&block, "key_file");
    let cert = cert.and_then(|at| Some((folder.join(decoder.string(&at)?), at)));
    let key = key.and_then(|at| Some((folder.join(decoder.string(&at)?), at)));
    if credentials == Credentials::Unused {
        return cert.and(key).map(|_| None);
    }
    let chain = cert.as_ref().and_then(|(path, at)| in_file(decoder, at, path, certificates));
    let own = key.as_ref().and_then(|(path, at)| in_file(decoder, at, path, private_key));
    let (chain, own) = (chain?, own?);
    let ((cert_file, _), (key_file, key_at)) = (cert?, key?);
    match server_config(chain, own) {
        Ok(config) => Some(Some(ServerTls { config: Arc::new(config), cert_file, key_file })),
        Err(Error::InconsistentKeys(_)) => {
            let (key, cert) = (key_file.display(), cert_file.display());
            decoder.error(&key_at, format!("{key}: is not the key of the certificate in {cert}"));
            None
        }
        Err(error) => {
            decoder.error(&at, format!("the certificate and its key cannot be used: {error}"));
            None
        }
    }
}

fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, Error> {
    let mut config = ServerConfig::builder_with_provider(cryptography())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    // Sealed tickets instead of a table: any core resumes what another one began.
    config.ticketer = ring::Ticketer::new()?;
    Ok(config)
}

/// What a PEM file holds; an error has the file's name, and nothing of what is in it.
fn in_file<T>(
    decoder: &mut Decoder<'_>,
    at: &At<'_>,
    path: &Path,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Option<T> {
    let pem = pem_file(decoder, at, path)?;
    match read(&pem) {
        Ok(found) => Some(found),
        Err(reason) => {
            decoder.error(at, format!("{}: {reason}", path.display()));
            None
        }
    }
}

fn private_key(pem: &str) -> Result<PrivateKeyDer<'static>, String> {
    let wrong = "holds no private key that is not encrypted (-----BEGIN PRIVATE KEY-----)";
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| wrong.to_owned())
}

/// A provider's `tls` block, the built-in roots when absent. `used`: whether it has a base URL with TLS at all.
pub fn client(
    decoder: &mut Decoder<'_>,
    fields: &Fields<'_>,
    folder: &Path,
    credentials: Credentials,
    used: bool,
) -> Option<Option<ClientTls>> {
    let Some(at) = fields.get("tls") else {
        return Some(used.then(|| client_tls(built_in_roots(), [0; 32], None)));
    };
    if !used {
        decoder.warn(&at, "has no effect: no base URL of this provider begins with https://");
    }
    let fields = decoder.fields(at, &["ca_file"])?;
    let at = decoder.required(&fields, "ca_file")?;
    let path = folder.join(decoder.string(&at)?);
    if credentials == Credentials::Unused {
        return Some(used.then(|| client_tls(built_in_roots(), [0; 32], Some(path))));
    }
    let pem = pem_file(decoder, &at, &path)?;
    match roots(&pem) {
        Ok(roots) => {
            let hash = Sha256::digest(&pem).into();
            Some(used.then(|| client_tls(roots, hash, Some(path))))
        }
        Err(reason) => {
            decoder.error(&at, format!("{}: {reason}", path.display()));
            None
        }
    }
}

/// The text of a file of certificates or keys.
fn pem_file(decoder: &mut Decoder<'_>, at: &At<'_>, path: &Path) -> Option<String> {
    match read_bounded(path, bounds::PEM_BYTES) {
        Ok(pem) => Some(pem),
        Err(reason) => {
            decoder.error(at, format!("{}: {reason}", path.display()));
            None
        }
    }
}

/// The certificates of a PEM text: at least one.
fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match read {
        Ok(certificates) if certificates.is_empty() => {
            Err("holds no certificate (-----BEGIN CERTIFICATE-----)".to_owned())
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(format!("holds a certificate that is not PEM: {error}")),
    }
}

fn roots(pem: &str) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for (index, certificate) in certificates(pem)?.into_iter().enumerate() {
        let number = index + 1;
        roots.add(certificate).map_err(|error| format!("certificate {number} cannot be a root: {error}"))?;
    }
    Ok(roots)
}

fn built_in_roots() -> RootCertStore {
    RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }
}

fn cryptography() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn client_tls(roots: RootCertStore, hash: [u8; 32], ca_file: Option<PathBuf>) -> ClientTls {
    let mut config = ClientConfig::builder_with_provider(cryptography())
        .with_safe_default_protocol_versions()
        .expect("ring has what TLS 1.2 and 1.3 need")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    ClientTls { config: Arc::new(config), roots: hash, ca_file }
}
