use super::*;

fn digits(digit: &str, length: usize) -> String {
    digit.repeat(length)
}

fn written(text: &str) -> Result<Vec<String>, String> {
    read(text)
        .map(|all| all.iter().map(ToString::to_string).collect())
        .map_err(|error| error.to_string())
}

#[test]
fn b11_what_tools_lock_is_written_anew_for_pip() {
    let (a, b) = (digits("a", 64), digits("b", 128));
    // As pip-compile, uv and poetry write it.
    let lock = format!(
        "\u{feff}#\n# made by a tool\n#\nHTTPX[http2, socks]==0.28.1 \\\n    --hash=sha256:{} \\\n    --hash=sha512:{b}\n    # via -r requirements.in\n\nanyio==4.0.0 ; python_version >= '3.9' and sys_platform != \"win32\" --hash=sha256:{a}  # by httpx\r\nlocal==1!2.0.post1+cpu --hash=sha256:{a}",
        a.to_uppercase()
    );
    assert_eq!(
        written(&lock).expect("packages"),
        [
            format!("HTTPX[http2, socks]==0.28.1 --hash=sha256:{a} --hash=sha512:{b}"),
            format!(
                "anyio==4.0.0 ; python_version >= '3.9' and sys_platform != \"win32\" --hash=sha256:{a}"
            ),
            format!("local==1!2.0.post1+cpu --hash=sha256:{a}"),
        ]
    );
}

#[test]
fn b11_what_pip_would_do_beyond_a_lock_is_refused() {
    let hash = format!("--hash=sha256:{}", digits("a", 64));
    for (entry, why) in [
        ("a==1", "line 1: \"a==1\" has no --hash: each package needs its hashes"),
        ("a", "line 1: \"a\" has no version: write NAME==VERSION"),
        ("a>=1 HASH", "line 1: \"a>=1\" has no version"),
        ("a==1.* HASH", "\"1.*\" is not one version"),
        ("a===1 HASH", "\"=1\" is not one version"),
        ("a==1,<2 HASH", "\"1,<2\" is not one version"),
        ("a== HASH", "\"\" is not one version"),
        ("a b==1 HASH", "\"a b\" is no name of a package"),
        ("./a==1 HASH", "\"./a\" is no name of a package"),
        ("a[==1 HASH", "is no name of a package"),
        ("a[x,]==1 HASH", "is no name of a package"),
        ("a @ https://x.example/a.whl HASH", "names an address: packages come from the index"),
        ("git+https://x.example/a==1 HASH", "names an address"),
        ("a==1 ; python_version > '3' and ${HOME} HASH", "is no marker"),
        ("a==1 ; HASH", "\"\" is no marker"),
        ("a==1 HASH --config-settings=x", "\"--config-settings=x\" is not taken"),
        ("a==1 HASH --hash", "\"--hash\" is not taken"),
        ("a==1 HASH b==1", "\"b==1\" is not taken"),
        ("a==1 HASH \\\nb==1 HASH", "line 1: \"b==1\" is not taken"),
        ("a==1 --hash=md5:00112233445566778899aabbccddeeff", "is no hash of sha256"),
        ("a==1 --hash=sha256:00", "is no hash of sha256"),
        ("\n\n--index-url https://x.example/simple", "line 3: the option \"--index-url\" is not"),
        ("-i https://x.example/simple", "the option \"-i\" is not taken"),
        ("--no-binary=:all:\na==1 HASH", "line 1: the option \"--no-binary\" is not taken"),
        ("-r /etc/passwd", "the option \"-r\" is not taken"),
        ("-e .", "the option \"-e\" is not taken"),
        ("\\\n--pre\\\n", "line 1: the option \"--pre\" is not taken"),
        ("", "it names no package"),
        ("# nothing\n\n", "it names no package"),
    ] {
        let error = written(&entry.replace("HASH", &hash)).expect_err(entry);
        assert!(error.contains(why), "{entry}: {error}");
    }
    let many = format!("a==1 {hash}\n").repeat(MAX_PACKAGES + 1);
    assert_eq!(written(&many), Err("it has more than 5000 packages".into()));
    let hashes = format!("a==1 {}", format!("{hash} ").repeat(MAX_HASHES + 1));
    assert_eq!(written(&hashes), Err("line 1: \"a==1\" has more than 500 hashes".into()));
}
