//! Linux's rules: a buddy under the zone's lock, and pagesets that are filled and drained as their tuning says. Which Linux is
//! data: [`Model`](crate::model::Model).

mod drain;
mod owned;
mod pages;
mod pageset;
mod refill;
mod zone;
