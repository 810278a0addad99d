//! The shared-memory ring between a recorded program and its recorder.
