//! Physical frames: who hands them out and takes them back.
