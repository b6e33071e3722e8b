//! Which IP addresses webhooks may connect to (SSRF protection).
//! Must hold: addresses of this machine, its network or its cloud metadata service are refused, also when embedded in
//! IPv6; an address that is not known to be public is refused.

use crate::config::Cidr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses that the operator allows.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// `http://` as well as `https://`.
    pub allow_http: bool,
    /// Every address, this machine included.
    pub allow_private: bool,
    /// Ranges that are allowed although they are not public.
    pub allowed: Vec<Cidr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address} is not allowed: {what}")]
pub struct Forbidden {
    pub address: IpAddr,
    pub what: &'static str,
}

impl Policy {
    pub fn check(&self, address: IpAddr) -> Result<(), Forbidden> {
        if self.allow_private || self.allowed.iter().any(|range| range.contains(address)) {
            return Ok(());
        }
        match special(address) {
            Some(what) => Err(Forbidden { address, what }),
            None => Ok(()),
        }
    }
}

/// From the registry of special-purpose addresses (RFC 6890 and after).
const SPECIAL_V4: &[([u8; 4], u32, &str)] = &[
    ([0, 0, 0, 0], 8, "it is this machine"),
    ([10, 0, 0, 0], 8, "it is a private address"),
    ([100, 64, 0, 0], 10, "it is a carrier-grade NAT address"),
    ([127, 0, 0, 0], 8, "it is this machine"),
    ([169, 254, 0, 0], 16, "it is a link-local address"),
    ([172, 16, 0, 0], 12, "it is a private address"),
    ([192, 0, 0, 0], 24, "it is reserved"),
    ([192, 0, 2, 0], 24, "it is a documentation address"),
    ([192, 31, 196, 0], 24, "it is reserved"),
    ([192, 52, 193, 0], 24, "it is reserved"),
    ([192, 88, 99, 0], 24, "it is reserved"),
    ([192, 168, 0, 0], 16, "it is a private address"),
    ([192, 175, 48, 0], 24, "it is reserved"),
    ([198, 18, 0, 0], 15, "it is a benchmarking address"),
    ([198, 51, 100, 0], 24, "it is a documentation address"),
    ([203, 0, 113, 0], 24, "it is a documentation address"),
    ([224, 0, 0, 0], 4, "it is a multicast address"),
    ([255, 255, 255, 255], 32, "it is the broadcast address"),
    ([240, 0, 0, 0], 4, "it is reserved"),
];

/// Inside 2000::/3, all that is assigned so far.
const SPECIAL_V6: &[(u128, u32, &str)] = &[
    (0x2001 << 112, 23, "it is reserved"),
    (0x2001_0db8 << 96, 32, "it is a documentation address"),
    (0x3fff << 112, 20, "it is a documentation address"),
];

/// Why an address is not a public one.
fn special(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(four) => special_v4(four),
        IpAddr::V6(six) => special_v6(six),
    }
}

fn special_v4(address: Ipv4Addr) -> Option<&'static str> {
    let bits = address.to_bits();
    let within = |net: [u8; 4], size: u32| (bits ^ u32::from_be_bytes(net)) >> (32 - size) == 0;
    SPECIAL_V4.iter().find(|(net, size, _)| within(*net, *size)).map(|(_, _, what)| *what)
}

fn special_v6(address: Ipv6Addr) -> Option<&'static str> {
    let bits = address.to_bits();
    let within = |net: u128, size: u32| (bits ^ net) >> (128 - size) == 0;
    // A translator or tunnel would turn these into the embedded IPv4 address.
    let held = |shift: u32| Ipv4Addr::from_bits((bits >> shift) as u32);
    const MAPPED: u128 = 0xffff << 32;
    const NAT64: u128 = 0x0064_ff9b << 96;
    const SIX_TO_FOUR: u128 = 0x2002 << 112;
    const TEREDO: u128 = 0x2001 << 112;
    if within(MAPPED, 96) || within(NAT64, 96) {
        return special_v4(held(0));
    }
    if within(SIX_TO_FOUR, 16) {
        return special_v4(held(80));
    }
    if within(TEREDO, 32) {
        // Teredo: the server address as it is, the client address with inverted bits.
        return special_v4(held(64)).or_else(|| special_v4(Ipv4Addr::from_bits(!held(0).to_bits())));
    }
    if let Some((_, _, what)) = SPECIAL_V6.iter().find(|(net, size, _)| within(*net, *size)) {
        return Some(what);
    }
    match () {
        () if within(0x2000 << 112, 3) => None,
        () if address.is_loopback() || address.is_unspecified() => Some("it is this machine"),
        () if within(0xfc00 << 112, 7) => Some("it is a private address"),
        () if within(0xfe80 << 112, 10) => Some("it is a link-local address"),
        () if within(0xff00 << 112, 8) => Some("it is a multicast address"),
        () => Some("it is not a public address"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> bool {
        Policy::default().check(text.parse().expect(text)).is_err()
    }

    #[test]
    fn addresses_that_are_not_public_are_refused() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.0",
            "10.255.255.255",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "192.168.255.255",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.7",
            "224.0.0.1",
            "239.255.255.250",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::808:808",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0:127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::808:808",
            "100::1",
            "2001::1",
            "2001:0:7f00:1::",
            "2001:0:808:808::f5ff:fffe",
            "2001:2::1",
            "2001:10::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:a00:1::1",
            "2002:a9fe:a9fe::",
            "3fff::1",
            "4000::1",
            "5f00::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(refused(address), "{address}");
        }
    }

    #[test]
    fn public_addresses_are_allowed() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.1",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.167.255.255",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2001:4860:4860::8888",
            "2002:808:808::1",
            "2001:0:808:808::f7f7:f7f7",
            "2a00:1450::1",
        ] {
            assert!(!refused(address), "{address}");
        }
    }

    #[test]
    fn allowed_ranges_are_accepted() {
        let policy =
            Policy { allowed: vec![Cidr::parse("10.1.0.0/16").expect("a range")], ..Policy::default() };
        let check = |text: &str| policy.check(text.parse().expect(text));
        assert!(check("10.1.2.3").is_ok());
        assert!(check("::ffff:10.1.2.3").is_ok());
        assert!(check("10.2.2.3").is_err());
        let all = Policy { allow_private: true, ..Policy::default() };
        assert!(all.check(IpAddr::V4(Ipv4Addr::LOCALHOST)).is_ok());
        let text = check("169.254.169.254").expect_err("refused").to_string();
        assert_eq!(text, "169.254.169.254 is not allowed: it is a link-local address");
    }
}
