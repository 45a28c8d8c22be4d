//! The nearpage command line as a library.
