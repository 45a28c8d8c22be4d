//! Metrics over HTTP, in one thread and bounded memory, whatever clients do.
//!
//! Each connection has one request and one response, and is closed. Who does not send a request in time, sends too much,
//! or does not read the response is dropped. Where there are more connections than the limit, a new one displaces the
//! oldest that still owes its request: who asks at once is always served.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// What a server allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Connections at once.
    pub connections: usize,
    /// Bytes of a request with its headers.
    pub request_bytes: usize,
    /// Time for a request to arrive.
    pub request_time: Duration,
    /// Time for a response to be read.
    pub response_time: Duration,
    /// Who asks again sooner gets the same sample.
    pub sample_age: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 128,
            request_bytes: 8 << 10,
            request_time: Duration::from_secs(5),
            response_time: Duration::from_secs(15),
            sample_age: Duration::from_millis(200),
        }
    }
}

/// Why a server does not serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Nobody can be listened for there.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// Waiting failed.
    #[error("waiting for clients: {0}")]
    Wait(#[source] io::Error),
}

/// A server of metrics.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    limits: Limits,
    connections: VecDeque<Connection>,
    /// The last exposition, and when it was made.
    page: Option<(Rc<[u8]>, Instant)>,
    text: String,
    /// After an error of accept, such as too many open files, nobody is accepted until then.
    rests_until: Option<Instant>,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    /// Head and body, and how much of both is sent.
    response: Option<(Vec<u8>, Rc<[u8]>, usize)>,
    deadline: Instant,
}

const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// How long nobody is accepted after an error.
const REST: Duration = Duration::from_millis(100);
/// How soon a server sees that it should stop.
const TURN: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };

impl Server {
    /// Listens on an address. Port 0 takes any that is free.
    ///
    /// # Errors
    ///
    /// [`ServeError::Listen`]: the address is not of this machine, or taken.
    pub fn bind(address: SocketAddr, limits: Limits) -> Result<Server, ServeError> {
        let listen = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listener = listen().map_err(|source| ServeError::Listen { address, source })?;
        let connections = VecDeque::new();
        Ok(Server {
            listener,
            limits,
            connections,
            page: None,
            text: String::new(),
            rests_until: None,
        })
    }

    /// The address that it listens on.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stops` is set. `write` writes the exposition of a sample as it is now.
    ///
    /// # Errors
    ///
    /// [`ServeError::Wait`]: the system cannot wait for clients. No client can cause it.
    pub fn serve(
        &mut self,
        stops: &AtomicBool,
        mut write: impl FnMut(&mut String),
    ) -> Result<(), ServeError> {
        while !stops.load(Ordering::Relaxed) {
            let ready = self.wait().map_err(ServeError::Wait)?;
            let now = Instant::now();
            for (connection, is_ready) in self.connections.iter_mut().zip(&ready[1..]) {
                if *is_ready && !connection.advance(&self.limits) {
                    connection.deadline = now;
                }
            }
            if ready[0] {
                self.accept(now);
            }
            // Also those whose request came with the connection: nothing would wake the next turn for them.
            self.answer(&mut write);
            self.connections.retain(|connection| connection.deadline > now);
        }
        Ok(())
    }

    /// Who is ready: the listener, then each connection.
    fn wait(&mut self) -> io::Result<Vec<bool>> {
        let rests = self.rests_until.is_some_and(|until| until > Instant::now());
        let listens = if rests { PollFlags::empty() } else { PollFlags::IN };
        let mut waits = vec![PollFd::new(&self.listener, listens)];
        waits.extend(self.connections.iter().map(|connection| {
            let flags = if connection.response.is_some() { PollFlags::OUT } else { PollFlags::IN };
            PollFd::new(&connection.stream, flags)
        }));
        match poll(&mut waits, Some(&TURN)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(waits.iter().map(|wait| !wait.revents().is_empty()).collect())
    }

    fn accept(&mut self, now: Instant) {
        // A turn takes as many as may be connected: no client keeps others from their turn.
        for _ in 0..self.limits.connections {
            match self.listener.accept() {
                Ok((stream, _)) => self.admit(stream, now),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    self.rests_until = Some(now + REST);
                    return;
                }
            }
        }
    }

