//! From a prompt to tokens.
