//! Figures as comma-separated values.

use nearpage_lab::report::Report;

/// A line a figure, after a line of headings: rows of tables, then what must hold, then counts.
pub(super) fn reports(reports: &[Report]) -> String {
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

fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearpage_lab::report::Tolerance;

    #[test]
    fn all_figures_have_a_line_of_six_fields() {
        let mut report = Report::new("a", "");
        report.row("r, \"1\"", "c", 2.0, 3.0, Tolerance::Absolute(0.5));
        report.hold("h", 1.5, false);
        report.count("n", 7.0);
        let expected = "scenario,row,column,reference,model,verdict\na,\"r, \"\"1\"\"\",c,2,3,off by\na,h,,,1.5,fails\na,n,,,7,count\n";
        assert_eq!(reports(&[report]), expected);
    }
}
