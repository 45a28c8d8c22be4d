//! How few holds of a zone's lock a pageset needs at best: the offline optimum that rules are compared with.

mod fewest;

pub use fewest::{Limits, Step, fewest_holds, least_kept};
