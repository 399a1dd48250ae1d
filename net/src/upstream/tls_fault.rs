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
        // The verifier's own errors come wrapped; this is what `openssl req -x509` runs into.
        CertificateError::Other(other) if other.to_string() == "CaUsedAsEndEntity" => (
            "its certificate is an authority's own",
            "give the backend one that says CA:FALSE, or one that this authority has signed",
        ),
        CertificateError::Revoked => ("its certificate is revoked", "give the backend a new one"),
        _ => ("its certificate is not valid", "see `detail`, and give the backend one that is"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::{InvalidMessage, OtherError, PeerIncompatible};

    use super::*;

    #[test]
    fn every_fault_says_what_it_is() {
        let own = OtherError(Arc::new(std::io::Error::other("CaUsedAsEndEntity")));
        let other = OtherError(Arc::new(std::io::Error::other("something else")));
        for (error, want) in [
            (CertificateError::Expired, "its certificate has expired"),
            (CertificateError::NotValidYet, "its certificate is not valid yet"),
            (CertificateError::NotValidForName, "its certificate is for another name"),
            (CertificateError::UnknownIssuer, "its certificate is from an issuer that is not trusted"),
            (CertificateError::BadSignature, "its certificate is from an issuer that is not trusted"),
            (CertificateError::Revoked, "its certificate is revoked"),
            (CertificateError::Other(own), "its certificate is an authority's own"),
            (CertificateError::Other(other), "its certificate is not valid"),
            (CertificateError::BadEncoding, "its certificate is not valid"),
        ] {
            assert_eq!(TlsFault::of(Error::InvalidCertificate(error.clone())).what, want, "{error:?}");
        }
        for (error, want) in [
            (Error::NoCertificatesPresented, "it has no certificate"),
            (Error::InvalidMessage(InvalidMessage::InvalidContentType), "it does not speak TLS there"),
            (Error::NoApplicationProtocol, "it does not speak HTTP/1.1"),
            (Error::AlertReceived(AlertDescription::NoApplicationProtocol), "it does not speak HTTP/1.1"),
            (
                Error::AlertReceived(AlertDescription::ProtocolVersion),
                "it has no version of TLS that is safe",
            ),
            (
                Error::PeerIncompatible(PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig),
                "it has no version of TLS that is safe",
            ),
            (
                Error::AlertReceived(AlertDescription::UnrecognisedName),
                "it does not know the host of the base URL",
            ),
            (Error::AlertReceived(AlertDescription::HandshakeFailure), "it broke off the TLS handshake"),
            (Error::DecryptError, "its TLS handshake failed"),
        ] {
            assert_eq!(TlsFault::of(error.clone()).what, want, "{error:?}");
        }
    }
}
