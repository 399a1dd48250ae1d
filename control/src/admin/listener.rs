//! The management listener's connections: how many, over TLS or not, and how long their parts may take.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use crate::bounds;
use crate::management::Management;

/// Serves until the runtime ends, with the certificate that is in force when a connection is accepted. A connection beyond
/// the bound waits to be accepted.
pub async fn serve(listener: std::net::TcpListener, router: Router, management: Arc<Management>) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the management listener has ended"),
    };
    let room = Arc::new(Semaphore::new(bounds::ADMIN_CONNECTIONS));
    loop {
        // Never closed.
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let (router, tls) = (router.clone(), management.admin_tls());
                tokio::spawn(async move {
                    match tls {
                        None => serve_connection(stream, router).await,
                        Some(tls) => serve_secured(stream, router, tls).await,
                    }
                    drop(place);
                });
            }
            Err(error) => {
                // Out of descriptors, most likely: wait instead of spinning.
                tracing::warn!(%error, "the management listener cannot accept");
                tokio::time::sleep(Duration::from_millis(bounds::MARKS_RETRY_MS)).await;
            }
        }
    }
}

async fn serve_secured(stream: TcpStream, router: Router, tls: Arc<ServerConfig>) {
    let handshake = TlsAcceptor::from(tls).accept(stream);
    match tokio::time::timeout(Duration::from_millis(bounds::ADMIN_HEAD_MS), handshake).await {
        Ok(Ok(stream)) => serve_connection(stream, router).await,
        Ok(Err(error)) => tracing::debug!(%error, "no TLS with a caller of the management listener"),
        Err(_) => tracing::debug!("a caller of the management listener made no TLS handshake in time"),
    }
}

async fn serve_connection(stream: impl AsyncRead + AsyncWrite + Unpin, router: Router) {
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(bounds::ADMIN_HEAD_MS))
        .max_buf_size(bounds::ADMIN_HEAD_BYTES);
    let connection = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    match tokio::time::timeout(Duration::from_millis(bounds::ADMIN_CONNECTION_MS), connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection of the management listener has failed"),
        Err(_) => tracing::debug!("a connection of the management listener was open too long"),
    }
}
