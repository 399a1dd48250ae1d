//! `tls` blocks: whom a provider's certificates are believed from.
//!
//! There is no way to believe every certificate: traffic that anybody on the way can read and change is what `http://`
//! says openly.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
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
