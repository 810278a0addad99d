//! Page tables as bit-exact entries in physical memory.
