//! HTTP and HTTPS requests to servers of the user: for debug files (debuginfod), and for profiles (`--push`).
//!
//! Must hold: certificates are those of this machine, because many servers are internal to a company. Names are resolved by
//! our own code (`resolver.rs`), because the binary is static.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod message;
mod resolver;
mod settings;

use std::time::Duration;
use ureq::unversioned::transport::DefaultConnector;

pub use ureq::{Agent, Error, http};

/// How long a request may take.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    pub connect: Duration,
    /// From the request to the header of the answer.
    pub answer: Duration,
    /// Everything, with the name and the body of the answer. `None`: as long as bytes arrive.
    pub whole: Option<Duration>,
}

/// An agent whose answers are returned also if the status is that of an error.
pub fn agent(patience: Patience) -> Agent {
    let certificates = ureq::tls::TlsConfig::builder().root_certs(ureq::tls::RootCerts::PlatformVerifier).build();
    let config = Agent::config_builder()
        .tls_config(certificates)
        .timeout_resolve(Some(patience.connect))
        .timeout_connect(Some(patience.connect))
        .timeout_recv_response(Some(patience.answer))
        .timeout_global(patience.whole)
        .http_status_as_error(false)
        .user_agent(concat!("heaptrack/", env!("CARGO_PKG_VERSION")))
        .build();
    Agent::with_parts(config, DefaultConnector::default(), resolver::OwnResolver::default())
}
