//! Accepted and refused targets, in every spelling.

use super::*;

fn parse(text: &str) -> Result<WebhookTarget, TargetError> {
    WebhookTarget::parse(text, &Policy::default())
}

#[test]
fn forbidden_addresses_are_refused_in_every_spelling() {
    for host in [
        "127.0.0.1",
        "127.0.0.1.",
        "2130706433",
        "2130706433.",
        "0x7f000001",
        "0X7F000001",
        "017700000001",
        "0177.0.0.1",
        "0177.0.0.01",
        "0x7f.0.0.1",
        "0x7f.1",
        "0x7F.0x0.0x0.0x1",
        "127.1",
        "127.0.1",
        "127.0x1",
        "0",
        "0x",
        "0.0.0.0",
        "00000.0",
        "10.1",
        "012.0.0.1",
        "167772161",
        "169.254.169.254",
        "2852039166",
        "0xa9fea9fe",
        "0xa9.0xfe.0xa9.0xfe",
        "0251.0376.0251.0376",
        "169.16689662",
        "192.168.1",
        "3232235777",
        "255.255.255.255",
        "4294967295",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::FFFF:7F00:0001]",
        "[0:0:0:0:0:ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[2002:7f00:1::]",
        "[fe80::1]",
        "[fd00::1]",
        "[::ffff:169.254.169.254]",
    ] {
        for text in [format!("https://{host}/x"), format!("https://{host}:8443"), format!("HTTPS://{host}?a")]
        {
            assert!(matches!(parse(&text), Err(TargetError::Forbidden(_))), "{text}: {:?}", parse(&text));
        }
    }
}

#[test]
fn invalid_targets_are_refused_with_a_reason() {
    let long = format!("https://host/{}", "a".repeat(TARGET_BYTES));
    let name = format!("https://{}/", ["abcdefgh"; 30].join("."));
    let label = format!("https://{}.com/", "a".repeat(64));
    let host = |host: &str| TargetError::Host(host.to_owned());
    for (text, expected) in [
        ("", TargetError::Scheme("https://")),
        ("host/path", TargetError::Scheme("https://")),
        ("ftp://host/", TargetError::Scheme("https://")),
        ("file:///etc/passwd", TargetError::Scheme("https://")),
        ("gopher://host/", TargetError::Scheme("https://")),
        ("://host/", TargetError::Scheme("https://")),
        (" https://host/", TargetError::Scheme("https://")),
        ("https:/host/", TargetError::Scheme("https://")),
        ("javascript:alert(1)", TargetError::Scheme("https://")),
        ("http://host/", TargetError::Plain),
        ("HTTP://host/", TargetError::Plain),
        ("https://ann@host/", TargetError::User),
        ("https://ann:pw@host/", TargetError::User),
        ("https://host@127.0.0.1/", TargetError::User),
        ("https://127.0.0.1%2f@host/", TargetError::User),
        ("https://host/#part", TargetError::Fragment),
        ("https://host#@127.0.0.1/", TargetError::Fragment),
        ("https://host\\@127.0.0.1/", TargetError::Character),
        ("https:\\\\host/", TargetError::Scheme("https://")),
        ("https://host/a b", TargetError::Character),
        ("https://host/a\r\nb", TargetError::Character),
        ("https://höst/", TargetError::Character),
        ("https://１２７.0.0.1/", TargetError::Character),
        ("https://127。0。0。1/", TargetError::Character),
        ("https:///path", host("")),
        ("https://:80/", host("")),
        ("https://host./", host("host.")),
        ("https://a..b/", host("a..b")),
        ("https://.host/", host(".host")),
        ("https://a%2eb/", host("a%2eb")),
        ("https://%31%32%37.0.0.1/", host("%31%32%37.0.0.1")),
        ("https://256.1.1.1/", host("256.1.1.1")),
        ("https://1.2.3.4.5/", host("1.2.3.4.5")),
        ("https://4294967296/", host("4294967296")),
        ("https://99999999999999999999/", host("99999999999999999999")),
        ("https://08.8.8.8/", host("08.8.8.8")),
        ("https://host.1/", host("host.1")),
        ("https://[::1/", host("[")),
        ("https://[fe80::1%25eth0]/", host("[fe80::1%25eth0]")),
        ("https://[::1]x/", host("[::1]x")),
        ("https://::1/", host("")),
        ("https://host:/", TargetError::Port),
        ("https://host:0/", TargetError::Port),
        ("https://host:65536/", TargetError::Port),
        ("https://host:+80/", TargetError::Port),
        ("https://host:80:90/", TargetError::Port),
        ("https://134744072/", TargetError::Spelling(Ipv4Addr::new(8, 8, 8, 8))),
        ("https://8.8.8.010/", TargetError::Spelling(Ipv4Addr::new(8, 8, 8, 8))),
        ("https://8.8.8.8./", TargetError::Spelling(Ipv4Addr::new(8, 8, 8, 8))),
        (&long, TargetError::TooLong),
        (&name, host(&name[8..name.len() - 1])),
        (&label, host(&label[8..label.len() - 1])),
    ] {
        assert_eq!(parse(text), Err(expected), "{text}");
    }
}

#[test]
fn refusal_of_a_scheme_names_those_that_are_allowed() {
    let refused = |allow_http| {
        let policy = Policy { allow_http, ..Policy::default() };
        WebhookTarget::parse("ftp://host/", &policy).unwrap_err().to_string()
    };
    assert_eq!(refused(false), "the URL must start with https://");
    assert_eq!(refused(true), "the URL must start with https:// or http://");
}

#[test]
fn valid_targets_are_kept_unchanged() {
    let open = Policy { allow_http: true, allow_private: true, ..Policy::default() };
    for text in [
        "https://hooks.example.com/tavern?key=1&b=%20",
        "https://hooks.example.com",
        "https://HOOKS.example.com:8443/a//b/../c",
        "https://my_host/",
        "https://xn--hst-sna.example/",
        "https://0x7f.example/",
        "https://8.8.8.8/",
        "https://[2a00:1450::1]:8443/",
    ] {
        let target = parse(text).expect(text);
        assert_eq!(target.to_string().trim_end_matches('/'), text.trim_end_matches('/'));
    }
    for text in ["http://127.0.0.1:9/x", "http://localhost:9", "https://[::1]/", "http://10.0.0.1"] {
        WebhookTarget::parse(text, &open).expect(text);
    }
    let odd = WebhookTarget::parse("http://127.1/", &open);
    assert_eq!(odd, Err(TargetError::Spelling(Ipv4Addr::LOCALHOST)), "allowed in canonical form only");
    assert_eq!(parse("https://h.example:1/secret").expect("a target").authority(), "h.example:1");
}
