//! A blocking socket, over TLS or not, and certificates of every kind to put on it.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, ServerConfig, ServerConnection};

/// Both ends of a session behave alike here.
enum Session {
    Client(ClientConnection),
    Server(ServerConnection),
}

/// One end of a connection. Clones are the same end.
#[derive(Clone)]
pub struct Wire {
    tcp: Arc<TcpStream>,
    tls: Option<Arc<Mutex<Session>>>,
}

impl fmt::Debug for Wire {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Wire({:?}, tls {})", self.tcp, self.tls.is_some())
    }
}

impl Wire {
    /// No TLS.
    pub fn plain(tcp: TcpStream) -> Wire {
        Wire { tcp: Arc::new(tcp), tls: None }
    }

    /// The server's end. The handshake is made by the first read or write.
    pub fn server(tcp: TcpStream, config: Arc<ServerConfig>) -> Wire {
        let session = ServerConnection::new(config).expect("a server's session");
        Wire { tcp: Arc::new(tcp), tls: Some(Arc::new(Mutex::new(Session::Server(session)))) }
    }

    /// The client's end.
    pub fn client(tcp: TcpStream, config: Arc<ClientConfig>, name: &'static str) -> Wire {
        let name = ServerName::try_from(name).expect("a name");
        let session = ClientConnection::new(config, name).expect("a client's session");
        Wire { tcp: Arc::new(tcp), tls: Some(Arc::new(Mutex::new(Session::Client(session)))) }
    }

    /// The socket.
    pub fn socket(&self) -> &TcpStream {
        &self.tcp
    }

    /// Whether a session was begun anew or resumed; nothing before that is known, and nothing without TLS.
    pub fn handshake(&self) -> Option<HandshakeKind> {
        match &*self.session()? {
            Session::Client(session) => session.handshake_kind(),
            Session::Server(session) => session.handshake_kind(),
        }
    }

    /// Makes the handshake now.
    pub fn shake_hands(&self) -> io::Result<()> {
        let mut tcp = &*self.tcp;
        match self.session().as_deref_mut() {
            Some(Session::Client(session)) => session.complete_io(&mut tcp).map(|_| ()),
            Some(Session::Server(session)) => session.complete_io(&mut tcp).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Announces the end of a session (RFC 8446 §6.1); without TLS there is nothing to announce.
    pub fn notify_close(&self) {
        let mut tcp = &*self.tcp;
        match self.session().as_deref_mut() {
            Some(Session::Client(session)) => {
                session.send_close_notify();
                let _ = session.write_tls(&mut tcp);
            }
            Some(Session::Server(session)) => {
                session.send_close_notify();
                let _ = session.write_tls(&mut tcp);
            }
            None => {}
        }
    }

    /// Asks for new keys in mid-session, as either side may at any time (RFC 8446 §4.6.3).
    pub fn update_keys(&self) {
        let mut tcp = &*self.tcp;
        match self.session().as_deref_mut() {
            Some(Session::Client(session)) => {
                session.refresh_traffic_keys().expect("TLS 1.3");
                while session.wants_write() {
                    session.write_tls(&mut tcp).expect("written");
                }
            }
            Some(Session::Server(session)) => {
                session.refresh_traffic_keys().expect("TLS 1.3");
                while session.wants_write() {
                    session.write_tls(&mut tcp).expect("written");
                }
            }
            None => {}
        }
    }

    fn session(&self) -> Option<MutexGuard<'_, Session>> {
        self.tls.as_ref().map(|session| session.lock().expect("nobody panics with a session"))
    }
}

impl Read for Wire {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let mut tcp = &*self.tcp;
        match self.session().as_deref_mut() {
            Some(Session::Client(session)) => rustls::Stream::new(session, &mut tcp).read(room),
            Some(Session::Server(session)) => rustls::Stream::new(session, &mut tcp).read(room),
            None => tcp.read(room),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut tcp = &*self.tcp;
        match self.session().as_deref_mut() {
            Some(Session::Client(session)) => rustls::Stream::new(session, &mut tcp).write(bytes),
            Some(Session::Server(session)) => rustls::Stream::new(session, &mut tcp).write(bytes),
            None => tcp.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut tcp = &*self.tcp;
        match self.session().as_deref_mut() {
            Some(Session::Client(session)) => rustls::Stream::new(session, &mut tcp).flush(),
            Some(Session::Server(session)) => rustls::Stream::new(session, &mut tcp).flush(),
            None => Ok(()),
        }
    }
}

/// How many there are: each has a name of its own.
static AUTHORITIES: AtomicUsize = AtomicUsize::new(0);

/// Who signs certificates: some believe it, some do not.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate.
    pub pem: String,
}

/// A certificate with its key, both as PEM.
#[derive(Clone)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// The key.
    pub key: String,
}

impl Authority {
    /// A new one.
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let number = AUTHORITIES.fetch_add(1, Ordering::Relaxed);
        params.distinguished_name.push(DnType::CommonName, format!("authority {number}"));
        let key = KeyPair::generate().expect("randomness");
        let pem = params.self_signed(&key).expect("signed").pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate for these names or addresses.
    pub fn issue(&self, names: &[&str]) -> Identity {
        self.issue_until(names, 4000)
    }

    /// The same, which ends with the first day of a year.
    pub fn issue_until(&self, names: &[&str], year: i32) -> Identity {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().expect("randomness");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        Identity { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    /// What a client needs that believes this authority alone.
    pub fn client(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(self.pem.as_bytes()).expect("a certificate");
        roots.add(root).expect("a root");
        Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
    }

    /// Writes the authority's certificate into `folder`.
    pub fn write(&self, folder: &Path) -> PathBuf {
        let path = folder.join("authority.pem");
        std::fs::write(&path, &self.pem).expect("a writable folder");
        path
    }
}

impl Identity {
    /// What a server needs that shows this certificate, in TLS 1.2 and 1.3.
    pub fn server(&self) -> Arc<ServerConfig> {
        self.server_with(rustls::ALL_VERSIONS)
    }

    /// The same in these versions of TLS alone.
    pub fn server_with(&self, versions: &[&'static rustls::SupportedProtocolVersion]) -> Arc<ServerConfig> {
        let chain = vec![CertificateDer::from_pem_slice(self.certificate.as_bytes()).expect("a certificate")];
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).expect("a key");
        let builder = ServerConfig::builder_with_protocol_versions(versions).with_no_client_auth();
        Arc::new(builder.with_single_cert(chain, key).expect("a pair"))
    }
}
