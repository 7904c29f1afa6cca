//! TLS connections to brokers.

use super::{Queue, drain, nats::Nats, open_url};
use events::SourceError;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sources::BrokerAccess;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// A certificate for `localhost`, issued by a certificate authority made for the test.
struct TestAuthority {
    dir: TempDir,
}

impl TestAuthority {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let script = "
            openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -subj /CN=tests -days 2
            openssl req -newkey rsa:2048 -nodes -keyout key.pem -out request.pem -subj /CN=localhost
            echo subjectAltName=DNS:localhost >names
            openssl x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names -days 2 -out it.pem";
        let mut shell = Command::new("sh");
        let made = shell.args(["-ec", script]).current_dir(dir.path()).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Self { dir }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns settings that trust the certificate authority.
    fn access(&self) -> BrokerAccess {
        let tls = connect::tls_config(Some(&self.file("ca.pem"))).unwrap();
        BrokerAccess { tls: Some(Arc::new(tls)), ..BrokerAccess::default() }
    }

    /// Starts a TLS proxy in front of a broker without TLS.
    async fn in_front_of(&self, broker: SocketAddr) -> SocketAddr {
        let acceptor = acceptor(&self.file("it.pem"), &self.file("key.pem"));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let mut far = TcpStream::connect(broker).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut stream, &mut far).await;
                });
            }
        });
        address
    }
}

fn acceptor(certificate: &Path, key: &Path) -> TlsAcceptor {
    let certificate = CertificateDer::from_pem_file(certificate).unwrap();
    let key = PrivateKeyDer::from_pem_file(key).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    TlsAcceptor::from(Arc::new(config.with_single_cert(vec![certificate], key).unwrap()))
}

/// Asserts that messages arrive if the authority is trusted, and that connecting fails otherwise.
async fn assert_connects_only_to_trusted(url: &str, authority: &TestAuthority) {
    let mut source = open_url(url, &authority.access());
    drain(&mut *source, 0..3).await;
    let stranger = TestAuthority::new();
    let refused = open_url(url, &stranger.access()).receive(1).await;
    assert!(matches!(&refused, Err(SourceError::Unavailable(_))), "{refused:?}");
    let without = sources::open_broker(url, &BrokerAccess::default()).unwrap_err().to_string();
    assert!(without.contains("needs certificates"), "{without}");
}

#[tokio::test]
async fn redis_is_reached_by_tls() {
    let authority = TestAuthority::new();
    let mut queue = super::redis::list();
    queue.publish(0..3).await;
    let port = authority.in_front_of(queue.broker().address()).await.port();
    let url = queue.url().replace("redis://", "rediss://");
    let url = url.replace(&queue.broker().address().to_string(), &format!("localhost:{port}"));
    assert_connects_only_to_trusted(&url, &authority).await;
}

#[tokio::test]
async fn amqp_is_reached_by_tls() {
    let authority = TestAuthority::new();
    let mut queue = super::amqp::queue().await;
    queue.publish(0..3).await;
    let port = authority.in_front_of(queue.broker().address()).await.port();
    let url = queue.url().replace("amqp://", "amqps://");
    let url = url.replace(&queue.broker().address().to_string(), &format!("localhost:{port}"));
    assert_connects_only_to_trusted(&url, &authority).await;
}

#[tokio::test]
async fn nats_is_reached_by_tls() {
    let authority = TestAuthority::new();
    let broker = servers::nats_with_tls(&authority.file("it.pem"), &authority.file("key.pem"));
    let queue = Nats { broker, tail: "EVENTS?consumer=views" };
    let (user, password) = (queue.broker.user().to_owned(), queue.broker.password().to_owned());
    let options = async_nats::ConnectOptions::with_user_and_password(user, password);
    let options = options.tls_client_config((*authority.access().tls.unwrap()).clone());
    let place = format!("tls://localhost:{}", queue.broker.address().port());
    let client = options.connect(place).await.unwrap();
    let context = super::nats::make_stream_by(client).await;
    for number in 0..3 {
        context.publish("events.x", number.to_string().into()).await.unwrap().await.unwrap();
    }
    let url = queue.url().replace("127.0.0.1", "localhost");
    assert_connects_only_to_trusted(&url, &authority).await;
}
