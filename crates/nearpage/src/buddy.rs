//! buddy (to be written)
