//! Client addresses as they count in limits. One host controls a whole IPv6 /64, so that counts as one address.

use core::net::{IpAddr, Ipv6Addr};

/// An IPv4 address, or the /64 of an IPv6 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressGroup(IpAddr);

impl AddressGroup {
    pub fn of(address: IpAddr) -> AddressGroup {
        AddressGroup(match address.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
        })
    }
}

impl core::fmt::Display for AddressGroup {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.0 {
            IpAddr::V4(address) => write!(f, "{address}"),
            IpAddr::V6(address) => write!(f, "{address}/64"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_addresses_count_by_their_64() {
        let group = |text: &str| AddressGroup::of(text.parse().unwrap());
        assert_eq!(group("2001:db8:1:2::1"), group("2001:db8:1:2:ffff::9"));
        assert_ne!(group("2001:db8:1:2::1"), group("2001:db8:1:3::1"));
        assert_eq!(group("::ffff:10.0.0.1"), group("10.0.0.1"));
        assert_ne!(group("10.0.0.1"), group("10.0.0.2"));
        assert_eq!(
            alloc::format!("{} {}", group("10.0.0.1"), group("2001:db8::1")),
            "10.0.0.1 2001:db8::/64"
        );
    }
}
