//! Addresses of servers. A query is kept and goes after the path of each request, but is never shown: keys stand in queries.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use super::super::error::CertifyError;

/// The one value of a query that is shown: it is a version, and says what was judged.
const SHOWN: &str = "api-version";

/// An address up to and with `/v1` or the like.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    /// `http` or `https`.
    scheme: &'static str,
    /// In lower case; an IPv6 address without its brackets.
    host: String,
    port: Option<u16>,
    /// Without a slash at its end.
    path: String,
    query: Option<String>,
}

impl Address {
    /// Of its text; refuses what is no address of a server.
    pub(crate) fn parse(url: &str) -> Result<Address, CertifyError> {
        let bad = |why: &str| CertifyError::BadInput(format!("{}: {why}", redacted(url)));
        if url.is_empty() {
            return Err(CertifyError::BadInput("an empty address".into()));
        }
        let expected = "expected an address that begins with http:// or https://";
        let (scheme, rest) = url.split_once("://").ok_or_else(|| bad(expected))?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => "http",
            "https" => "https",
            _ => return Err(bad("expected http:// or https://")),
        };
        if url.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(bad("not an address"));
        }
        if rest.contains('#') {
            return Err(bad("expected no fragment"));
        }
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query.to_owned()).filter(|query| !query.is_empty())),
            None => (rest, None),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if authority.contains('@') {
            return Err(bad("credentials in an address would be stored: use OPENAI_API_KEY"));
        }
        let (host, port) = host_and_port(authority).ok_or_else(|| bad("not an address"))?;
        let path = match path.trim_end_matches('/') {
            "" => String::new(),
            path => format!("/{path}"),
        };
        let address = Address { scheme, host, port, path, query };
        // What the client would refuse with each request is refused here.
        match address.below("models").parse::<ureq::http::Uri>() {
            Ok(uri) if uri.host().is_some() => Ok(address),
            _ => Err(bad("not an address")),
        }
    }

    /// The address for people, without what may be a secret.
    pub(crate) fn shown(&self) -> String {
        let query = self.query.as_ref().map_or(String::new(), |query| {
            let parts = query.split('&').map(|part| match part.split_once('=') {
                Some((SHOWN, _)) => part.to_owned(),
                Some((name, _)) => format!("{name}=(hidden)"),
                // Without a name, it may be a key itself.
                None => "(hidden)".to_owned(),
            });
            format!("?{}", parts.collect::<Vec<_>>().join("&"))
        });
        format!("{}{}{query}", self.origin(), self.path)
    }

    /// Values of the query that no text may show.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &str> {
        let parts = self.query.iter().flat_map(|query| query.split('&'));
        parts.filter_map(|part| match part.split_once('=') {
            Some((SHOWN, _)) => None,
            Some((_, value)) => Some(value),
            None => Some(part),
        })
    }

    /// The address of a path below this one.
    pub(crate) fn below(&self, path: &str) -> String {
        self.request(&self.path, path)
    }

    /// The address of a path beside `/v1`.
    pub(crate) fn below_root(&self, path: &str) -> String {
        self.request(self.path.strip_suffix("/v1").unwrap_or(&self.path), path)
    }

    /// The address as it is.
    pub(crate) fn whole(&self) -> String {
        format!("{}{}", self.origin(), self.tail())
    }

    /// What follows host and port.
    pub(crate) fn tail(&self) -> String {
        let query = self.query.as_ref().map_or(String::new(), |query| format!("?{query}"));
        format!("{}{query}", self.path)
    }

    fn request(&self, base: &str, path: &str) -> String {
        let query = self.query.as_ref().map_or(String::new(), |query| format!("?{query}"));
        format!("{}{base}/{path}{query}", self.origin())
    }

    /// Scheme, host and port.
    pub(crate) fn origin(&self) -> String {
        let port = self.port.map_or(String::new(), |port| format!(":{port}"));
        match self.host.contains(':') {
            true => format!("{}://[{}]{port}", self.scheme, self.host),
            false => format!("{}://{}{port}", self.scheme, self.host),
        }
    }

    /// The host, an IPv6 address without its brackets.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// The port that is connected to.
    pub(crate) fn port(&self) -> u16 {
        self.port.unwrap_or(if self.is_https() { 443 } else { 80 })
    }

    /// Whether it is reached by TLS.
    pub(crate) fn is_https(&self) -> bool {
        self.scheme == "https"
    }

    /// Whether both are one server's: what is a secret there may be sent here.
    pub(crate) fn is_beside(&self, other: &Address) -> bool {
        (self.scheme, &self.host, self.port()) == (other.scheme, &other.host, other.port())
    }

    /// Whether this is the machine itself, which no proxy is asked for.
    pub(crate) fn is_loopback(&self) -> bool {
        let name = self.host.strip_suffix('.').unwrap_or(&self.host);
        match self.host.parse::<IpAddr>() {
            Ok(IpAddr::V4(ip)) => ip.is_loopback(),
            Ok(IpAddr::V6(ip)) => {
                ip == Ipv6Addr::LOCALHOST || ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback())
            }
            Err(_) => name == "localhost" || name.ends_with(".localhost"),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

fn host_and_port(authority: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            host.parse::<Ipv6Addr>().ok()?;
            match after {
                "" => (host, None),
                after => (host, Some(after.strip_prefix(':')?)),
            }
        }
        None => {
            let (host, port) = match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            };
            let is_fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
            (host.bytes().all(is_fine).then_some(host)?, port)
        }
    };
    let is_number = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let port = match port {
        None => None,
        Some(port) if is_number(port) => Some(port.parse().ok().filter(|port| *port > 0)?),
        Some(_) => return None,
    };
    (!host.is_empty()).then(|| (host.to_ascii_lowercase(), port))
}

