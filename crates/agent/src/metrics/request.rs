//! Requests by HTTP, and their answers. No I/O.

use std::fmt::Write as _;

/// The longest request, to the end of its headers.
pub(super) const LONGEST: usize = 8 << 10;

const END: &[u8] = b"\r\n\r\n";

/// The subject of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// The metrics, or with `false` only the headers of the answer.
    Metrics(bool),
    NotFound,
    /// Another method than GET and HEAD.
    Method,
    /// It is no request, with the reason.
    Bad(&'static str),
}

/// Decides once the whole of a request has arrived, or so much that it is none.
pub(super) fn decide(bytes: &[u8]) -> Option<Asked> {
    let first = &bytes[..bytes.len().min(LONGEST)];
    match first.windows(END.len()).position(|part| part == END) {
        Some(end) => Some(read(&first[..end]).unwrap_or_else(Asked::Bad)),
        None if bytes.len() >= LONGEST => {
            Some(Asked::Bad("the request line and the headers have more than 8 KiB"))
        }
        None => None,
    }
}

fn is_token(text: &str) -> bool {
    let mark = |byte: u8| b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || mark(byte))
}

fn read(head: &[u8]) -> Result<Asked, &'static str> {
    let head = str::from_utf8(head).map_err(|_| "the headers are not text")?;
    let mut lines = head.split("\r\n");
    let line = lines.next().unwrap_or_default();
    let parts: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = parts[..] else {
        return Err("the first line is not a method, a target and a version");
    };
    if !is_token(method) || target.is_empty() || target.bytes().any(|byte| byte.is_ascii_control())
    {
        return Err("the first line is not a method, a target and a version");
    }
    let mut hosts = 0;
    for line in lines {
        let (name, _) = line.split_once(':').ok_or("a header has no colon")?;
        if !is_token(name) || line.bytes().any(|byte| byte != b'\t' && byte.is_ascii_control()) {
            return Err("a header is malformed");
        }
        hosts += usize::from(name.eq_ignore_ascii_case("host"));
    }
    match version {
        "HTTP/1.1" if hosts == 1 => {}
        "HTTP/1.1" => return Err("HTTP/1.1 needs one Host header"),
        "HTTP/1.0" => {}
        _ => return Err("expected HTTP/1.1 or HTTP/1.0"),
    }
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    Ok(match (path, method) {
        ("/metrics", "GET") => Asked::Metrics(true),
        ("/metrics", "HEAD") => Asked::Metrics(false),
        ("/metrics", _) => Asked::Method,
        _ => Asked::NotFound,
    })
}

/// The answer, for which `source` gives the metrics.
pub(super) fn answer(asked: &Asked, source: &dyn Fn() -> String) -> Vec<u8> {
    let plain = "text/plain; charset=utf-8";
    let (status, kind, body) = match asked {
        Asked::Metrics(_) => ("200 OK", "text/plain; version=0.0.4; charset=utf-8", source()),
        Asked::NotFound => ("404 Not Found", plain, "expected /metrics\n".to_owned()),
        Asked::Method => ("405 Method Not Allowed", plain, "expected GET or HEAD\n".to_owned()),
        Asked::Bad(why) => ("400 Bad Request", plain, format!("{why}\n")),
    };
    let mut text = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n");
    if *asked == Asked::Method {
        text += "Allow: GET, HEAD\r\n";
    }
    // Writing to a string does not fail.
    let _ = write!(text, "Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    if *asked != Asked::Metrics(false) {
        text += &body;
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng, rngs::StdRng};

    #[test]
    fn what_is_asked_is_told_apart() {
        let host = "\r\nHost: here\r\n\r\n";
        let asked = |line: &str| decide(format!("{line}{host}").as_bytes()).unwrap();
        assert_eq!(asked("GET /metrics HTTP/1.1"), Asked::Metrics(true));
        assert_eq!(asked("HEAD /metrics?a=b HTTP/1.1"), Asked::Metrics(false));
        assert_eq!(asked("POST /metrics HTTP/1.1"), Asked::Method);
        for other in ["/", "/metrics/", "/../metrics", "//metrics", "http://here/metrics"] {
            assert_eq!(asked(&format!("GET {other} HTTP/1.1")), Asked::NotFound, "{other}");
        }
        let bad = [
            "",
            "GET",
            "GET /metrics",
            "GET  /metrics HTTP/1.1",
            "GET /metrics HTTP/2",
            "G@T / HTTP/1.1",
        ];
        for bad in bad.into_iter().chain(["GET /metrics HTTP/1.1\r\nno colon", "GET /\t HTTP/1.1"])
        {
            assert!(matches!(asked(bad), Asked::Bad(_)), "{bad}");
        }
        assert_eq!(decide(b"GET /metrics HTTP/1.0\r\n\r\n"), Some(Asked::Metrics(true)));
        assert!(matches!(decide(b"GET /metrics HTTP/1.1\r\n\r\n"), Some(Asked::Bad(_))));
        assert_eq!(decide(b"GET /metrics HTTP/1.1\r\nHost: he"), None);
    }

    #[test]
    fn a_request_has_a_longest_length() {
        let begin = "GET /metrics HTTP/1.0\r\nX: ";
        let longest = format!("{begin}{}\r\n\r\n", "x".repeat(LONGEST - begin.len() - 4));
        assert_eq!(decide(longest.as_bytes()), Some(Asked::Metrics(true)));
        assert_eq!(decide(&longest.as_bytes()[..LONGEST - 1]), None);
        let longer = format!("{begin}{}\r\n\r\n", "x".repeat(LONGEST - begin.len() - 3));
        assert!(matches!(decide(longer.as_bytes()), Some(Asked::Bad(_))));
    }

    /// Bytes of any kind, and requests of which some were changed.
    #[test]
    fn any_bytes_get_an_answer_or_wait_for_more() {
        let seed = std::env::var("WARPVERBS_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed: u64 = seed.unwrap_or_else(rand::random);
        println!("WARPVERBS_SEED={seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        for _ in 0..20_000 {
            let mut bytes = b"GET /metrics HTTP/1.1\r\nHost: here\r\nAccept: */*\r\n\r\n".to_vec();
            for _ in 0..rng.random_range(0..6) {
                let at = rng.random_range(0..bytes.len());
                bytes[at] = rng.random();
            }
            bytes.truncate(rng.random_range(0..=bytes.len()));
            if let Some(asked) = decide(&bytes) {
                let text = String::from_utf8(answer(&asked, &|| "1".to_owned())).unwrap();
                assert!(text.starts_with("HTTP/1.1 "), "{text}");
                assert_eq!(text.contains("200 OK"), matches!(asked, Asked::Metrics(_)), "{text}");
            }
        }
    }
}
