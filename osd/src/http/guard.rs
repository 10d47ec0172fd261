//! Who may ask: whoever has the token or, if there is none, programs of this machine.
//!
//! A browser sends requests for any page that is open in it, and a name of somebody else's may be made to lead to this
//! machine. So without a token only names are answered to that always mean this machine.

use std::net::IpAddr;

use hyper::header::{AUTHORIZATION, HOST, HeaderMap};
use hyper::{StatusCode, Uri};

/// What the page asks a browser for.
pub(super) const CHALLENGE: &str = "Basic realm=\"fleasefs\", charset=\"UTF-8\"";

/// Decides whether a request is answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guard {
    /// The digest of the token. Digests are compared in a time that says nothing of how much of them is alike.
    token: Option<blake3::Hash>,
}

/// Why a request is not answered.
pub(super) type Refused = (StatusCode, &'static str);

impl Guard {
    pub(super) fn new(token: Option<&str>) -> Self {
        Self { token: token.map(|token| blake3::hash(token.as_bytes())) }
    }

    /// Whether the request with this target and these headers is answered.
    pub(super) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Refused> {
        if let Some(token) = &self.token {
            let shown = shown_token(headers).ok_or(NEEDS_TOKEN)?;
            return if blake3::hash(&shown) == *token { Ok(()) } else { Err(NEEDS_TOKEN) };
        }
        let mut hosts = headers.get_all(HOST).iter();
        let host = hosts.next().and_then(|host| host.to_str().ok()).ok_or(NO_HOST)?;
        if hosts.next().is_some() {
            return Err(NO_HOST);
        }
        let is_ours =
            is_this_machine(host) && uri.authority().is_none_or(|name| is_this_machine(name.as_str()));
        if is_ours { Ok(()) } else { Err(OTHER_HOST) }
    }
}

const NEEDS_TOKEN: Refused = (
    StatusCode::UNAUTHORIZED,
    "show the token that is in this daemon's `page.token`: as the password, with any user's name, or as a bearer token\n",
);
const NO_HOST: Refused = (StatusCode::BAD_REQUEST, "the request has to name one host\n");
const OTHER_HOST: Refused = (
    StatusCode::MISDIRECTED_REQUEST,
    "without a token this answers to 127.0.0.1, [::1] and localhost only; for other names give the daemon a token\n",
);

/// Whether `host`, with a port or without, always means the machine that it is said on.
fn is_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) if port.is_empty() || is_port(port) => address,
        Some(_) => return false,
        None => match host.split_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            Some(_) => return false,
            None => host,
        },
    };
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

fn is_port(text: &str) -> bool {
    text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The bearer token, or the password.
fn shown_token(headers: &HeaderMap) -> Option<Vec<u8>> {
    let (scheme, shown) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(shown.trim().as_bytes().to_vec());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = from_base64(shown.trim())?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    Some(decoded[colon + 1..].to_vec())
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=').as_bytes();
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    for group in digits.chunks(4) {
        let mut bits = 0_u32;
        for digit in group {
            bits = bits << 6 | value_of(*digit)?;
        }
        // A digit alone is less than a byte.
        let count = group.len().checked_sub(1).filter(|count| *count > 0)?;
        bits <<= 6 * (4 - group.len());
        bytes.extend_from_slice(&bits.to_be_bytes()[1..=count]);
    }
    Some(bytes)
}

fn value_of(digit: u8) -> Option<u32> {
    let value = match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(value.into())
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    const TOKEN: &str = "correct horse battery";

    fn asked(guard: Guard, target: &str, headers: &[(&'static str, &str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        guard.check(&target.parse().unwrap(), &map).map_or_else(|(status, _)| status.as_u16(), |()| 200)
    }

    #[test]
    fn without_a_token_only_names_of_this_machine_are_answered_to() {
        let guard = Guard::new(None);
        for host in ["localhost", "LocalHost:7000", "127.0.0.1:7000", "127.8.8.8", "[::1]:7000", "[::1]"] {
            assert_eq!(asked(guard, "/", &[("host", host)]), 200, "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:7000",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.0.0.1@evil.example",
            "10.0.0.1",
            "0.0.0.0",
            "[::1].evil.example",
            "[::1]evil:1",
            "[fe80::1]",
            "::1",
            "localhost:evil",
            "2130706433",
            "",
        ] {
            assert_eq!(asked(guard, "/", &[("host", host)]), 421, "{host}");
        }
        assert_eq!(asked(guard, "/", &[]), 400);
        assert_eq!(asked(guard, "/", &[("host", "localhost"), ("host", "evil.example")]), 400);
        assert_eq!(asked(guard, "http://evil.example/", &[("host", "localhost")]), 421);
        assert_eq!(asked(guard, "http://localhost/", &[("host", "localhost")]), 200);
    }

    #[test]
    fn with_a_token_whoever_shows_it_is_answered_under_any_name() {
        let guard = Guard::new(Some(TOKEN));
        let host = ("host", "storage.example");
        // "anyone:" and the token, and the same with another last letter.
        let (right, wrong) =
            ("YW55b25lOmNvcnJlY3QgaG9yc2UgYmF0dGVyeQ==", "YW55b25lOmNvcnJlY3QgaG9yc2UgYmF0dGVyeA==");
        for (shown, status) in [
            (format!("Basic {right}"), 200),
            (format!("basic {right}"), 200),
            (format!("Bearer {TOKEN}"), 200),
            (format!("Basic {wrong}"), 401),
            ("Bearer correct horse batterz".to_owned(), 401),
            ("Bearer ".to_owned(), 401),
            ("Bearer".to_owned(), 401),
            ("Basic".to_owned(), 401),
            ("Basic ====".to_owned(), 401),
            ("Basic !".to_owned(), 401),
            ("Digest x".to_owned(), 401),
        ] {
            assert_eq!(asked(guard, "/", &[host, ("authorization", &shown)]), status, "{shown}");
        }
        assert_eq!(asked(guard, "/", &[("host", "localhost")]), 401, "this machine has other users, too");
    }

    #[test]
    fn base64_is_read() {
        for (text, bytes) in [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYg", "foob")] {
            assert_eq!(from_base64(text).as_deref(), Some(bytes.as_bytes()), "{text}");
        }
        assert_eq!(from_base64("+/+/").as_deref(), Some(&[0xfb, 0xff, 0xbf][..]));
        for bad in ["Z", "Zm9vZ", "Zm=v", "Zm 9", "é"] {
            assert_eq!(from_base64(bad), None, "{bad}");
        }
    }
}
