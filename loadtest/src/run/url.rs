//! The URL that load is sent to, and where it leads.

use std::net::{SocketAddr, ToSocketAddrs};

/// An `http` URL, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// As given.
    pub url: String,
    /// The first address its host has.
    pub address: SocketAddr,
    /// What the `Host` field says.
    pub host: String,
    /// The path and the query.
    pub path: String,
}

impl Target {
    /// Reads and resolves a URL.
    ///
    /// # Errors
    /// A sentence: it is no `http` URL, or its host has no address.
    pub fn parse(url: &str) -> Result<Target, String> {
        if url.starts_with("https://") {
            return Err(format!(
                "{url}: https is not supported: this generator measures plain http; terminate TLS in front of it"
            ));
        }
        let rest = url.strip_prefix("http://").ok_or_else(|| format!("{url}: not an http:// URL"))?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        let tail = tail.split('#').next().unwrap_or("");
        if tail.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(format!("{url}: the path holds a space or a control character"));
        }
        if authority.contains('@') {
            return Err(format!("{url}: give credentials as a header, not in the URL"));
        }
        // An IPv6 address has colons of its own, inside brackets.
        let has_port = authority.rfind(':').is_some_and(|colon| colon > authority.rfind(']').unwrap_or(0));
        let with_port = if has_port { authority.to_owned() } else { format!("{authority}:80") };
        let address = with_port
            .to_socket_addrs()
            .map_err(|error| format!("{url}: {error}"))?
            .next()
            .ok_or_else(|| format!("{url}: the host has no address"))?;
        Ok(Target {
            url: url.to_owned(),
            address,
            host: authority.to_owned(),
            path: if tail.starts_with('/') { tail.to_owned() } else { format!("/{tail}") },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_lead_to_an_address_a_host_and_a_path() {
        fn check(url: &str, address: &str, host: &str, path: &str) {
            let target = Target::parse(url).expect(url);
            assert_eq!(target.address.to_string(), address, "{url}");
            assert_eq!((target.host.as_str(), target.path.as_str()), (host, path), "{url}");
        }
        check("http://127.0.0.1:9000/v1/x?y=1#z", "127.0.0.1:9000", "127.0.0.1:9000", "/v1/x?y=1");
        check("http://127.0.0.1", "127.0.0.1:80", "127.0.0.1", "/");
        check("http://[::1]:81?q", "[::1]:81", "[::1]:81", "/?q");
        check("http://[::1]/", "[::1]:80", "[::1]", "/");
    }

    #[test]
    fn other_urls_are_refused_with_the_reason() {
        for (url, reason) in [
            ("https://127.0.0.1/", "https is not supported"),
            ("127.0.0.1:80", "not an http://"),
            ("http://a:b@127.0.0.1/", "credentials"),
            ("http://127.0.0.1/a b", "space"),
            ("http://127.0.0.1:99999/", "99999"),
        ] {
            let error = Target::parse(url).expect_err(url);
            assert!(error.contains(reason), "{error}");
        }
    }
}
