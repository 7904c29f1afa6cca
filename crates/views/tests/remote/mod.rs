//! The remote protocol, over real connections.

mod bad_requests;
mod failover;

use crate::fake_handler::{FakeHandler, FakeWorld};
use std::net::SocketAddr;
use std::sync::Arc;
use views::part::Part;
use views::remote::{RemoteConfig, RemoteServer, RemoteViews, Report, Served, Token};

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// Starts a server for a fake handler.
pub(crate) async fn serve(
    handler: &Arc<FakeHandler>,
    token: Option<&str>,
    address: SocketAddr,
) -> RemoteServer {
    let report = Report(Arc::new(|| "{\"views\":[]}".to_owned()));
    let token = token.map(|token| Token::new(token).unwrap());
    let served = Served { views: handler.clone(), report, part: Part::ALL, token, tls: None };
    RemoteServer::start(served, address).await.unwrap()
}

pub(crate) fn client(addresses: &[String], token: Option<&str>) -> RemoteViews {
    let token = token.map(|token| Token::new(token).unwrap());
    RemoteViews::new(&RemoteConfig { addresses: addresses.to_vec(), part: Part::ALL, token, ca_bundle: None })
        .unwrap()
}

#[tokio::test]
async fn a_remote_fake_handler_passes_the_conformance_suite() {
    let handler = Arc::new(FakeHandler::default());
    let server = serve(&handler, Some("secret"), ANY).await;
    let views = Arc::new(client(&[server.url()], Some("secret")));
    views::conformance::run(&FakeWorld { handler, views: views.clone() }).await;
    assert_eq!(views.report().await.unwrap(), "{\"views\":[]}");
}

#[tokio::test]
async fn the_fake_handler_passes_the_conformance_suite() {
    let handler = Arc::new(FakeHandler::default());
    views::conformance::run(&FakeWorld { views: handler.clone(), handler }).await;
}
