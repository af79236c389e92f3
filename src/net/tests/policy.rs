#![allow(clippy::unwrap_used)]

use reqwest::Url;

use super::super::address::{METADATA, RESERVED};
use super::*;

fn class(text: &str) -> AddressClass {
    AddressClass::of(text.parse().unwrap())
}

fn range(text: &str) -> AddressRange {
    text.parse().unwrap()
}

/// What a policy says of the host of a URL, as it is written.
fn host(policy: &Policy, url: &str) -> Result<(), NotAllowed> {
    let url = Url::parse(url).unwrap();
    policy.host(&Endpoint::new(url.host_str().unwrap(), url.port_or_known_default().unwrap()))
}

fn address(policy: &Policy, text: &str) -> Result<(), Refusal> {
    let to = SocketAddr::new(text.parse().unwrap(), 443);
    policy.address(to, &policy.known_api_servers())
}

#[test]
fn o11_v10_each_address_has_its_class() {
    for (expected, texts) in [
        (
            Public,
            &["1.1.1.1", "140.82.121.4", "172.15.255.255", "172.32.0.0", "192.167.255.255"][..],
        ),
        (Public, &["9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "192.0.1.0"]),
        (
            Public,
            &["198.17.255.255", "198.20.0.0", "223.255.255.255", "126.255.255.255", "128.0.0.0"],
        ),
        (Public, &["168.63.129.15", "168.63.129.17", "169.253.255.255", "169.255.0.0"]),
        (
            Public,
            &["2606:50c0:8000::153", "2a00:1450:4001::1", "2001:200::1", "2001:4860:4860::8888"],
        ),
        (Private, &["10.0.0.1", "10.255.255.255", "172.16.0.0", "172.31.255.255", "192.168.1.1"]),
        (Internal, &["100.64.0.0", "100.127.255.255", "198.18.0.1", "198.19.255.255", "240.0.0.1"]),
        (Internal, &["192.0.2.1", "198.51.100.1", "203.0.113.1", "255.255.255.254"]),
        (Internal, &["fc00::1", "fd12:3456::1", "fdff::1", "fec0::1", "2001:db8::1", "3fff::1"]),
        (Internal, &["64:ff9b:1::a00:1", "2001:2::1"]),
        (Loopback, &["127.0.0.1", "127.8.9.1", "127.255.255.255", "::1"]),
        (METADATA, &["168.63.129.16", "100.100.100.200", "fd00:ec2::254", "fd00:ec2::23"]),
        (METADATA, &["fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42"]),
        (
            Never("link-local"),
            &["169.254.169.254", "169.254.170.2", "169.254.0.0", "fe80::1", "febf::1"],
        ),
        (
            RESERVED,
            &["192.0.0.192", "192.0.0.1", "192.88.99.1", "100::1", "5f00::1", "4000::1", "e000::1"],
        ),
        (RESERVED, &["2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001::1", "2001:20::1"]),
        (Never("6to4"), &["2002:7f00:1::1", "2002:a9fe:a9fe::1", "2002:808:808::1"]),
        (Never("unspecified"), &["0.0.0.0", "0.1.2.3", "::"]),
        (Never("multicast"), &["224.0.0.1", "239.255.255.255", "ff02::1"]),
        (Never("broadcast"), &["255.255.255.255"]),
    ] {
        for text in texts {
            assert_eq!(class(text), expected, "{text}");
        }
    }
}

#[test]
fn o11_v10_ipv4_in_ipv6_is_judged_as_ipv4() {
    for form in ["::ffff:", "::ffff:0:", "::", "64:ff9b::"] {
        for (v4, expected) in [
            ("127.0.0.1", Loopback),
            ("10.0.0.1", Private),
            ("192.168.0.1", Private),
            ("100.64.0.1", Internal),
            ("169.254.169.254", Never("link-local")),
            ("168.63.129.16", METADATA),
            ("100.100.100.200", METADATA),
            ("192.0.0.192", RESERVED),
            ("8.8.8.8", Public),
        ] {
            assert_eq!(class(&format!("{form}{v4}")), expected, "{form}{v4}");
        }
    }
}

#[test]
fn o11_v10_hosts_in_disguise_are_judged_as_what_they_are() {
    let nothing = Policy::default();
    for text in [
        "127.0.0.1",
        "127.0.0.1.",
        "127.1",
        "0177.0.0.1",
        "0x7f.1",
        "0x7f000001",
        "2130706433",
        "017700000001",
        "%31%32%37.0.0.1",
        "１２７.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::7f00:1]",
        "user:password@127.0.0.1",
        "localhost",
        "LOCALHOST.",
        "a.localhost",
        "git.localhost.",
        "10.0.0.1",
        "167772161",
        "0xa000001",
        "012.0.0.1",
        "10.1",
        "[::ffff:a00:1]",
        "[64:ff9b::a00:1]",
        "192.168.257",
        "172.16.1",
        "[2002:a00:1::1]",
        "[2001:0:a00:1::1]",
        "[::ffff:0:a00:1]",
        "0",
        "0.0.0.0",
        "[::]",
        "169.254.169.254",
        "2852039166",
        "0xA9FEA9FE",
        "[::ffff:169.254.169.254]",
        "168.63.129.16",
        "192.0.0.192",
        "100.100.100.200",
        "100.64.0.1",
        "[fd00:ec2::254]",
        "[fd12::1]",
        "[fe80::1]",
        "255.255.255.255",
        "224.0.0.1",
    ] {
        let refused = host(&nothing, &format!("https://{text}/r")).expect_err(text);
        assert!(refused.is_lasting(), "{text}");
    }
    // Not even URLs: zones, addresses that are none.
    for text in
        ["[fe80::1%25eth0]", "[fe80::1%eth0]", "[::1", "256.0.0.1", "0x100000000", "1.2.3.4.5"]
    {
        assert!(Url::parse(&format!("https://{text}/r")).is_err(), "{text}");
    }
    // Names are judged by what they lead to when they are dialled.
    for text in [
        "git.example.com",
        "kubernetes.default.svc",
        "metadata.google.internal",
        "localhost.example",
    ] {
        assert_eq!(host(&nothing, &format!("https://{text}/r")), Ok(()), "{text}");
    }
}

#[test]
fn o11_each_flag_allows_its_own_classes() {
    let nothing = Policy::default();
    let insecure = Policy { insecure: true, ..Policy::default() };
    let single = Policy { single_tenant: true, ..Policy::default() };
    let everything = Policy {
        insecure: true,
        single_tenant: true,
        ranges: vec![range("0.0.0.0/0"), range("::/0")],
        ..Policy::default()
    };
    for (text, allowed_by) in [
        ("8.8.8.8", [true, true, true, true]),
        ("2606:50c0:8000::153", [true, true, true, true]),
        ("127.0.0.1", [false, true, false, true]),
        ("::1", [false, true, false, true]),
        ("10.0.0.1", [false, false, true, true]),
        ("::ffff:10.0.0.1", [false, false, true, true]),
        ("100.64.0.1", [false, false, false, true]),
        ("198.18.0.1", [false, false, false, true]),
        ("fd12::1", [false, false, false, true]),
        ("169.254.169.254", [false; 4]),
        ("168.63.129.16", [false; 4]),
        ("192.0.0.192", [false; 4]),
        ("100.100.100.200", [false; 4]),
        ("fd00:ec2::254", [false; 4]),
        ("fe80::1", [false; 4]),
        ("2002:a00:1::1", [false; 4]),
        ("224.0.0.1", [false; 4]),
        ("0.0.0.0", [false; 4]),
        ("::", [false; 4]),
    ] {
        let found =
            [&nothing, &insecure, &single, &everything].map(|policy| address(policy, text).is_ok());
        assert_eq!(found, allowed_by, "{text}");
    }
}

#[test]
fn o11_a_list_allows_what_is_in_it() {
    let ranges = ["10.20.0.0/16", "100.64.1.2", "fd12:3456::/32"].map(range).to_vec();
    let listed = Policy { ranges, ..Policy::default() };
    for text in [
        "10.20.0.1",
        "10.20.255.255",
        "::ffff:10.20.0.1",
        "64:ff9b::a14:1",
        "100.64.1.2",
        "fd12:3456::9",
    ] {
        assert_eq!(address(&listed, text), Ok(()), "{text}");
    }
    for text in
        ["10.21.0.1", "10.19.255.255", "192.168.0.1", "100.64.1.3", "fd12:3457::1", "127.0.0.1"]
    {
        assert!(address(&listed, text).is_err(), "{text}");
    }
}

#[test]
fn o11_ranges_that_can_mean_nothing_are_refused() {
    for (text, why) in [
        ("", "must be an address or a range"),
        ("10.0.0.0/33", "must be an address or a range"),
        ("10.0.0.0-10.1.0.0", "must be an address or a range"),
        ("git.example.com", "must be an address or a range"),
        ("10.0.0.1/8", "write 10.0.0.0/8"),
        ("127.0.0.0/8", "--allow-insecure-git"),
        ("::1", "--allow-insecure-git"),
        ("169.254.0.0/16", "never dialled"),
        ("169.254.169.254", "never dialled"),
        ("168.63.129.16", "never dialled"),
        ("192.0.0.0/24", "never dialled"),
        ("fe80::/10", "never dialled"),
        ("fd00:ec2::254/128", "never dialled"),
        ("::ffff:10.0.0.0/104", "stands for IPv4"),
        ("64:ff9b::a00:0/104", "stands for IPv4"),
    ] {
        let error = text.parse::<AddressRange>().expect_err(text);
        assert!(error.contains(why), "{text}: {error}");
    }
    for text in [
        "10.0.0.0/8",
        "10.1.2.3",
        "10.1.2.3/32",
        "100.64.0.0/10",
        "fc00::/7",
        "fd12::1",
        "0.0.0.0/0",
        "8.8.8.8",
    ] {
        assert!(text.parse::<AddressRange>().is_ok(), "{text}");
    }
}

#[test]
fn o11_v10_the_api_server_is_refused_unless_its_very_address_is_listed() {
    let with = |ranges: &[&str], servers: &[(&str, u16)]| Policy {
        explains: false,
        insecure: true,
        single_tenant: true,
        ranges: ranges.iter().map(|text| range(text)).collect(),
        api_servers: servers.iter().map(|(host, port)| Endpoint::new(host, *port)).collect(),
        trusted: Vec::new(),
    };
    let servers = [("10.96.0.1", 443), ("127.0.0.1", 6443), ("35.1.2.3", 443), ("[2600::5]", 443)];
    let policy = with(&["10.0.0.0/8"], &servers);
    for url in [
        "https://10.96.0.1/r",
        "https://10.96.0.1:443/r",
        "https://[::ffff:10.96.0.1]/r",
        "https://0x0a600001/r",
        "https://127.0.0.1:6443/r",
        "http://127.1:6443/r",
        "https://35.1.2.3/r",
        "https://[2600::5]/r",
    ] {
        let refused = host(&policy, url).expect_err(url);
        assert!(refused.to_string().ends_with("the API server is there"), "{url}: {refused}");
        assert!(refused.hint().contains("--allow-addresses"), "{url}");
    }
    // Other ports of the machine are other servers.
    for url in ["https://127.0.0.1:3000/r", "https://35.1.2.3:8443/r", "https://10.96.0.2/r"] {
        assert_eq!(host(&policy, url), Ok(()), "{url}");
    }
    let listed = with(&["10.0.0.0/8", "10.96.0.1", "35.1.2.3/32"], &servers);
    assert_eq!(host(&listed, "https://10.96.0.1/r"), Ok(()));
    assert_eq!(host(&listed, "https://35.1.2.3/r"), Ok(()));
}

#[test]
fn o11_v10_what_is_never_dialled_is_not_trusted_either() {
    let trusted = |host: &str| Policy {
        trusted: vec![Endpoint::new(host, 443)],
        api_servers: vec![Endpoint::new("10.96.0.1", 443)],
        ..Policy::default()
    };
    for (ip, is_reached) in [
        ("10.0.0.1", true),
        ("127.0.0.1", true),
        ("100.64.0.1", true),
        ("[fd12::1]", true),
        ("169.254.169.254", false),
        ("100.100.100.200", false),
        ("0.0.0.0", false),
        ("10.96.0.1", false),
    ] {
        let url = format!("https://{ip}/v2/");
        assert_eq!(host(&trusted(ip), &url).is_ok(), is_reached, "{ip}");
        assert!(host(&trusted("registry.test"), &url).is_err(), "{ip}");
    }
    assert!(host(&trusted("localhost"), "https://localhost/").is_ok());
    assert!(host(&trusted("localhost"), "https://localhost:5000/").is_err());
}

#[test]
fn o11_a_refusal_tells_what_to_do_and_no_more_than_the_url() {
    let policy = Policy { api_servers: vec![Endpoint::new("10.96.0.1", 443)], ..Policy::default() };
    for (url, words, hint) in [
        (
            "https://10.0.0.1:8443/r",
            "10.0.0.1 may not be dialled: its address is private",
            "--allow-addresses",
        ),
        (
            "https://100.64.0.1/r",
            "100.64.0.1 may not be dialled: its address is not public",
            "--allow-addresses",
        ),
        (
            "https://localhost/r",
            "localhost may not be dialled: its address is loopback",
            "--allow-insecure-git",
        ),
        (
            "https://168.63.129.16/r",
            "168.63.129.16 may not be dialled: its address is that of a cloud's metadata service",
            "never",
        ),
        // Behind a refused class nothing tells where the API server is.
        (
            "https://10.96.0.1/r",
            "10.96.0.1 may not be dialled: its address is private",
            "--allow-addresses",
        ),
    ] {
        let refused = host(&policy, url).expect_err(url);
        assert_eq!(refused.to_string(), words);
        assert!(refused.hint().contains(hint), "{url}: {}", refused.hint());
    }
}
