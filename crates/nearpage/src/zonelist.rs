//! zonelist (to be written)
