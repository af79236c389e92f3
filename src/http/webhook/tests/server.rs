use std::time::Instant;

use convoke_core::cluster::store::Key;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::delivery::tests::hex;
use super::super::delivery::{Follows, Provider, Token};
use super::super::hooks::{Hook, Signal};
use super::*;

const PATH: &str = "/hook/0123456789abcdef0123456789abcdef";
const PUSH: &str = r#"{"ref": "refs/heads/main"}"#;
const SOON: Duration = Duration::from_secs(20);

/// A running server with one webhook, whose token is `right`, and how often it has woken its GitSync.
struct Server {
    address: SocketAddr,
    woken: Arc<Mutex<usize>>,
}

async fn server() -> Server {
    let woken: Arc<Mutex<usize>> = Arc::default();
    let count = woken.clone();
    let hooks = Hooks::new(Arc::new(move |_, signal| {
        *count.lock() += usize::from(*signal == Signal::Wake);
    }));
    let (key, provider, follows) = (Key::new("team", "main"), Provider::GitHub, Follows::of(None));
    hooks.put(PATH, Hook { key, provider, follows, suspended: false });
    hooks.set_token(PATH, Some(Token::new(b"right").expect("a token")));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    tokio::spawn(serve_on(listener, Arc::new(hooks)));
    Server { address, woken }
}

/// The bytes of a request with a body.
fn request(path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{headers}\r\n{body}")
}

/// The header that signs a body.
fn signature(token: &str, body: &str) -> String {
    format!("X-Hub-Signature-256: sha256={}\r\n", hex(token.as_bytes(), body.as_bytes()))
}

impl Server {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("connect")
    }

    /// Sends bytes, and gives the whole answer, without its date.
    async fn send(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        let _ = stream.write_all(bytes).await;
        answer(&mut stream).await
    }

    /// A delivery that wakes is answered.
    async fn still_answers(&self) {
        let sent = request(PATH, &signature("right", PUSH), PUSH);
        let answer = self.send(sent.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
    }
}

