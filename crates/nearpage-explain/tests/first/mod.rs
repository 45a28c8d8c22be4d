//! What is said of the first report of a log.

use nearpage_explain::{Explanation, Reader};

pub fn explained(log: &str) -> Explanation {
    Explanation::of(Reader::new(log.as_bytes()).next().unwrap().unwrap())
}
