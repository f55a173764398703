//! What sends: an HTTP client with one connection, which asks a proxy only where it should, and trusts whom it should.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ureq::tls::{RootCerts, TlsConfig};

use super::super::error::CertifyError;
use super::address::Address;
use super::{no_proxy, trust};

type Response = ureq::http::Response<ureq::Body>;

/// An agent with one connection to a server.
#[derive(Clone, Debug)]
pub(in crate::certify) struct Agent {
    agent: ureq::Agent,
    /// Where the environment names certificates: the same with the roots that are built in. The HTTP client takes the ones or
    /// the others, and both are trusted.
    built_in: Option<ureq::Agent>,
    /// Whether the server showed a certificate that only the roots built in know. Found out once for all connections.
    is_public: Arc<AtomicBool>,
    roots: Option<RootCerts>,
    is_direct: bool,
}

impl Agent {
    /// For a server at this address.
    pub(in crate::certify) fn new(
        address: &Address,
        timeout: Duration,
    ) -> Result<Agent, CertifyError> {
        // Without TLS nobody is trusted, and a bundle that is missing is no fault.
        let roots = match address.is_https() {
            true => trust::certificates(|name| std::env::var_os(name))?,
            false => None,
        };
        let roots = roots.map(|all| RootCerts::new_with_certs(&all));
        let is_direct = no_proxy::is_direct(address, |name| std::env::var(name).ok());
        Ok(Agent::with(roots, is_direct, Arc::default(), timeout))
    }

    /// The same, with a connection of its own.
    pub(in crate::certify) fn another(&self, timeout: Duration) -> Agent {
        Agent::with(self.roots.clone(), self.is_direct, Arc::clone(&self.is_public), timeout)
    }

    fn with(
        roots: Option<RootCerts>,
        is_direct: bool,
        is_public: Arc<AtomicBool>,
        timeout: Duration,
    ) -> Agent {
        Agent {
            agent: agent(roots.clone(), is_direct, timeout),
            built_in: roots.is_some().then(|| agent(None, is_direct, timeout)),
            is_public,
            roots,
            is_direct,
        }
    }

    /// Sends a request. One whose connection failed at the certificate never left, and is sent with the other roots.
    pub(in crate::certify) fn send(
        &self,
        send: impl Fn(&ureq::Agent) -> Result<Response, ureq::Error>,
    ) -> Result<Response, ureq::Error> {
        let Some(built_in) = &self.built_in else { return send(&self.agent) };
        if self.is_public.load(Ordering::Relaxed) {
            return send(built_in);
        }
        match send(&self.agent) {
            Err(error) if error.to_string().contains("peer certificate") => {
                let again = send(built_in)?;
                self.is_public.store(true, Ordering::Relaxed);
                Ok(again)
            }
            result => result,
        }
    }
}

fn agent(roots: Option<RootCerts>, is_direct: bool, timeout: Duration) -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(timeout))
        .http_status_as_error(false)
        // A redirect could carry the key elsewhere, and would be another server.
        .max_redirects(0)
        .accept_encoding("identity")
        .user_agent(concat!("lockstep/", env!("CARGO_PKG_VERSION")))
        .max_idle_connections(1)
        .max_idle_connections_per_host(1);
    let config = match roots {
        Some(roots) => config.tls_config(TlsConfig::builder().root_certs(roots).build()),
        None => config,
    };
    let config = if is_direct { config.proxy(None) } else { config };
    config.build().new_agent()
}
