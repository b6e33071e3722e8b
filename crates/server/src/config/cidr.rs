//! A range of addresses: `10.0.0.0/8`, `::1`. Used for the list of trusted proxies.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    // Always in IPv6 form, so that an IPv4 peer of a dual-stack socket is recognised.
    network: u128,
    mask: u128,
    shown: (IpAddr, u8),
}

impl Cidr {
    pub fn parse(text: &str) -> Option<Cidr> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let width: u8 = if address.is_ipv4() { 32 } else { 128 };
        let bits: u8 = match bits {
            Some(bits) if bits.bytes().all(|b| b.is_ascii_digit()) => bits.parse().ok()?,
            Some(_) => return None,
            None => width,
        };
        if bits > width {
            return None;
        }
        let host_bits = u32::from(width - bits);
        let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
        let network = wide(address);
        // Bits outside the mask are a mistake: another range was meant.
        (network & !mask == 0 || bits == width).then_some(Cidr { network, mask, shown: (address, bits) })
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        wide(address) & self.mask == self.network & self.mask
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.shown.0, self.shown.1)
    }
}

fn wide(address: IpAddr) -> u128 {
    let six: Ipv6Addr = match address {
        IpAddr::V4(four) => four.to_ipv6_mapped(),
        IpAddr::V6(six) => six,
    };
    six.to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_contain_their_addresses() {
        for (range, address, inside) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("fd00::/8", "fd12::1", true),
            ("::1", "::1", true),
            ("0.0.0.0/0", "9.9.9.9", true),
            ("0.0.0.0/0", "fd00::1", false),
            ("::/0", "9.9.9.9", true),
        ] {
            let cidr = Cidr::parse(range).unwrap();
            assert_eq!(cidr.contains(address.parse().unwrap()), inside, "{address} in {range}");
        }
    }

    #[test]
    fn invalid_ranges_are_refused() {
        for text in
            ["", "10.0.0.0/33", "10.0.0.1/8", "::/129", "host", "10.0.0.0/", "10.0.0.0/+8", "10.0.0.0/-1"]
        {
            assert_eq!(Cidr::parse(text), None, "{text}");
        }
    }
}
