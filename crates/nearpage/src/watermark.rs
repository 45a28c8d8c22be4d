//! watermark (to be written)
