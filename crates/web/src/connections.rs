//! Accepts connections and answers their requests.
//!
//! Receives: a listener and the routes. Must hold: however many peers connect, the process keeps descriptors for its own
//! files, because the same process may be recording a program. A peer that sends no request loses its connection, so that
//! idle peers cannot keep others out for ever.
use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most connections at the same time. The kernel keeps more of them waiting, which takes none of our descriptors.
    pub connections: usize,
    /// The longest time that a peer may take for the head of a request, from the connection or from the answer before it.
    pub head: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { connections: 64, head: Duration::from_secs(10) }
    }
}

/// Serves until the runtime ends.
pub async fn serve(mut listener: impl Listener, routes: Router, limits: Limits) {
    let permits = Arc::new(Semaphore::new(limits.connections));
    // Only a closed semaphore refuses, and this one is never closed.
    while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
        let (stream, _) = listener.accept().await;
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes.clone()));
        tokio::spawn(async move {
            // An error concerns this peer only.
            let _ = connection.await;
            drop(permit);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    async fn start(limits: Limits) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, Router::new().fallback(async || "answered"), limits));
        address
    }

    /// What the server sends until it closes the connection.
    async fn rest(mut stream: TcpStream) -> String {
        let mut text = String::new();
        let read = tokio::time::timeout(Duration::from_secs(60), stream.read_to_string(&mut text));
        read.await.expect("the server closes the connection").unwrap();
        text
    }

    #[tokio::test]
    async fn peers_that_send_no_request_make_room_for_others() {
        let address = start(Limits { connections: 2, head: Duration::from_millis(50) }).await;
        let silent = TcpStream::connect(address).await.unwrap();
        let mut slow = TcpStream::connect(address).await.unwrap();
        slow.write_all(b"GET / HTTP/1.1\r\nHost:").await.unwrap();
        // This one gets an answer and then stays.
        let mut kept = TcpStream::connect(address).await.unwrap();
        kept.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let last = async {
            let mut last = TcpStream::connect(address).await.unwrap();
            last.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
            rest(last).await
        };
        assert!(last.await.ends_with("answered"));
        assert_eq!((rest(silent).await.as_str(), rest(slow).await.as_str()), ("", ""));
        assert!(rest(kept).await.ends_with("answered"));
    }
}
