//! HTTP: all routes as one table.
