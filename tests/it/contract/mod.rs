//! The contract as others will send it.

mod cases;
mod encodings;
mod mutations;
