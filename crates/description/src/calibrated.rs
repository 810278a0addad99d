//! Measurements of a calibration that no part of the simulation uses.

use serde::{Deserialize, Serialize};

/// Measurements of `pagewalk calibrate` that runs do not need. With these measurements, `pagewalk
/// calibrate --judge` turns the counts of a run into ranges of time.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Calibrated {
    /// The clock frequency in GHz.
    pub ghz: f64,
    /// The largest number of page-table walks that can overlap; absent: not measured,
    /// `core.misses_in_flight` is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub walks_in_flight: Option<f64>,
    /// Cycles of a page fault that fills a page of 4K, and of unmapping this page at the end. The
    /// first number is for faults that immediately follow each other. The second is for a program
    /// whose cache contents and branch predictions are replaced by those of the kernel. Absent: not
    /// measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault_4k_cycles: Option<[f64; 2]>,
    /// Cycles of a page fault that fills a page of 2M, zeroing included, and of unmapping this page;
    /// absent: not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault_2m_cycles: Option<f64>,
    /// The largest relative error of the fit, over the measured times to which the machine file was
    /// fitted.
    pub time_error: f64,
    /// How much a measured gain of larger pages can differ from the predicted gain, as shares of
    /// the time with base pages: the first number is the most negative difference, the second the
    /// largest positive one.
    pub gain_errors: [f64; 2],
    /// Where the numbers of this table come from.
    pub source: String,
}
