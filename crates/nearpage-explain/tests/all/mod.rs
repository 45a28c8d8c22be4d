//! What is said of all reports of a log.

use nearpage_explain::{Explanation, Reader};

pub fn explained(log: &str) -> Vec<Explanation> {
    Reader::new(log.as_bytes()).map(|report| Explanation::of(report.unwrap())).collect()
}