/// What can be said of something that is no address, and may hold anything.
fn redacted(url: &str) -> String {
    const CHARACTERS_MAX: usize = 100;
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let is_cut = |c| matches!(c, '?' | '#');
    // Whatever stands before an @ may be a password, with any characters in it.
    let rest = rest.rsplit('@').next().unwrap_or_default().split(is_cut).next().unwrap_or_default();
    let scheme = if scheme.is_empty() { String::new() } else { format!("{scheme}://") };
    let shown = format!("{scheme}{rest}");
    shown.chars().filter(|c| !c.is_control()).take(CHARACTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(url: &str) -> Address {
        Address::parse(url).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn addresses_that_are_none_are_refused_and_credentials_are_not_quoted() {
        for bad in [
            "",
            "host",
            "host:80/v1",
            "ftp://h/v1",
            "http://",
            "http:///v1",
            "http://:80/v1",
            "http://?x=1",
            "http://h/v1#x",
            "http://a b/v1",
            "http://h:/v1",
            "http://h:0/v1",
            "http://h:65536/v1",
            "http://h:+80/v1",
            "http://[::1/v1",
            "http://[x]/v1",
            "http://::1/v1",
            "http://h\\x/v1",
            "http://h/v1\u{7f}",
        ] {
            assert!(matches!(Address::parse(bad), Err(CertifyError::BadInput(_))), "{bad}");
        }
        for bad in [
            "http://user:secret@h/v1",
            "http://user:sec?secret@h/v1",
            "http://user:a/secret@h",
            "user:secret@h/v1",
            "ftp://h/v1?key=secret",
            "http://h/v1?key=secret#x",
        ] {
            let why = Address::parse(bad).unwrap_err().to_string();
            assert!(!why.contains("secret") && !why.contains("user"), "{why}");
        }
        for fine in ["http://h/v1", "https://h:1/a/v1", "http://[::1]:80", "HTTP://H_1/"] {
            of(fine);
        }
    }

    #[test]
    fn a_query_goes_after_each_path_and_is_not_shown() {
        let address = of("https://H/openai/v1/?api-version=2024-06-01&key=secret&secret");
        let query = "?api-version=2024-06-01&key=secret&secret";
        assert_eq!(address.below("models"), format!("https://h/openai/v1/models{query}"));
        assert_eq!(address.below_root("metrics"), format!("https://h/openai/metrics{query}"));
        assert_eq!(address.tail(), format!("/openai/v1{query}"));
        let shown = "https://h/openai/v1?api-version=2024-06-01&key=(hidden)&(hidden)";
        assert_eq!((address.shown(), format!("{address:?}")), (shown.into(), shown.into()));
        assert_eq!(address.secrets().collect::<Vec<_>>(), ["secret", "secret"]);
        assert_eq!(of("http://h/v1?").below("x"), "http://h/v1/x");
        assert_eq!(of("http://h?x=1").below("y"), "http://h/y?x=1");
        assert_eq!(of("http://h:8/v1").whole(), "http://h:8/v1");
    }

    #[test]
    fn the_machine_itself_is_told_by_its_host_alone() {
        for here in [
            "http://localhost/v1",
            "http://LOCALHOST:1/v1",
            "http://a.localhost./v1",
            "http://127.0.0.1",
            "http://127.255.0.3:8/v1",
            "https://[::1]/v1",
            "http://[::ffff:127.0.0.1]/v1",
        ] {
            assert!(of(here).is_loopback(), "{here}");
        }
        for there in [
            "http://127.evil.com/v1",
            "http://localhost.evil.com/v1",
            "http://localhosts/v1",
            "http://128.0.0.1/v1",
            "http://[::2]/v1",
            "http://evil.com/localhost",
            "http://evil.com/?127.0.0.1",
        ] {
            assert!(!of(there).is_loopback(), "{there}");
        }
    }

    #[test]
    fn one_server_is_one_scheme_host_and_port() {
        assert!(of("http://h/v1").is_beside(&of("http://H:80/metrics?x")));
        for other in ["https://h/v1", "http://h:81/v1", "http://i/v1"] {
            assert!(!of("http://h/v1").is_beside(&of(other)), "{other}");
        }
    }
}
