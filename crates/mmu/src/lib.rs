//! TLBs, replacement policies, data caches and walkers.
