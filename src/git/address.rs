//! (pure) Which addresses may be dialled for Git.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// May it be dialled?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Yes.
    Allowed,
    /// Only when insecure connections are allowed.
    Loopback,
    /// Never: it is an address of this kind.
    Refused(&'static str),
}

/// AWS' IPv6 metadata service.
const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
/// Alibaba Cloud's metadata service.
const METADATA_V4: Ipv4Addr = Ipv4Addr::new(100, 100, 100, 200);

/// Judges one address; IPv4 in IPv6 clothes counts as IPv4.
pub(super) fn verdict(ip: IpAddr) -> Verdict {
    match ip {
        IpAddr::V4(v4) => verdict_v4(v4),
        IpAddr::V6(v6) => match embedded_v4(v6) {
            Some(v4) => verdict_v4(v4),
            None => verdict_v6(v6),
        },
    }
}

fn verdict_v4(ip: Ipv4Addr) -> Verdict {
    if ip.is_loopback() {
        Verdict::Loopback
    } else if ip.is_link_local() {
        Verdict::Refused("link-local")
    } else if ip == METADATA_V4 {
        Verdict::Refused("metadata")
    } else if ip.octets()[0] == 0 {
        Verdict::Refused("unspecified")
    } else if ip.is_multicast() || ip.is_broadcast() {
        Verdict::Refused("multicast")
    } else {
        Verdict::Allowed
    }
}

fn verdict_v6(ip: Ipv6Addr) -> Verdict {
    if ip.is_loopback() {
        Verdict::Loopback
    } else if ip.is_unicast_link_local() {
        Verdict::Refused("link-local")
    } else if ip == METADATA_V6 {
        Verdict::Refused("metadata")
    } else if ip.is_unspecified() {
        Verdict::Refused("unspecified")
    } else if ip.is_multicast() {
        Verdict::Refused("multicast")
    } else {
        Verdict::Allowed
    }
}

/// IPv4-mapped (`::ffff:0:0/96`) and NAT64 (`64:ff9b::/96`, RFC 6052) addresses.
fn embedded_v4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    ip.to_ipv4_mapped().or_else(|| {
        let [a, b, 0, 0, 0, 0, hi, lo] = ip.segments() else { return None };
        let ([h1, h2], [l1, l2]) = (hi.to_be_bytes(), lo.to_be_bytes());
        (a == 0x64 && b == 0xff9b).then(|| Ipv4Addr::new(h1, h2, l1, l2))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v10_addresses_in_disguise_are_recognised() {
        let judge = |text: &str| verdict(text.parse().unwrap());
        for text in ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"] {
            assert_eq!(judge(text), Verdict::Loopback, "{text}");
        }
        for text in ["169.254.169.254", "fe80::1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"] {
            assert_eq!(judge(text), Verdict::Refused("link-local"), "{text}");
        }
        assert_eq!(judge("fd00:ec2::254"), Verdict::Refused("metadata"));
        for text in ["10.0.0.1", "140.82.121.4", "2606:50c0:8000::153"] {
            assert_eq!(judge(text), Verdict::Allowed, "{text}");
        }
    }
}
