//! The management listener's connections: how many, and how long their parts may take.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::bounds;

/// Serves until the runtime ends. A connection beyond the bound waits to be accepted.
pub async fn serve(listener: std::net::TcpListener, router: Router) {
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
                let router = router.clone();
                tokio::spawn(async move {
                    serve_connection(stream, router).await;
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

async fn serve_connection(stream: TcpStream, router: Router) {
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
