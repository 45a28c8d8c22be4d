//! Tuning of pagesets.
