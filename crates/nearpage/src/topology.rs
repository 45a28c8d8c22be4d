//! topology (to be written)
