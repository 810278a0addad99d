//! What timing saw of a machine and no model here reads.

use serde::{Deserialize, Serialize};

/// What `pagewalk calibrate` knows beyond what a run needs: with it `pagewalk calibrate --judge`
/// makes ranges of time out of a run's counts.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Calibrated {
    /// The clock, in GHz.
    pub ghz: f64,
    /// How many walks overlap at most; absent: not seen, taken as for misses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub walks_in_flight: Option<f64>,
    /// The largest error of the times that the file was fitted to, as a share of such a time.
    pub time_error: f64,
    /// By how much the gains of larger pages that were timed lie below and above those of the
    /// fit, as shares of the time with base pages.
    pub gain_errors: [f64; 2],
    /// Where the numbers come from.
    pub source: String,
}
