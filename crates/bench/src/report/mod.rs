//! Reports: tables for a terminal, CSV, and one self-contained HTML page, about results, packages and probed features. Every report is a pure
//! function of its arguments.

mod box_plot;
mod comparison;
mod conclusions;
mod csv;
mod html;
mod losses;
mod packages;
mod paper;
mod ranking;
mod tables;

pub use comparison::comparison;
pub use conclusions::conclusions;
pub use csv::csv;
pub use html::html;
pub use losses::losses;
pub use packages::packages;
pub use paper::compared_with_paper;
pub use ranking::{Ranking, RankingError, ranks};
pub use tables::{costs, failures, peaks, rates};