    fn admit(&mut self, stream: TcpStream, now: Instant) {
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        if self.connections.len() >= self.limits.connections {
            // All are being answered: the new one is who waits.
            let Some(oldest) =
                self.connections.iter().position(|connection| connection.response.is_none())
            else {
                return;
            };
            self.connections.remove(oldest);
        }
        let deadline = now + self.limits.request_time;
        let mut connection = Connection { stream, request: Vec::new(), response: None, deadline };
        // The request is often there already.
        if connection.advance(&self.limits) {
            self.connections.push_back(connection);
        }
    }

    /// Gives each whole request its response.
    fn answer(&mut self, write: &mut impl FnMut(&mut String)) {
        for at in 0..self.connections.len() {
            let connection = &self.connections[at];
            if !connection.is_whole() {
                continue;
            }
            // A browser that a name was rebound for says that name: a loopback server answers to its own alone.
            let is_loopback = connection
                .stream
                .local_addr()
                .is_ok_and(|own| own.ip().to_canonical().is_loopback());
            let request = match is_loopback && !is_own_host(&connection.request) {
                true => Request::Other("403 Forbidden"),
                false => Request::parse(&connection.request),
            };
            let (status, body) = match request {
                Request::Metrics { .. } => ("200 OK", self.page(write)),
                Request::Other(status) => (status, Rc::from(format!("{status}\n").into_bytes())),
            };
            let kind = if matches!(request, Request::Metrics { .. }) { TYPE } else { "text/plain" };
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let body = if matches!(request, Request::Metrics { wants_body: false }) {
                Rc::from([])
            } else {
                body
            };
            let connection = &mut self.connections[at];
            connection.request = Vec::new();
            connection.response = Some((head.into_bytes(), body, 0));
            let now = Instant::now();
            connection.deadline = now + self.limits.response_time;
            if !connection.advance(&self.limits) {
                connection.deadline = now - Duration::from_nanos(1);
            }
        }
    }

    fn page(&mut self, write: &mut impl FnMut(&mut String)) -> Rc<[u8]> {
        if let Some((page, made)) = &self.page
            && made.elapsed() < self.limits.sample_age
        {
            return Rc::clone(page);
        }
        self.text.clear();
        write(&mut self.text);
        let page: Rc<[u8]> = Rc::from(self.text.as_bytes());
        self.page = Some((Rc::clone(&page), Instant::now()));
        page
    }
}

impl Connection {
    fn is_whole(&self) -> bool {
        self.response.is_none() && self.request.windows(4).any(|window| window == b"\r\n\r\n")
            || self.response.is_none() && self.request.windows(2).any(|window| window == b"\n\n")
    }

