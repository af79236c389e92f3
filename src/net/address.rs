//! (pure) The classes of addresses.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The class of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressClass {
    /// On the public internet.
    Public,
    /// Private addresses of RFC 1918.
    Private,
    /// Other addresses that are used inside networks: carrier-grade NAT, unique local IPv6, and the ranges for documentation,
    /// benchmarks and experiments.
    Internal,
    /// This machine.
    Loopback,
    /// Never dialled, because it is an address of this kind.
    Never(&'static str),
}

use AddressClass::{Internal, Loopback, Never, Private, Public};

pub(super) const METADATA: AddressClass = Never("that of a cloud's metadata service");
pub(super) const RESERVED: AddressClass = Never("reserved");

const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), bits)
}

const fn v6(head: [u16; 4], tail: [u16; 4], bits: u8) -> Ipv6Net {
    let ip = Ipv6Addr::new(head[0], head[1], head[2], head[3], tail[0], tail[1], tail[2], tail[3]);
    Ipv6Net::new_assert(ip, bits)
}

/// The first range that contains an address gives its class. An address in none of them is public.
const V4: &[(Ipv4Net, AddressClass)] = &[
    // Azure, Alibaba Cloud.
    (v4(168, 63, 129, 16, 32), METADATA),
    (v4(100, 100, 100, 200, 32), METADATA),
    // The metadata service of most clouds is in it.
    (v4(169, 254, 0, 0, 16), Never("link-local")),
    // 192.0.0.192 is Oracle Cloud's metadata service.
    (v4(192, 0, 0, 0, 24), RESERVED),
    (v4(192, 88, 99, 0, 24), RESERVED),
    (v4(0, 0, 0, 0, 8), Never("unspecified")),
    (v4(224, 0, 0, 0, 4), Never("multicast")),
    (v4(255, 255, 255, 255, 32), Never("broadcast")),
    (v4(127, 0, 0, 0, 8), Loopback),
    (v4(10, 0, 0, 0, 8), Private),
    (v4(172, 16, 0, 0, 12), Private),
    (v4(192, 168, 0, 0, 16), Private),
    (v4(100, 64, 0, 0, 10), Internal),
    // Benchmarks, documentation, future use. Networks that need more than RFC 1918 use them.
    (v4(198, 18, 0, 0, 15), Internal),
    (v4(192, 0, 2, 0, 24), Internal),
    (v4(198, 51, 100, 0, 24), Internal),
    (v4(203, 0, 113, 0, 24), Internal),
    (v4(240, 0, 0, 0, 4), Internal),
];

/// The first range that contains an address gives its class. An address in none of them is reserved.
const V6: &[(Ipv6Net, AddressClass)] = &[
    (v6([0; 4], [0, 0, 0, 0], 128), Never("unspecified")),
    (v6([0; 4], [0, 0, 0, 1], 128), Loopback),
    (v6([0xfe80, 0, 0, 0], [0; 4], 10), Never("link-local")),
    (v6([0xff00, 0, 0, 0], [0; 4], 8), Never("multicast")),
    // AWS (metadata, credentials of pods, time, names), Google Cloud, Oracle Cloud, Scaleway.
    (v6([0xfd00, 0xec2, 0, 0], [0; 4], 32), METADATA),
    (v6([0xfd20, 0xce, 0, 0], [0, 0, 0, 0x254], 128), METADATA),
    (v6([0xfd00, 0xc1, 0, 0], [0, 0, 0xa9fe, 0xa9fe], 128), METADATA),
    (v6([0xfd00, 0x42, 0, 0], [0, 0, 0, 0x42], 128), METADATA),
    (v6([0xfc00, 0, 0, 0], [0; 4], 7), Internal),
    (v6([0xfec0, 0, 0, 0], [0; 4], 10), Internal),
    // A network's own NAT64, documentation, benchmarks.
    (v6([0x64, 0xff9b, 1, 0], [0; 4], 48), Internal),
    (v6([0x2001, 0xdb8, 0, 0], [0; 4], 32), Internal),
    (v6([0x3fff, 0, 0, 0], [0; 4], 20), Internal),
    (v6([0x2001, 2, 0, 0], [0; 4], 48), Internal),
    // Teredo is among them. Teredo and 6to4 lead to IPv4 addresses through foreign relays.
    (v6([0x2001, 0, 0, 0], [0; 4], 23), RESERVED),
    (v6([0x2002, 0, 0, 0], [0; 4], 16), Never("6to4")),
    (v6([0x2000, 0, 0, 0], [0; 4], 3), Public),
];

impl AddressClass {
    /// The class of an address.
    #[must_use]
    pub fn of(ip: IpAddr) -> Self {
        match canonical(ip) {
            IpAddr::V4(ip) => {
                V4.iter().find(|(range, _)| range.contains(&ip)).map_or(Public, |(_, class)| *class)
            }
            IpAddr::V6(ip) => V6
                .iter()
                .find(|(range, _)| range.contains(&ip))
                .map_or(RESERVED, |(_, class)| *class),
        }
    }

    /// The class of a range that is not public, if one row of the tables contains all of it.
    pub(super) fn of_range(range: &IpNet) -> Option<Self> {
        let whole = match range {
            IpNet::V4(range) => V4.iter().find(|(row, _)| row.contains(range)).map(|row| row.1),
            IpNet::V6(range) => V6.iter().find(|(row, _)| row.contains(range)).map(|row| row.1),
        };
        whole.filter(|class| *class != Public)
    }
}

/// The IPv4 address that an IPv6 address stands for, otherwise the address itself. These stand for one: mapped
/// (`::ffff:0:0/96`), translated (`::ffff:0:0:0/96`), compatible (`::/96`) and NAT64 (`64:ff9b::/96`).
#[must_use]
pub fn canonical(ip: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = ip else { return ip };
    let (hi, lo) = match v6.segments() {
        [0, 0, 0, 0, 0, 0xffff, hi, lo]
        | [0, 0, 0, 0, 0xffff, 0, hi, lo]
        | [0x64, 0xff9b, 0, 0, 0, 0, hi, lo] => (hi, lo),
        // Not `::` and `::1`.
        [0, 0, 0, 0, 0, 0, hi, lo] if (hi, lo) > (0, 1) => (hi, lo),
        _ => return ip,
    };
    Ipv4Addr::from(u32::from(hi) << 16 | u32::from(lo)).into()
}
