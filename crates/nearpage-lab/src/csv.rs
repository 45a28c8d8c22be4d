//! Figures as comma-separated values.

use nearpage_machine::escaped;

use crate::report::Report;

/// All figures of reports as comma-separated values: `scenario,row,column,reference,model,verdict`.
///
/// After the headings each report has its rows; then what must hold, with an empty column and reference, the value as
/// model, and `holds` or `fails` as verdict; then its counts, with `count` as verdict.
pub fn csv(reports: &[Report]) -> String {
    let mut text = String::from("scenario,row,column,reference,model,verdict\n");
    for report in reports {
        let mut line =
            |row: &str, column: &str, reference: Option<f64>, model: f64, verdict: &str| {
                let fields = [
                    quoted(&report.name),
                    quoted(row),
                    quoted(column),
                    reference.map_or(String::new(), |figure| figure.to_string()),
                    model.to_string(),
                    verdict.to_owned(),
                ];
                text += &fields.join(",");
                text.push('\n');
            };
        for row in &report.rows {
            line(&row.row, &row.column, Some(row.reference), row.model, row.verdict.name());
        }
        for hold in &report.holds {
            line(&hold.what, "", None, hold.value, if hold.ok { "holds" } else { "fails" });
        }
        for (name, count) in &report.counts {
            line(name, "", None, *count, "count");
        }
    }
    text
}

/// A field. Spreadsheets take one that begins like a formula for one, wherever the text came from: such a one gets an
/// apostrophe before it. What would command a terminal is escaped.
fn quoted(field: &str) -> String {
    let mut field = escaped(field).into_owned();
    if field.starts_with(['=', '+', '-', '@', '\t']) {
        field.insert(0, '\'');
    }
    if field.contains([',', '"', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Tolerance;

    #[test]
    fn all_figures_have_a_line_of_six_fields() {
        let mut report = Report::new("a", "");
        report.row("r, \"1\"", "c", 2.0, 3.0, Tolerance::Absolute(0.5));
        report.hold("h", 1.5, false);
        report.count("n", 7.0);
        report.count("=1+1, \u{1b}[0m", 7.0);
        let expected = "scenario,row,column,reference,model,verdict\na,\"r, \"\"1\"\"\",c,2,3,off by\na,h,,,1.5,fails\na,\"'=1+1, \\u001b[0m\",,,7,count\na,n,,,7,count\n";
        assert_eq!(csv(&[report]), expected);
    }
}