    /// Reads or writes what can be; false if it is over.
    fn advance(&mut self, limits: &Limits) -> bool {
        let result = match &mut self.response {
            None => Self::read(&mut self.stream, &mut self.request, limits),
            Some((head, body, sent)) => Self::send(&mut self.stream, head, body, sent),
        };
        match result {
            Ok(goes_on) => goes_on,
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    fn read(stream: &mut TcpStream, request: &mut Vec<u8>, limits: &Limits) -> io::Result<bool> {
        let mut buffer = [0; 2048];
        loop {
            let length = stream.read(&mut buffer)?;
            request.extend_from_slice(&buffer[..length]);
            if request.len() > limits.request_bytes {
                // No answer, be it whole by now: whoever sends so much would not read one either.
                request.clear();
                return Ok(false);
            }
            if length == 0 {
                return Ok(false);
            }
            if length < buffer.len() {
                return Ok(true);
            }
        }
    }

    fn send(
        stream: &mut TcpStream,
        head: &[u8],
        body: &[u8],
        sent: &mut usize,
    ) -> io::Result<bool> {
        while *sent < head.len() + body.len() {
            let part = head
                .get(*sent..)
                .filter(|part| !part.is_empty())
                .unwrap_or_else(|| &body[*sent - head.len()..]);
            match stream.write(part)? {
                0 => return Ok(false),
                length => *sent += length,
            }
        }
        Ok(false)
    }
}

/// What a client wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Request {
    Metrics { wants_body: bool },
    Other(&'static str),
}

impl Request {
    fn parse(request: &[u8]) -> Request {
        let line = request.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let mut words =
            line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
        let (Some(method), Some(target), Some(version)) =
            (words.next(), words.next(), words.next())
        else {
            return Request::Other("400 Bad Request");
        };
        let path = path_of(target).split(|byte| *byte == b'?').next().unwrap_or_default();
        match (method, path) {
            _ if !version.starts_with(b"HTTP/1.") => Request::Other("400 Bad Request"),
            (b"GET", b"/metrics") => Request::Metrics { wants_body: true },
            (b"HEAD", b"/metrics") => Request::Metrics { wants_body: false },
            (b"GET", _) => Request::Other("404 Not Found"),
            _ => Request::Other("405 Method Not Allowed"),
        }
    }
}

/// Whether the host that a request names is this machine: an address of loopback or `localhost`. A request without a name
/// is from no browser. With several names each must be.
fn is_own_host(request: &[u8]) -> bool {
    const LONGEST: usize = 5;
    let is_own = |host: &[u8]| {
        let host = String::from_utf8_lossy(host.trim_ascii()).to_ascii_lowercase();
        let name = match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => {
                if port.len() > LONGEST || !port.bytes().all(|byte| byte.is_ascii_digit()) {
                    return false;
                }
                name
            }
            _ => &host,
        };
        let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        name == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback())
    };
    let mut hosts = request.split(|byte| *byte == b'\n').filter_map(|line| {
        let (name, host) = line.split_at_checked(5)?;
        name.eq_ignore_ascii_case(b"host:").then_some(host)
    });
    hosts.all(is_own)
}

/// The path of a request's target, which may be a whole URL (RFC 9112, 3.2.2).
fn path_of(target: &[u8]) -> &[u8] {
    const SCHEME: &[u8] = b"http://";
    match target.split_at_checked(SCHEME.len()) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case(SCHEME) => {
            let authority = rest.iter().take_while(|byte| !b"/?".contains(byte)).count();
            &rest[authority..]
        }
        _ => target,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_are_this_machine() {
        let is_own =
            |head: &str| is_own_host(format!("GET /metrics HTTP/1.1\r\n{head}\r\n").as_bytes());
        for head in [
            "",
            "Host: localhost:9400\r\n",
            "HOST: 127.0.0.1:9400\r\n",
            "host:[::1]:9400\r\n",
            "Host: LOCALHOST\r\n",
            "Host: [::1]\r\n",
        ] {
            assert!(is_own(head), "{head}");
        }
        for head in [
            "Host: evil.example:9400\r\n",
            "Host: 127.0.0.1.evil.example\r\n",
            "Host: localhost\r\nHost: evil\r\n",
            "Host: localhost:9400.evil\r\n",
            "Host: 10.0.0.1\r\n",
            "Host:\r\n",
        ] {
            assert!(!is_own(head), "{head}");
        }
    }

    #[test]
    fn requests_and_what_is_none() {
        let whole = Request::Metrics { wants_body: true };
        for request in [
            "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
            "GET /metrics?a=b HTTP/1.0\r\n\r\n",
            "GET HTTP://host:9400/metrics?a=b HTTP/1.1\r\n\r\n",
        ] {
            assert_eq!(Request::parse(request.as_bytes()), whole);
        }
        assert_eq!(
            Request::parse(b"HEAD /metrics HTTP/1.1\r\n\r\n"),
            Request::Metrics { wants_body: false }
        );
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("GET http://host HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
            ("GET /metrics\r\n\r\n", "400 Bad Request"),
            ("\r\n\r\n", "400 Bad Request"),
            ("GET /metrics HTTP/2\r\n\r\n", "400 Bad Request"),
        ] {
            assert_eq!(Request::parse(request.as_bytes()), Request::Other(status), "{request:?}");
        }
    }
}
