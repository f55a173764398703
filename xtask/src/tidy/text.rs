//! Rules about any text file: conflict markers, and what ties the tree to one network.

use std::net::Ipv4Addr;

use super::Finding;

/// The registry that the lock file may name.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Last labels of host names that resolve inside one network only.
const PRIVATE_SUFFIXES: [&str; 7] =
    ["internal", "local", "localdomain", "lan", "corp", "intranet", "svc"];

/// No line is left over from a merge.
pub(super) fn conflict_markers(path: &str, text: &str) -> Vec<Finding> {
    let markers = ['<', '|', '>'].map(|c| format!("{} ", String::from(c).repeat(7)));
    text.lines()
        .enumerate()
        .filter(|(_, line)| markers.iter().any(|m| line.starts_with(m) || *line == m.trim_end()))
        .map(|(number, _)| Finding::error(path, number + 1, "a conflict marker"))
        .collect()
}

/// No address that means something on one network only. Loopback is fine.
pub(super) fn private_hosts(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '-');
        let private_address = |word: &&str| {
            word.parse::<Ipv4Addr>().is_ok_and(|ip| ip.is_private() || ip.is_link_local())
        };
        let hosts = line.split("://").skip(1).map(host_of).filter(|host| is_private_host(host));
        for host in words.filter(private_address).chain(hosts) {
            findings.push(Finding::error(path, number + 1, format!("`{host}` is a private host")));
        }
    }
    findings
}

/// The host at the start of what follows `://` in a URL.
fn host_of(rest: &str) -> &str {
    let end = |c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '-';
    let authority = rest.split(|c: char| c == '/' || c.is_whitespace()).next().unwrap_or(rest);
    let host = authority.rsplit('@').next().unwrap_or(authority);
    host.split(end).next().unwrap_or(host)
}

fn is_private_host(host: &str) -> bool {
    host.rsplit_once('.').is_some_and(|(_, last)| PRIVATE_SUFFIXES.contains(&last))
}

/// Dependencies come from crates.io, and no configuration in the tree says otherwise.
pub(super) fn foreign_registries(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let message = match path {
            "Cargo.lock" if line.starts_with("source = ") && !line.contains(CRATES_IO) => {
                "a dependency that does not come from crates.io"
            }
            ".cargo/config.toml" | ".cargo/config"
                if ["[source", "[registries", "[registry"].iter().any(|s| line.starts_with(s)) =>
            {
                "a registry belongs into the user's own configuration"
            }
            _ => continue,
        };
        findings.push(Finding::error(path, number + 1, message));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(findings: &[Finding]) -> Vec<usize> {
        findings.iter().map(|f| f.line).collect()
    }

    #[test]
    fn conflict_markers_are_found_and_headings_are_not() {
        let ours = "<".repeat(7);
        let theirs = ">".repeat(7);
        let text = format!("{ours} HEAD\na\n=======\nb\n{theirs} other\nTitle\n=======\n> quote\n");
        assert_eq!(lines_of(&conflict_markers("a.md", &text)), [1, 5]);
    }

    #[test]
    fn private_hosts_are_found() {
        // Put together here, or this file would find itself.
        let (ten, inside, lan) = (["10", "1", "2", "3"].join("."), "internal", "lan");
        let text = format!(
            "http://mirror.{inside}/x\nproxy {ten}:3128\nhttps://user@box.{lan}\nhttps://docs.rs/syn\n\
             http://127.0.0.1:8000 http://localhost/v1\nself.local 1.10.2\n"
        );
        assert_eq!(lines_of(&private_hosts("a.md", &text)), [1, 2, 3]);
    }

    #[test]
    fn registries_other_than_crates_io_are_found() {
        let lock = format!("source = \"{CRATES_IO}\"\nsource = \"sparse+https://mirror/\"\n");
        assert_eq!(lines_of(&foreign_registries("Cargo.lock", &lock)), [2]);
        let config = "[alias]\nxtask = \"run\"\n[source.crates-io]\nreplace-with = \"mirror\"\n";
        assert_eq!(lines_of(&foreign_registries(".cargo/config.toml", config)), [3]);
        assert_eq!(foreign_registries("docs/a.md", config), []);
    }
}
