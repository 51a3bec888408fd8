//! Rows for people and for programs.

pub mod chart;
pub mod json;
pub mod progress;
mod svg;
pub mod table;

use std::fs;
use std::path::Path;

/// Writes a report; an error names the file.
pub fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|error| format!("{} cannot be written: {error}", file.display()))
}
