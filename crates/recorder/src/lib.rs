//! The QEMU plugin that records a program's accesses and VM calls.
