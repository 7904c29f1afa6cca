//! The gRPC front end: assigns each method of the three services to its handler, and serves them on a unix socket.
//!
//! A request continues when its caller disconnects, so that no operation is left half done.

use crate::driver::Driver;
use http::{Request, Response};
use prost::Message;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;
use tonic::server::Grpc;
use tonic_prost::ProstCodec;
use tower_service::Service;

type BoxedFuture<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// The services of a driver.
#[derive(Debug, Clone)]
pub(crate) struct Services(pub(crate) Arc<Driver>);

impl Service<Request<Body>> for Services {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxedFuture<Response<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let driver = Arc::clone(&self.0);
        Box::pin(async move { Ok(route(driver, request).await) })
    }
}

/// Answers a request, whose path is `/csi.v1.SERVICE/METHOD`.
async fn route(driver: Arc<Driver>, request: Request<Body>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    macro_rules! answer {
        ($handler:ident) => {
            unary(&path, request, move |message| async move { driver.$handler(message).await }).await
        };
    }
    match path.strip_prefix("/csi.v1.").unwrap_or_default() {
        "Identity/GetPluginInfo" => answer!(plugin_info),
        "Identity/GetPluginCapabilities" => answer!(plugin_capabilities),
        "Identity/Probe" => answer!(probe),
        "Controller/ControllerGetCapabilities" => answer!(controller_capabilities),
        "Controller/CreateVolume" => answer!(create_volume),
        "Controller/DeleteVolume" => answer!(delete_volume),
        "Controller/ValidateVolumeCapabilities" => answer!(validate_volume_capabilities),
        "Controller/ControllerExpandVolume" => answer!(expand_volume),
        "Node/NodeGetCapabilities" => answer!(node_capabilities),
        "Node/NodeGetInfo" => answer!(node_info),
        "Node/NodeStageVolume" => answer!(stage_volume),
        "Node/NodeUnstageVolume" => answer!(unstage_volume),
        "Node/NodePublishVolume" => answer!(publish_volume),
        "Node/NodeUnpublishVolume" => answer!(unpublish_volume),
        "Node/NodeGetVolumeStats" => answer!(volume_stats),
        _ => Status::unimplemented(format!("there is no method {}", path.escape_debug())).into_http(),
    }
}

/// Answers a request of one message by one message.
async fn unary<Asked, Answer, Handler, Answering>(
    path: &str,
    request: Request<Body>,
    handler: Handler,
) -> Response<Body>
where
    Asked: Message + Default + 'static,
    Answer: Message + Default + 'static,
    Handler: FnOnce(Asked) -> Answering + Send + 'static,
    Answering: Future<Output = Result<Answer, Status>> + Send + 'static,
{
    let (path, mut handler) = (path.to_owned(), Some(handler));
    let method = Method(move |message| {
        let (path, handler) = (path.clone(), handler.take());
        async move {
            let handler = handler.ok_or_else(|| Status::internal("a unary method was called twice"))?;
            let answer = match tokio::spawn(handler(message)).await {
                Ok(answer) => answer,
                Err(failed) => Err(Status::internal(format!("the request failed: {failed}"))),
            };
            if let Err(status) = &answer {
                tracing::warn!("{path}: {:?}: {}", status.code(), status.message());
            }
            answer
        }
    });
    Grpc::new(ProstCodec::<Answer, Asked>::default()).unary(method, request).await
}

/// A function as the service that `tonic` calls for one method.
struct Method<F>(F);

impl<Asked, Answer, F, Answering> Service<tonic::Request<Asked>> for Method<F>
where
    F: FnMut(Asked) -> Answering,
    Answering: Future<Output = Result<Answer, Status>> + Send + 'static,
{
    type Response = tonic::Response<Answer>;
    type Error = Status;
    type Future = BoxedFuture<tonic::Response<Answer>, Status>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: tonic::Request<Asked>) -> Self::Future {
        let answering = (self.0)(request.into_inner());
        Box::pin(async move { answering.await.map(tonic::Response::new) })
    }
}
