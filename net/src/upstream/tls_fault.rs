//! Why a backend cannot be spoken to over TLS, in the words of who has to mend it.

use rustls::{AlertDescription, CertificateError, Error};

/// What is wrong, and what to do.
#[derive(Debug)]
pub struct TlsFault {
    /// What is wrong with the backend, as a clause; safe to be shown to clients.
    pub what: &'static str,
    /// What the operator can do.
    pub remedy: &'static str,
    /// The library's own words; they may name hosts.
    pub detail: Error,
}

impl TlsFault {
    /// Reads what the library reports.
    pub fn of(detail: Error) -> TlsFault {
        let (what, remedy) = words(&detail);
        TlsFault { what, remedy, detail }
    }
}

fn words(error: &Error) -> (&'static str, &'static str) {
    match error {
        Error::InvalidCertificate(reason) => certificate(reason),
        Error::NoCertificatesPresented => ("it has no certificate", "give the backend one"),
        Error::InvalidMessage(_) => (
            "it does not speak TLS there",
            "write http:// in base_urls if the backend speaks plain HTTP, or the port that has TLS",
        ),
        Error::NoApplicationProtocol | Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            ("it does not speak HTTP/1.1", "let the backend offer http/1.1 beside h2")
        }
        Error::AlertReceived(AlertDescription::ProtocolVersion) | Error::PeerIncompatible(_) => {
            ("it has no version of TLS that is safe", "let the backend speak TLS 1.2 or 1.3")
        }
        Error::AlertReceived(AlertDescription::UnrecognisedName) => {
            ("it does not know the host of the base URL", "use the name that the backend is configured for")
        }
        Error::AlertReceived(_) => ("it broke off the TLS handshake", "see the backend's own log"),
        _ => ("its TLS handshake failed", "see `detail`"),
    }
}

fn certificate(reason: &CertificateError) -> (&'static str, &'static str) {
    match reason {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            ("its certificate has expired", "renew it, or set the clock of this machine right")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            ("its certificate is not valid yet", "set the clock of this machine right, or wait")
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => (
            "its certificate is for another name",
            "write a name of the certificate in base_urls, or give the backend a certificate for this one",
        ),
        CertificateError::UnknownIssuer | CertificateError::BadSignature => (
            "its certificate is from an issuer that is not trusted",
            "name a file with the issuer's certificate in tls.ca_file of the provider",
        ),
        CertificateError::Revoked => ("its certificate is revoked", "give the backend a new one"),
        _ => ("its certificate is not valid", "see `detail`, and give the backend one that is"),
    }
}