/// The head and the body of an answer, without its date.
async fn answer(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    let read = async {
        let mut buffer = [0; 1024];
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            all.extend_from_slice(&buffer[..count]);
            let text = String::from_utf8_lossy(&all);
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if length.is_some_and(|length| length.parse() == Ok(body.len())) {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(SOON, read).await;
    let text = String::from_utf8_lossy(&all);
    let lines = text.lines().filter(|line| !line.starts_with("date: "));
    lines.collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn g5_a_delivery_is_answered_and_wakes_and_other_methods_are_not_allowed() {
    let server = server().await;
    server.still_answers().await;
    assert_eq!(*server.woken.lock(), 1);
    for method in ["GET", "PUT", "HEAD", "DELETE"] {
        let sent = format!("{method} {PATH} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let answer = server.send(sent.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("allow: POST"), "{answer}");
    }
    // In parts, over a connection that is used again.
    let mut stream = server.connect().await;
    let signed = signature("right", PUSH);
    let head =
        format!("POST {PATH} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n{signed}\r\n");
    for _ in 0..3 {
        stream.write_all(head.as_bytes()).await.expect("send");
        for byte in PUSH.chars() {
            stream.write_all(format!("1\r\n{byte}\r\n").as_bytes()).await.expect("send");
        }
        stream.write_all(b"0\r\n\r\n").await.expect("send");
        let answer = answer(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn v57_v64_a_wrong_signature_and_an_unknown_path_get_the_same_answer() {
    let server = server().await;
    let mut answers = Vec::new();
    for (path, token, body) in [
        (PATH, "wrong", PUSH),
        (PATH, "wrong", "{"),
        (PATH, "", PUSH),
        ("/hook/ffffffffffffffffffffffffffffffff", "right", PUSH),
        ("/hook/ffffffffffffffffffffffffffffffff", "wrong", "{"),
        ("/", "right", PUSH),
    ] {
        answers.push(server.send(request(path, &signature(token, body), body).as_bytes()).await);
    }
    answers.push(server.send(request(PATH, "", PUSH).as_bytes()).await);
    answers.push(server.send(request("/hook/f", "", PUSH).as_bytes()).await);
    assert!(answers[0].starts_with("HTTP/1.1 401 "), "{}", answers[0]);
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:#?}");
    assert_eq!(*server.woken.lock(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn v59_more_than_a_mebibyte_is_refused_while_it_is_read_signed_or_not() {
    let server = server().await;
    let most = body::MOST_BODY_BYTES;
    let fits = format!("{{\"a\": \"{}\"}}", "a".repeat(most - 9));
    assert_eq!(fits.len(), most);
    let answer_of = async |bytes: String| server.send(bytes.as_bytes()).await;
    let answer = answer_of(request(PATH, &signature("right", &fits), &fits)).await;
    assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
    let large = format!("{fits} ");
    for signed in [signature("right", &large), String::new()] {
        let answer = answer_of(request(PATH, &signed, &large)).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
        // Its length alone is enough.
        let stated = format!(
            "POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n{signed}\r\n"
        );
        let answer = answer_of(stated).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
        // Without a length, it is read no further than the limit.
        let head = format!(
            "POST {PATH} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n{signed}\r\n"
        );
        let chunk = format!("8000\r\n{}\r\n", "a".repeat(0x8000));
        let mut stream = server.connect().await;
        stream.write_all(head.as_bytes()).await.expect("send");
        for _ in 0..=most / 0x8000 {
            let _ = stream.write_all(chunk.as_bytes()).await;
        }
        let answer = super::tests::answer(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    }
    let answer = answer_of(request("/", "", &large)).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "an unknown path, too: {answer}");
    server.still_answers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v61_slow_headers_and_endless_bodies_end_by_themselves() {
    let server = server().await;
    let began = Instant::now();
    // A header that never ends; one that is too large; a body that never ends.
    let mut headers = server.connect().await;
    headers.write_all(b"POST / HTTP/1.1\r\nX-A: b\r\n").await.expect("send");
    let large = format!("POST / HTTP/1.1\r\nX-A: {}\r\n\r\n", "a".repeat(64 * 1024));
    let large = server.send(large.as_bytes()).await;
    assert!(large.starts_with("HTTP/1.1 431 ") || large.is_empty(), "{large}");
    let mut body = server.connect().await;
    let head = format!("POST {PATH} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    body.write_all(head.as_bytes()).await.expect("send");
    let (mut reading, mut writing) = body.into_split();
    let trickle = tokio::spawn(async move {
        while writing.write_all(b"1\r\na\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    server.still_answers().await;
    let mut told = Vec::new();
    let all = tokio::time::timeout(SOON, reading.read_to_end(&mut told)).await;
    assert!(all.is_ok(), "it ends");
    assert!(String::from_utf8_lossy(&told).starts_with("HTTP/1.1 408 "), "{told:?}");
    let mut nothing = Vec::new();
    let ended = tokio::time::timeout(SOON, headers.read_to_end(&mut nothing)).await;
    assert!(ended.is_ok(), "it ends");
    assert!(began.elapsed() < 2 * SOON);
    trickle.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn v61_connections_that_do_nothing_keep_nobody_out_and_packed_bodies_stay_packed() {
    let server = server().await;
    let mut idle = Vec::new();
    for number in 0..300 {
        let mut stream = server.connect().await;
        if number % 2 == 0 {
            let _ = stream.write_all(b"POST / HTTP/1.1\r\n").await;
        }
        idle.push(stream);
    }
    let began = Instant::now();
    for _ in 0..10 {
        server.still_answers().await;
    }
    assert!(began.elapsed() < HEADER_DEADLINE, "nobody waits for those to end");
    // The oldest had to give way.
    let mut byte = [0];
    let gone = tokio::time::timeout(SOON, idle[0].read(&mut byte)).await.expect("it ends");
    assert!(matches!(gone, Ok(0) | Err(_)));
    // gzip of "{}": nothing unpacks it.
    let packed = "\u{1f}packed";
    let headers = format!("Content-Encoding: gzip\r\n{}", signature("right", packed));
    let answer = server.send(request(PATH, &headers, packed).as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn v61_many_large_bodies_at_once_are_refused_and_small_ones_come_through_after_them() {
    let server = server().await;
    let head = format!("POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n");
    let part = "a".repeat(700 * 1024);
    let mut streams = Vec::new();
    for _ in 0..64 {
        let mut stream = server.connect().await;
        stream.write_all(head.as_bytes()).await.expect("send");
        let _ = stream.write_all(part.as_bytes()).await;
        streams.push(stream);
    }
    let mut busy = 0;
    for stream in &mut streams {
        busy += usize::from(answer(stream).await.starts_with("HTTP/1.1 503 "));
    }
    assert!((16..=40).contains(&busy), "{busy} of 64: 32 MiB are for all of them");
    server.still_answers().await;
}
