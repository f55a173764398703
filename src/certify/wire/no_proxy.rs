//! `NO_PROXY`: hosts that are reached without a proxy. The HTTP client reads it too, but not with spaces, ports, or names that
//! stand for all below them, as other programs do.

use std::net::IpAddr;

use super::address::Address;

/// Whether the environment says that no proxy is between here and there.
pub(super) fn is_direct(address: &Address, variable: impl Fn(&str) -> Option<String>) -> bool {
    // Both are in use; what either names is meant.
    let lists = ["NO_PROXY", "no_proxy"].into_iter().filter_map(variable);
    address.is_loopback() || lists.into_iter().any(|list| names(&list, address))
}

fn names(list: &str, address: &Address) -> bool {
    let entries = list.split(|c: char| c == ',' || c.is_whitespace()).filter(|e| !e.is_empty());
    entries.into_iter().any(|entry| is_named(&entry.to_ascii_lowercase(), address))
}

fn is_named(entry: &str, address: &Address) -> bool {
    if entry == "*" {
        return true;
    }
    let host = address.host().strip_suffix('.').unwrap_or(address.host());
    let ip: Option<IpAddr> = host.parse().ok();
    if let Some((network, bits)) = entry.split_once('/') {
        let network: Option<IpAddr> = network.parse().ok();
        let bits: Option<u32> = bits.parse().ok();
        return ip.zip(network).zip(bits).is_some_and(|((ip, net), bits)| is_in(ip, net, bits));
    }
    let (name, port) = name_and_port(entry);
    if port.is_some_and(|port| port.parse() != Ok(address.port())) {
        return false;
    }
    if let Some(ip) = ip {
        return name.parse() == Ok(ip);
    }
    let name = name.strip_prefix('*').unwrap_or(name);
    let name = name.strip_prefix('.').unwrap_or(name);
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_below = || host.strip_suffix(name).is_some_and(|above| above.ends_with('.'));
    !name.is_empty() && (host == name || is_below())
}

/// An IPv6 address has colons of its own: only in brackets can it have a port.
fn name_and_port(entry: &str) -> (&str, Option<&str>) {
    if let Some((name, rest)) = entry.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (name, rest.strip_prefix(':'));
    }
    match entry.split_once(':') {
        Some((name, port)) if !port.contains(':') => (name, Some(port)),
        _ => (entry, None),
    }
}

fn is_in(ip: IpAddr, network: IpAddr, bits: u32) -> bool {
    let (ip, network, width) = match (ip, network) {
        (IpAddr::V4(ip), IpAddr::V4(net)) => (ip.to_bits().into(), net.to_bits().into(), 32),
        (IpAddr::V6(ip), IpAddr::V6(net)) => (ip.to_bits(), net.to_bits(), 128),
        _ => return false,
    };
    let differ: u128 = ip ^ network;
    bits <= width && differ.checked_shr(width - bits).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn direct(list: &str, url: &str) -> bool {
        let address = Address::parse(url).unwrap();
        ["NO_PROXY", "no_proxy"]
            .into_iter()
            .all(|set| is_direct(&address, |name| (name == set).then(|| list.to_owned())))
    }

    #[test]
    fn hosts_suffixes_ports_and_networks_are_heeded() {
        for (list, url) in [
            ("*", "http://a.b/v1"),
            ("a.b", "http://A.B:8/v1"),
            ("x, LOCAL.host ,y", "http://local.HOST/v1"),
            ("x y", "http://y/v1"),
            ("b.c", "http://a.b.c/v1"),
            (".b.c", "http://a.b.c/v1"),
            (".b.c", "http://b.c/v1"),
            ("*.b.c", "http://a.b.c./v1"),
            ("a:8000", "http://a:8000/v1"),
            ("a:443", "https://a/v1"),
            ("192.0.2.1", "http://192.0.2.1:9/v1"),
            ("198.51.0.0/16", "http://198.51.100.4/v1"),
            ("fd00::/8", "http://[fd12::1]/v1"),
            ("[fd00::1]:80", "http://[fd00::1]/v1"),
            ("fd00::1", "http://[fd00:0::1]:7/v1"),
            ("0.0.0.0/0", "http://1.2.3.4/v1"),
        ] {
            assert!(direct(list, url), "{list} {url}");
        }
    }

    #[test]
    fn what_is_not_named_goes_through_the_proxy() {
        for (list, url) in [
            ("", "http://a/v1"),
            (",, .,*.", "http://a/v1"),
            ("b.c", "http://ab.c/v1"),
            ("a:8001", "http://a:8000/v1"),
            ("a:x", "http://a:80/v1"),
            ("0.2.1", "http://192.0.2.1/v1"),
            ("198.51.100.0/24", "http://198.51.101.1/v1"),
            ("192.0.2.0/99", "http://192.0.2.1/v1"),
            ("192.0.2.0/8", "http://[fd00::1]/v1"),
            ("127.0.0.1", "http://127.evil.com/v1"),
        ] {
            assert!(!direct(list, url), "{list} {url}");
        }
    }

    #[test]
    fn this_machine_needs_no_proxy_whatever_the_environment_says() {
        assert!(direct("", "http://LOCALHOST:1/v1"));
    }
}
