//! Sizes of pagesets.
