//! Figures as comma-separated values.

use crate::lab::report::Report;

/// One line a figure, after a line of headings.
pub(super) fn reports(reports: &[Report]) -> String {
    let mut text = String::from("scenario,row,column,reference,model,verdict\n");
    for report in reports {
        for row in &report.rows {
            let fields = [
                quoted(&report.name),
                quoted(&row.row),
                quoted(&row.column),
                row.reference.to_string(),
                row.model.to_string(),
                row.verdict.name().to_owned(),
            ];
            text += &fields.join(",");
            text.push('\n');
        }
    }
    text
}

fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}
