//! Logging: structured lines to stderr.
