//! Rows for programs.

use std::fs;
use std::path::Path;

use crate::row::Row;

/// An array of rows, one on each line.
pub fn json(rows: &[Row]) -> String {
    let lines: Vec<_> = rows.iter().map(|row| format!("  {}", line(row))).collect();
    format!("[\n{}\n]\n", lines.join(",\n"))
}

/// Reads such an array back.
pub fn read(file: &Path) -> Result<Vec<Row>, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let unlike = |error| format!("{} is not what --json writes: {error}", file.display());
    serde_json::from_str(&text).map_err(unlike)
}

fn line(row: &Row) -> serde_json::Value {
    let mut value = serde_json::json!(row);
    if let Some(fields) = value.as_object_mut() {
        fields.values_mut().for_each(shorten);
    }
    value
}

/// Four digits say all there is to know.
fn shorten(value: &mut serde_json::Value) {
    if let Some(number) = value.as_f64().filter(|number| number.fract() != 0.0) {
        let digits = 3 - (number.abs().log10().floor() as i32).clamp(-3, 3);
        let scale = 10f64.powi(digits);
        *value = serde_json::json!((number * scale).round() / scale);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_exactly_these_fields() {
        let row = Row {
            scenario: "uncontended".into(),
            contestant: "floor".into(),
            nodes: 5,
            concurrency: 64,
            cycles_per_s: Some(34567.891),
            p50_us: Some(0.123456),
            p99_us: Some(f64::NAN),
            ..Row::default()
        };
        assert_eq!(
            json(std::slice::from_ref(&row)),
            "[\n  {\"scenario\":\"uncontended\",\"contestant\":\"floor\",\"nodes\":5,\
             \"concurrency\":64,\"cycles_per_s\":34568.0,\"ratio_to_floor\":null,\
             \"p50_us\":0.1235,\"p99_us\":null,\"p999_us\":null,\"client_cpu_us\":null,\
             \"server_cpu_us\":null,\"commands_per_cycle\":null,\"jain\":null,\
             \"split_votes\":null}\n]\n"
        );
        let read: Vec<Row> = serde_json::from_str(&json(&[row])).unwrap();
        assert_eq!(read[0].cycles_per_s, Some(34568.0));
    }
}
