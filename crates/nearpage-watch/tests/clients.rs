//! A server and clients that mean no good: whoever asks properly is answered all the same.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nearpage_watch::{Limits, Server};

struct Served {
    address: SocketAddr,
    stops: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    fn with(limits: Limits, page: String) -> Served {
        let (stops, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = thread::spawn({
            let (stops, written) = (stops.clone(), written.clone());
            move || {
                let mut server = Server::bind(([127, 0, 0, 1], 0).into(), limits).unwrap();
                sender.send(server.address().unwrap()).unwrap();
                let write = |text: &mut String| {
                    written.fetch_add(1, Ordering::Relaxed);
                    text.push_str(&page);
                };
                server.serve(&stops, write).unwrap();
            }
        });
        Served { address: receiver.recv().unwrap(), stops, written, thread: Some(thread) }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream
    }

    /// The whole answer to a request.
    fn ask(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn scrape(&self) -> String {
        self.ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn quick() -> Limits {
    Limits {
        connections: 32,
        request_time: Duration::from_millis(300),
        response_time: Duration::from_millis(500),
        ..Limits::default()
    }
}

#[test]
fn a_scrape_is_answered_and_nothing_else_is_shown() {
    let served = Served::with(quick(), "a 1\n# EOF\n".into());
    let answer = served.scrape();
    assert!(
        answer.starts_with(
            "HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0"
        ),
        "{answer}"
    );
    assert!(answer.ends_with("\r\n\r\na 1\n# EOF\n"), "{answer}");
    // No turn is waited for: the request is there when the connection is accepted.
    let begin = Instant::now();
    (0..40).for_each(|_| _ = served.scrape());
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    let head = served.ask("HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.contains("Content-Length: 10\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    assert!(served.ask("GET /etc/passwd HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(served.ask("DELETE /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    assert!(served.ask("nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
}

/// 10 000 by `NEARPAGE_CONNECTIONS=10000`, which takes half a minute; CI makes fewer of the same.
fn connections() -> u64 {
    std::env::var("NEARPAGE_CONNECTIONS")
        .ok()
        .and_then(|number| number.parse().ok())
        .unwrap_or(1000)
}

/// A sample costs a read of /proc: who asks a thousand times a second gets the same one.
#[test]
fn many_scrapes_share_a_sample() {
    let served = Served::with(quick(), "# EOF\n".into());
    let begin = Instant::now();
    for _ in 0..200 {
        served.scrape();
    }
    let most = begin.elapsed().as_millis() as u64 / 200 + 1;
    assert!(
        served.written.load(Ordering::Relaxed) <= most,
        "{} samples",
        served.written.load(Ordering::Relaxed)
    );
}

#[test]
fn thousands_of_connections_that_ask_nothing_keep_nobody_out() {
    let served = Served::with(quick(), "# EOF\n".into());
    let mut held = Vec::new();
    for at in 0..connections() {
        held.push(served.connect());
        if held.len() > 200 {
            held.remove(0);
        }
        if at % 250 == 0 {
            assert!(served.scrape().ends_with("# EOF\n"), "after {at}");
        }
    }
    assert!(served.scrape().ends_with("# EOF\n"));
}

#[test]
fn half_requests_and_huge_headers_are_dropped() {
    let served = Served::with(quick(), "# EOF\n".into());
    let mut half = served.connect();
    half.write_all(b"GET /metrics HTTP/1.1\r\nHost: ").unwrap();
    let mut huge = served.connect();
    let mut sent = 0_u64;
    // The server closes long before all of it is sent.
    while sent < 1 << 30 && huge.write_all(&[b'x'; 4096]).is_ok() {
        sent += 4096;
    }
    assert!(sent < 1 << 28, "{sent} bytes of header were taken");
    // A request that is whole and a little too long is none either.
    for bytes in [8 << 10, 9000] {
        let mut long = served.connect();
        let head = "GET /metrics HTTP/1.1\r\nx: ";
        long.write_all(format!("{head}{}\r\n\r\n", "y".repeat(bytes - head.len() - 4)).as_bytes())
            .unwrap();
        let mut answer = Vec::new();
        let _ = long.read_to_end(&mut answer);
        assert_eq!(answer.is_empty(), bytes > 8 << 10, "{bytes} bytes");
    }
    let begin = Instant::now();
    let mut answer = Vec::new();
    let _ = half.read_to_end(&mut answer);
    assert!(answer.is_empty() && begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    // A byte at a time does not win more time.
    let mut slow = served.connect();
    let begin = Instant::now();
    while slow.write_all(b"G").is_ok() && begin.elapsed() < Duration::from_secs(9) {
        thread::sleep(Duration::from_millis(20));
    }
    assert!(begin.elapsed() < Duration::from_secs(8));
    assert!(served.scrape().ends_with("# EOF\n"));
}

/// Who does not read holds a response, not the server; and not for long.
#[test]
fn those_who_do_not_read_are_dropped() {
    let page = "x".repeat(16 << 20);
    let served = Served::with(quick(), page.clone());
    let deaf: Vec<TcpStream> = (0..40)
        .map(|_| {
            let mut stream = served.connect();
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
            stream
        })
        .collect();
    thread::sleep(Duration::from_millis(1200));
    let answer = served.scrape();
    assert!(answer.len() > page.len(), "{}", answer.len());
    for mut stream in deaf {
        let mut taken = Vec::new();
        let _ = stream.read_to_end(&mut taken);
        assert!(taken.len() < page.len(), "it was dropped before it had all");
    }
}
