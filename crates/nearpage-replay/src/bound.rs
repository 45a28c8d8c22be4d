//! How few holds of a zone's lock pagesets need at best: the offline optimum that rules are compared with.

mod asked;
mod fewest;
#[cfg(test)]
mod naive;

pub(crate) use asked::Asked;
pub use asked::{Class, Fewest};
pub use fewest::{FewestHolds, Limits, Step, fewest_holds, least_kept};
