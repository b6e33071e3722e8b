//! HTTP/1.1 as far as long-polls need it: a request with a body of known length, and the head of a response. Everything
//! else is for a complete HTTP server.
//! Must hold: a request is framed by exactly one `Content-Length`, or it is not read here, so that no proxy in front
//! can see other requests than this parser.

/// A request that has arrived whole.
#[derive(Debug)]
pub struct HttpRequest<'a> {
    /// Path and query.
    pub target: &'a str,
    pub headers: Vec<(&'a str, &'a [u8])>,
    pub body: &'a [u8],
    /// The bytes of head and body.
    pub bytes: usize,
}

#[derive(Debug)]
pub enum ReadRequest<'a> {
    /// The request has not arrived whole.
    Incomplete,
    Request(HttpRequest<'a>),
    /// Not a `POST` of this path, or a request that only a complete HTTP server can judge.
    Other,
}

/// Sizes above which a request is `Other`.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    pub head: usize,
    pub body: usize,
}

/// Headers of a request; one with more is `Other`.
const HEADERS: usize = 64;

/// Reads a `POST` of this path from the start of the input.
pub fn read_post<'a>(input: &'a [u8], path: &str, limits: RequestLimits) -> ReadRequest<'a> {
    if !may_begin(input, path) {
        return ReadRequest::Other;
    }
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let head = match request.parse(input) {
        Ok(httparse::Status::Complete(head)) if head <= limits.head => head,
        Ok(httparse::Status::Partial) if input.len() < limits.head => return ReadRequest::Incomplete,
        _ => return ReadRequest::Other,
    };
    let (Some(target), Some(1)) = (request.path, request.version) else { return ReadRequest::Other };
    let Some(length) = body_length(request.headers).filter(|&length| length <= limits.body) else {
        return ReadRequest::Other;
    };
    let Some(body) = input.get(head..head + length) else { return ReadRequest::Incomplete };
    let headers = request.headers.iter().map(|header| (header.name, header.value)).collect();
    ReadRequest::Request(HttpRequest { target, headers, body, bytes: head + length })
}

/// Whether the input can be, or become, a `POST` of this path.
fn may_begin(input: &[u8], path: &str) -> bool {
    let expected = b"POST ".iter().chain(path.as_bytes());
    let same = input.iter().zip(expected).all(|(given, expected)| given == expected);
    same && input.get("POST ".len() + path.len()).is_none_or(|next| matches!(next, b' ' | b'?'))
}

/// The length of the body. None: the body is framed in another way, or a header asks for more than an answer.
fn body_length(headers: &[httparse::Header<'_>]) -> Option<usize> {
    let mut length = None;
    for header in headers {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is("transfer-encoding") || is("expect") || is("upgrade") {
            return None;
        }
        if is("connection") && !header.value.eq_ignore_ascii_case(b"keep-alive") {
            return None;
        }
        if is("content-length") && length.replace(decimal(header.value)?).is_some() {
            return None;
        }
    }
    length
}

/// Digits alone: no sign, no list.
fn decimal(text: &[u8]) -> Option<usize> {
    if !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Appends the status line; headers and `end_head` follow.
pub fn status_line(out: &mut Vec<u8>, status: u16, reason: &str) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(itoa::Buffer::new().format(status).as_bytes());
    out.push(b' ');
    out.extend_from_slice(reason.as_bytes());
    out.extend_from_slice(b"\r\n");
}

pub fn header(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Ends the head of a response with a body of this length.
pub fn end_head(out: &mut Vec<u8>, length: usize) {
    header(out, "content-length", itoa::Buffer::new().format(length).as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: RequestLimits = RequestLimits { head: 512, body: 64 };

    fn read(input: &str) -> String {
        match read_post(input.as_bytes(), "/v1/poll", LIMITS) {
            ReadRequest::Incomplete => "incomplete".to_owned(),
            ReadRequest::Other => "other".to_owned(),
            ReadRequest::Request(request) => {
                let body = std::str::from_utf8(request.body).unwrap();
                format!(
                    "{} {} {body} +{}",
                    request.target,
                    request.headers.len(),
                    input.len() - request.bytes
                )
            }
        }
    }

    fn post(headers: &str, body: &str) -> String {
        format!("POST /v1/poll HTTP/1.1\r\nHost: a\r\n{headers}\r\n{body}")
    }

    #[test]
    fn a_request_ends_with_its_body() {
        let whole = post("Content-Length: 2\r\n", "{}");
        assert_eq!(read(&whole), "/v1/poll 2 {} +0");
        assert_eq!(read(&format!("{whole}POST")), "/v1/poll 2 {} +4");
        assert_eq!(read(&whole.replace("poll ", "poll?user=ann ")), "/v1/poll?user=ann 2 {} +0");
        assert_eq!(read(&post("Connection: Keep-Alive\r\ncontent-length: 0\r\n", "")), "/v1/poll 3  +0");
        for end in 0..whole.len() {
            assert_eq!(read(&whole[..end]), "incomplete", "{end}");
        }
    }

    #[test]
    fn what_a_complete_server_must_judge_is_not_read() {
        for headers in [
            "",
            "Content-Length: 2\r\nContent-Length: 2\r\n",
            "Content-Length: 2, 2\r\n",
            "Content-Length: +2\r\n",
            "Content-Length: 65\r\n",
            "Content-Length: 99999999999999999999999\r\n",
            "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: 2\r\nExpect: 100-continue\r\n",
            "Content-Length: 2\r\nConnection: close\r\n",
            "Content-Length: 2\r\nUpgrade: h2c\r\n",
            "Content-Length : 2\r\n",
            "Content-Length: 2\r\n folded: yes\r\n",
        ] {
            assert_eq!(read(&post(headers, "{}")), "other", "{headers:?}");
        }
        for request in
            ["GET /v1/poll HTTP/1.1\r\n\r\n", "POST /v1/polls HTTP/1.1\r\n\r\n", "POST /v1/command", "x"]
        {
            assert_eq!(read(request), "other", "{request:?}");
        }
        assert_eq!(read(&post("Content-Length: 2\r\n", "{}").replace("1.1", "1.0")), "other");
        assert_eq!(read(&post(&format!("Content-Length: 2\r\nA: {}\r\n", "a".repeat(512)), "{}")), "other");
        assert_eq!(read(&post(&"A: b\r\n".repeat(HEADERS), "{}")), "other");
    }

    #[test]
    fn a_response_head_is_a_status_line_and_headers() {
        let mut out = Vec::new();
        status_line(&mut out, 410, "Gone");
        header(&mut out, "cache-control", b"no-store");
        end_head(&mut out, 17);
        let expected = "HTTP/1.1 410 Gone\r\ncache-control: no-store\r\ncontent-length: 17\r\n\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
