//! Certificates made for one test, and a client that speaks TLS byte by byte.

use std::io::{self, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};
use tidegate::ops::tls::{TlsFiles, TlsIdentity};

use super::gateway::PATIENCE;
use super::link::{Answer, read_answer};

/// An authority of a test's own.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("signed"))
    }

    /// Writes the authority's own certificate.
    pub(crate) fn write_to(&self, path: &Path) {
        std::fs::write(path, self.0.pem()).expect("a file");
    }

    /// Makes a certificate for 127.0.0.1 and writes it with its key.
    pub(crate) fn issue(&self, files: &TlsFiles) -> Issued {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]);
        let cert = params.and_then(|params| params.signed_by(&key, &self.0)).expect("signed");
        std::fs::write(&files.cert, cert.pem()).expect("a file");
        std::fs::write(&files.key, key.serialize_pem()).expect("a file");
        Issued(cert.der().clone())
    }

    /// A pair as a gateway takes it that runs in this process.
    pub(crate) fn identity(&self) -> TlsIdentity {
        let folder = tempfile::tempdir().expect("a folder");
        let files = files(folder.path());
        self.issue(&files);
        TlsIdentity::load(&files).expect("a pair that fits").0
    }

    fn trusted(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(self.0.pem().as_bytes()).expect("PEM"))
            .expect("an authority");
        roots
    }

    /// A connection whose handshake was done, with any of these versions.
    pub(crate) fn connect_with(
        &self,
        address: SocketAddr,
        versions: &[&'static SupportedProtocolVersion],
    ) -> io::Result<TlsLink> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions);
        let mut config =
            config.expect("versions").with_root_certificates(self.trusted()).with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let name = ServerName::IpAddress(address.ip().into());
        let mut session = ClientConnection::new(Arc::new(config), name).expect("a session");
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        while session.is_handshaking() {
            session.complete_io(&mut stream)?;
        }
        Ok(TlsLink(BufReader::new(StreamOwned::new(session, stream))))
    }

    /// A connection whose handshake was done.
    pub(crate) fn connect(&self, address: SocketAddr) -> TlsLink {
        self.connect_with(address, rustls::ALL_VERSIONS).expect("a handshake")
    }
}

/// A certificate as it goes over the wire.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Issued(CertificateDer<'static>);

/// Where a pair is written in a folder.
pub(crate) fn files(folder: &Path) -> TlsFiles {
    let path = |name: &str| -> PathBuf { folder.join(name) };
    TlsFiles { cert: path("cert.pem"), key: path("key.pem") }
}

/// One connection.
pub(crate) struct TlsLink(BufReader<StreamOwned<ClientConnection, TcpStream>>);

impl TlsLink {
    fn session(&self) -> &ClientConnection {
        &self.0.get_ref().conn
    }

    /// What the gateway showed.
    pub(crate) fn certificate(&self) -> Issued {
        let chain = self.session().peer_certificates().expect("a certificate");
        Issued(chain[0].clone().into_owned())
    }

    /// What is spoken inside.
    pub(crate) fn protocol(&self) -> Option<&[u8]> {
        self.session().alpn_protocol()
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let stream = self.0.get_mut();
        stream.write_all(bytes.as_ref()).and_then(|()| stream.flush()).expect("the gateway reads");
    }

    /// Sends in one record of TLS, so many bytes at a time with a pause before each.
    pub(crate) fn send_slowly(&mut self, bytes: &[u8], pieces: usize, pause: Duration) {
        let stream = self.0.get_mut();
        assert_eq!(stream.conn.writer().write(bytes).expect("memory"), bytes.len());
        let mut record = Vec::new();
        while stream.conn.wants_write() {
            stream.conn.write_tls(&mut record).expect("memory");
        }
        for piece in record.chunks(record.len() / pieces + 1) {
            std::thread::sleep(pause);
            stream.sock.write_all(piece).expect("the gateway reads");
        }
    }

    /// Says that nothing more will come, as TLS says it.
    pub(crate) fn end_sending(&mut self) {
        let stream = self.0.get_mut();
        stream.conn.send_close_notify();
        stream.conn.complete_io(&mut stream.sock).expect("sent");
    }

    pub(crate) fn answer(&mut self) -> io::Result<Answer> {
        read_answer(&mut self.0)
    }

    /// Whether the gateway ended the connection and said so first, as TLS wants it.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.0.read(&mut [0]).expect("no reset, and no end without close_notify") == 0
    }
}
