//! Lines about the allocator of a process, from the document that it serves.

use nearpage_machine::size;
use nearpage_watch::ProcessTree;
use serde_json::Value;

/// Caches that are listed.
const CACHES_MOST: usize = 200;

/// Zones and pagesets are in the other panes; these are its limits, where pages came from, and its caches.
pub(super) fn lines(tree: &ProcessTree) -> Vec<String> {
    let document = match tree.file("nearpage/memory.json") {
        Ok(Some(text)) => serde_json::from_slice(&text).unwrap_or(Value::Null),
        Ok(None) => return vec!["it does not tell".into()],
        Err(error) => return vec![error.to_string()],
    };
    let mut lines = of_document(&document);
    if let Ok(Some(text)) = tree.file("proc/slabinfo") {
        lines.push("caches of objects (as in /proc/slabinfo):".into());
        let text = String::from_utf8_lossy(&text);
        let caches = text.lines().filter(|line| !line.starts_with("slabinfo"));
        lines.extend(caches.take(CACHES_MOST).map(|line| {
            let line = line.split(" : ").next().unwrap_or(line);
            format!("  {line}")
        }));
    }
    lines
}

fn of_document(document: &Value) -> Vec<String> {
    let text = |key: &str| document[key].as_str().unwrap_or("-").to_owned();
    let number = |value: &Value| value.as_u64().map_or("-".into(), |number| number.to_string());
    let bytes = |value: &Value| value.as_u64().map_or("none".into(), size::format);
    let limits = |of: &Value| {
        format!("hard {}, soft {}", bytes(&of["hard_bytes"]), bytes(&of["soft_bytes"]))
    };
    let mut lines = vec![
        format!("{} ({}), nearpage {}", text("program"), number(&document["pid"]), text("version")),
        format!("storage {}, binding {}", text("storage"), text("binding")),
        format!(
            "in use: {} pages; limits: {}",
            number(&document["in_use_pages"]),
            limits(&document["limits"])
        ),
        format!(
            "wrong frees: {}; panics in callbacks: {}",
            number(&document["misuses"]),
            number(&document["pressure_panics"])
        ),
    ];
    let strings = document["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
    lines.extend(strings.map(|warning| format!("warning: {warning}")));
    for node in document["nodes"].as_array().into_iter().flatten() {
        lines.push(format!(
            "node {}: in use {} pages, free {} of {}; limits: {}",
            number(&node["node"]),
            number(&node["in_use_pages"]),
            number(&node["free_pages"]),
            number(&node["managed_pages"]),
            limits(&node["limits"])
        ));
        for fallback in node["fallbacks"].as_array().into_iter().flatten() {
            let reasons = fallback["pages_by_reason"].as_object().into_iter().flatten();
            let reasons: Vec<String> =
                reasons.map(|(reason, pages)| format!("{} {reason}", number(pages))).collect();
            lines.push(format!(
                "  pages that were wanted here and came from node {}: {}",
                number(&fallback["to"]),
                reasons.join(", ")
            ));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_of_any_kind_are_told() {
        let document = serde_json::json!({
            "program": "pool", "pid": 7, "version": "0.1.0", "storage": "rseq", "in_use_pages": 12,
            "limits": {"hard_bytes": 1 << 30}, "warnings": ["few pages"],
            "nodes": [{"node": 1, "in_use_pages": 12, "free_pages": 4, "managed_pages": 16,
                "fallbacks": [{"to": 0, "pages_by_reason": {"watermark": 3}}]}],
        });
        let lines = of_document(&document).join("\n");
        for part in [
            "pool (7), nearpage 0.1.0",
            "hard 1 GiB, soft none",
            "warning: few pages",
            "node 1: in use 12 pages, free 4 of 16",
            "came from node 0: 3 watermark",
        ] {
            assert!(lines.contains(part), "{part}: {lines}");
        }
        assert!(of_document(&Value::Null)[0].starts_with("- (-)"));
    }
}
