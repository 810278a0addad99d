//! Hardware and OS put together from a description; runs a trace.
