//! Composition root: builds a gateway from its parts.
